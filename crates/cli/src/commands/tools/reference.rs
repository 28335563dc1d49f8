//! Pages of the reference that are made from the code: options, keys of configuration files, exit
//! codes.
//!
//! Each test compares a page with the code. With `TIDEGATE_BLESS` set it writes the page instead,
//! as `cargo xtask bless` does.

use super::config_keys::{self, Key, Part};
use crate::config;
use crate::errors::Exit;
use crate::grammar::{Example, GROUPS, command, examples};
use clap::{Arg, Command};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use tidegate_host::plain::wrapped;

/// Compares the page `name` with `text`, or writes it.
fn page(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, text).expect("the page can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/reference/{name} differs from the code: run `cargo xtask bless`, and read what changed"
    );
}

/// A comment: `tidegate help` shows some of these pages.
const GENERATED: &str = "<!-- This page is made from the code: `cargo xtask bless` writes it. -->";

#[test]
fn the_page_of_exit_codes() {
    let rows: String = Exit::ALL.iter().map(|(exit, meaning)| format!("| {} | {meaning} |\n", *exit as u8)).collect();
    page(
        "exit-codes.md",
        &format!(
            "# Exit codes\n\n{GENERATED}\n\n`tidegate run` ends with the exit code of its program. Every other command, and `run` if the\nprogram was not started, ends with one of these codes:\n\n| code | meaning |\n| ---: | --- |\n{rows}"
        ),
    );
}

#[test]
fn the_page_of_options() {
    let mut program = command();
    program.build();
    let mut text = format!(
        "# Options\n\n{GENERATED}\n\nEvery command takes these:\n\n{}",
        table(program.get_arguments().filter(|arg| arg.is_global_set()))
    );
    for (group, commands) in GROUPS {
        write!(text, "\n## {group}\n").expect("a string takes all");
        for name in commands {
            text += &of_command(program.find_subcommand(name).expect(name));
        }
    }
    text += "\n## Old names\n\nThese names are still understood, and hidden from the help.\n\n| old name | name |\n| --- | --- |\n";
    for command in program.get_subcommands() {
        for arg in command.get_arguments() {
            let name = arg.get_long().unwrap_or_default();
            for old in arg.get_all_aliases().into_iter().flatten() {
                writeln!(text, "| `{} --{old}` | `--{name}` |", command.get_name()).expect("a string takes all");
            }
        }
    }
    page("options.md", &text);
}

/// What is written about a command: its use, its flags below their headings, its examples.
fn of_command(command: &Command) -> String {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let about: Vec<_> =
        about.split("\n\n").map(|part| paragraph(&format!("{}.", part.trim_end_matches('.')))).collect();
    let mut text = format!("\n### tidegate {}\n\n{}\n\n`{usage}`\n", command.get_name(), about.join("\n\n"));
    let own =
        || command.get_arguments().filter(|arg| !arg.is_global_set() && arg.get_id() != "help" && !arg.is_hide_set());
    let mut headings: Vec<Option<&str>> = own().map(Arg::get_help_heading).collect();
    let mut seen = Vec::new();
    headings.retain(|heading| {
        !seen.contains(heading) && {
            seen.push(*heading);
            true
        }
    });
    for heading in headings {
        match heading {
            Some(heading) => write!(text, "\n{heading}:\n\n").expect("a string takes all"),
            None => text.push('\n'),
        }
        text += &table(own().filter(|arg| arg.get_help_heading() == heading));
    }
    let lines = |(does, line): &Example| format!("# {does}\n{line}\n");
    let lines: String = examples(command.get_name()).iter().map(lines).collect();
    text + &format!("\n```sh\n{lines}```\n")
}

/// `text` in lines of at most 100 characters.
fn paragraph(text: &str) -> String {
    wrapped(text, 100).join("\n")
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: String = args.map(row).collect();
    format!("| option | default | meaning |\n| --- | --- | --- |\n{rows}")
}

fn row(arg: &Arg) -> String {
    let value = arg.get_value_names().map(|names| names.join(" ")).filter(|_| arg.get_action().takes_values());
    let name = match (arg.get_long(), arg.get_short(), value) {
        (Some(long), _, Some(value)) if arg.is_require_equals_set() => format!("`--{long}[={value}]`"),
        (Some(long), _, Some(value)) => format!("`--{long} {value}`"),
        (Some(long), Some(short), None) => format!("`-{short}`, `--{long}`"),
        (Some(long), None, None) => format!("`--{long}`"),
        (None, _, value) => format!("`{}`", value.unwrap_or_default().replace('|', " or ")),
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, default) = match help.split_once(" [default: ") {
        Some((meaning, default)) => (meaning.to_owned(), default.trim_end_matches(']').to_owned()),
        None => {
            let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
            (help, defaults.filter(|_| arg.get_action().takes_values()).collect::<Vec<_>>().join(" "))
        }
    };
    format!("| {name} | {default} | {} |\n", meaning.replace('|', "\\|"))
}

/// The keys of `example` as text and tables.
fn keys(example: &str) -> String {
    let (mut text, mut in_table) = (String::new(), false);
    for part in config_keys::parts(example) {
        let is_key = matches!(part, Part::Key(_));
        let line = match part {
            Part::Text(about) => format!("{}\n", paragraph(&about)),
            Part::Table(head, about) => format!("\n## `{head}`\n\n{}\n", paragraph(&about)),
            Part::Key(Key { name, value, meaning }) => {
                let head = if in_table { "" } else { "\n| key | example | meaning |\n| --- | --- | --- |\n" };
                format!("{head}| `{name}` | `{value}` | {meaning} |\n")
            }
        };
        in_table = is_key;
        text += &line;
    }
    text
}

#[test]
fn the_page_of_configuration() {
    let rows = |keys: Vec<(String, String)>| -> String {
        keys.iter().map(|(name, meaning)| format!("| `{name}` | {meaning} |\n")).collect()
    };
    let (of_mount, of_run) = (rows(config_keys::of_mount()), rows(config_keys::of_run()));
    let introduction = paragraph(config_keys::INTRODUCTION);
    page(
        "configuration.md",
        &format!(
            "# Configuration files\n\n{GENERATED}\n\n{introduction}\n\n# `serve`\n\n{}\n# `mount`\n\nA file has a `[[mount]]` for each mount.\n\n| key | meaning |\n| --- | --- |\n{of_mount}\n# `run`\n\n| key | meaning |\n| --- | --- |\n{of_run}",
            keys(config::EXAMPLE)
        ),
    );
}
