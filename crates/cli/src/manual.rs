//! Manual pages and shell completions, made from the grammar that reads the command line; what it does not have is in [`sections`].

mod sections;

use crate::answer;
use crate::config;
use crate::failure::{Exit, Failure};
use crate::grammar::{Completions, Man, Program};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Runs `tidegate man`.
pub(crate) fn write_pages(wish: &Man) -> Result<Exit, Failure> {
    pages(&wish.out).map_err(|error| Failure::Output { folder: wish.out.clone(), error })?;
    Ok(Exit::Done)
}

/// Runs `tidegate completions`.
pub(crate) fn print_completions(wish: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(wish.shell, &mut Program::command(), "tidegate", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if wish.shell == Shell::Fish {
        script += &fish_arguments();
    }
    answer::print(script.trim_end())?;
    Ok(Exit::Done)
}

/// The words that commands take without a flag, which the generator for fish leaves out.
fn fish_arguments() -> String {
    let program = Program::command();
    let commands =
        program.get_subcommands().flat_map(|command| command.get_positionals().map(move |arg| (command, arg)));
    let lines = commands.map(|(command, arg)| {
        let words: Vec<_> = arg.get_possible_values().iter().map(|word| word.get_name().to_owned()).collect();
        let name = command.get_name();
        let offer = format!("-f -a \"{}\"", words.join(" "));
        if words.is_empty() {
            String::new()
        } else {
            format!("complete -c tidegate -n \"__fish_tidegate_using_subcommand {name}\" {offer}\n")
        }
    });
    lines.collect()
}

/// A page for the program and one for each command, in `folder`, which is made if it is absent.
fn pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut program = Program::command();
    program.build();
    write_page(folder, &program)?;
    program.get_subcommands().try_for_each(|command| write_page(folder, command))
}

fn write_page(folder: &Path, command: &Command) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    // Through no link that another user may have put there.
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = File::options();
    file.write(true).create(true).truncate(true).custom_flags(no_link);
    let mut file = file.open(folder.join(format!("{name}.1")))?;
    clap_mangen::Man::new(command.clone()).render(&mut file)?;
    if command.get_name() == "serve" {
        configuration(&mut file)?;
    }
    file.write_all(sections::of(command.get_name()).unwrap_or_default().as_bytes())
}

fn configuration(page: &mut File) -> io::Result<()> {
    writeln!(page, ".SH \"CONFIGURATION FILE\"\nTOML with the keys of this example:\n.PP\n.nf")?;
    config::EXAMPLE.lines().try_for_each(|line| writeln!(page, "{}", literal(line)))?;
    writeln!(page, ".fi")
}

/// A line that roff shows as it is.
fn literal(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('~', "\\(ti");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
