//! Manual pages, made from the grammar that reads the command line, and from [`man_sections`].

use super::man_sections;
use crate::errors::{Exit, Failure};
use crate::grammar::{Man, Program};
use clap::{Command, CommandFactory};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Runs `tidegate man`.
pub(crate) fn write_pages(args: &Man) -> Result<Exit, Failure> {
    pages(&args.out).map_err(|error| Failure::Output { folder: args.out.clone(), error })?;
    Ok(Exit::Done)
}

/// A page for the program, one for each command and one for configuration files, in `folder`, which
/// is made if it is absent.
fn pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut program = Program::command();
    program.build();
    write_command(folder, &program)?;
    program.get_subcommands().try_for_each(|command| write_command(folder, command))?;
    page_file(folder, "tidegate.toml.5")?.write_all(man_sections::configuration().as_bytes())
}

fn write_command(folder: &Path, command: &Command) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut file = page_file(folder, &format!("{name}.1"))?;
    clap_mangen::Man::new(command.clone()).render(&mut file)?;
    file.write_all(man_sections::of(command.get_name()).unwrap_or_default().as_bytes())
}

/// Opens an empty file through no link that another user may have put there.
fn page_file(folder: &Path, name: &str) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = File::options();
    file.write(true).create(true).truncate(true).custom_flags(no_link);
    file.open(folder.join(name))
}
