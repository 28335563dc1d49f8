//! Scripts that complete command lines, made from the grammar.

use crate::errors::{Exit, Failure};
use crate::grammar::{Completions, Program};
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;

/// Runs `tidegate completions`.
pub(crate) fn print_completions(args: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Program::command(), "tidegate", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Fish {
        script += &fish_arguments();
    }
    output::print(script.trim_end())?;
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
