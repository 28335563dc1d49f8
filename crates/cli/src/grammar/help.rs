//! The program's help: commands in groups, examples and exit codes beside the texts that clap makes
//! of the grammar.

use super::Program;
use super::examples::examples;
use super::topics::{TOPICS, TOPICS_WORD};
use crate::errors::Exit;
use clap::{Command, CommandFactory};

/// Every command, in groups as the help shows them.
pub(crate) const GROUPS: [(&str, &[&str]); 4] = [
    ("Volumes", &["create", "serve", "info", "list", "stop", "stat", "top", "check", "rebuild"]),
    ("Disk cache", &["flush", "mode", "detach", "attach", "resize", "scrub", "salvage", "replay"]),
    ("Files and programs", &["mount", "umount", "run", "status", "explain", "recover"]),
    ("Tools", &["doctor", "config", "man", "completions", "help"]),
];

/// The grammar with everything that its help shows.
pub(crate) fn command() -> Command {
    let program = Program::command();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        groups(&program)
    );
    let program = program.help_template(template).after_help(format!("{}\n{}", of_program(), exit_codes()));
    program.mut_subcommands(|command| {
        let shown = shown(examples(command.get_name()));
        command.after_help(shown)
    })
}

/// What `tidegate help` explains: every command, and every topic.
pub(crate) fn subjects() -> Vec<&'static str> {
    commands().chain([TOPICS_WORD]).chain(TOPICS.iter().map(|topic| topic.name)).collect()
}

/// Every command, in the order of the help.
fn commands() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied())
}

/// A line for each command, below the heading of its group.
fn groups(program: &Command) -> String {
    let line = |name: &&str| {
        let about = program.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
        format!("  {name:<13}{}\n", about.unwrap_or_default())
    };
    let group = |(heading, commands): &(&str, &[&str])| {
        format!("{heading}:\n{}\n", commands.iter().map(line).collect::<String>())
    };
    GROUPS.iter().map(group).collect()
}

fn of_program() -> String {
    format!("{}\n`tidegate COMMAND --help` shows the flags and examples of a command.\n", shown(examples("tidegate")))
}

fn shown(examples: &[(&str, &str)]) -> String {
    let lines: String = examples.iter().map(|(does, line)| format!("  # {does}\n  {line}\n")).collect();
    format!("Examples:\n{lines}")
}

/// The exit codes, as `--help` ends with them.
fn exit_codes() -> String {
    let lines = Exit::ALL.map(|(exit, meaning)| format!("  {}  {meaning}\n", exit as u8));
    format!("Exit codes:\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_has_one_line_of_help() {
        let program = Program::command();
        let mut grouped: Vec<_> = commands().collect();
        let mut named: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
        assert_eq!(grouped, named, "groups and grammar have the same order");
        grouped.sort_unstable();
        named.sort_unstable();
        named.dedup();
        assert_eq!(grouped, named);
        let help = command().render_help().to_string();
        let is_short = |line: &str| line.chars().count() <= 100;
        assert!(help.lines().all(is_short), "{help}");
        for (heading, commands) in GROUPS {
            let listed = help.split(&format!("\n{heading}:\n")).nth(1).expect(heading);
            let names = listed.lines().map_while(|line| line.split_whitespace().next());
            assert!(names.eq(commands.iter().copied()), "{heading}: {help}");
        }
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        let mut program = command();
        program.build();
        for name in commands() {
            let help = program.find_subcommand_mut(name).expect(name).render_help().to_string();
            assert!(help.contains("Examples:\n  # "), "{help}");
        }
    }
}
