//! The keys of configuration files with their meanings, read from the commented example and from
//! the options of `mount` and `run`: one text for the manual page tidegate.toml(5) and for the
//! reference.

use crate::commands::files::{mount_config, run};
use crate::grammar;
use clap::{Arg, Command};

/// Both pages begin with this.
pub(super) const INTRODUCTION: &str = "`tidegate serve --config FILE`, `tidegate mount --config FILE` and `tidegate run --config FILE` read TOML. An unknown key is refused with its line and the nearest known key.";

/// A part of the example.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'e> {
    /// A text about the keys that follow.
    Text(String),
    /// The head of a table, and a text about it.
    Table(&'e str, String),
    /// A key that stands here first.
    Key(Key<'e>),
}

/// A key with a value to copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key<'e> {
    pub(super) name: &'e str,
    pub(super) value: &'e str,
    pub(super) meaning: String,
}

/// Returns the parts of `example`, in which a comment stands above each table and each new key.
pub(super) fn parts(example: &str) -> Vec<Part<'_>> {
    let (mut parts, mut comment): (Vec<Part<'_>>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in example.lines() {
        if let Some(more) = line.strip_prefix('#') {
            comment.push(more.trim());
            continue;
        }
        let about = std::mem::take(&mut comment).join(" ");
        if line.starts_with('[') {
            parts.push(Part::Table(line, about));
        } else if let Some((name, value)) = line.split_once(" = ") {
            let known = |part: &Part<'_>| matches!(part, Part::Key(key) if key.name == name);
            if !parts.iter().any(known) {
                parts.push(Part::Key(Key { name, value, meaning: about }));
            }
        } else if !about.is_empty() {
            parts.push(Part::Text(about));
        }
    }
    parts
}

/// Returns the keys of `run`, which are options of the command line too, with their meanings.
pub(super) fn of_run() -> Vec<(String, String)> {
    of_options("run", &run::KEYS)
}

/// Returns the keys of a `[[mount]]`, which are options of the command line too, with their
/// meanings.
pub(super) fn of_mount() -> Vec<(String, String)> {
    of_options("mount", &mount_config::KEYS)
}

/// What the `keys` mean that are options of a command.
fn of_options(command: &str, keys: &[&str]) -> Vec<(String, String)> {
    let program = grammar::command();
    let args: Vec<_> = program.find_subcommand(command).into_iter().flat_map(Command::get_arguments).collect();
    let name = |arg: &Arg| arg.get_long().map_or_else(|| arg.get_id().to_string(), |long| long.replace('-', "_"));
    let meaning = |arg: &&Arg| arg.get_help().map(ToString::to_string).unwrap_or_default();
    let of_key = |key: &&str| args.iter().find(|arg| name(arg) == *key).map(|arg| (key.to_string(), meaning(arg)));
    keys.iter().filter_map(of_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn a_comment_is_about_the_next_line_and_a_repeated_key_is_left_out() {
        let example = "# About\n# all.\n\n# First.\na = 1\n\n# A table.\n[[t]]\na = 2\n# Second.\nb = \"x\"\n";
        let key = |name, value, meaning: &str| Part::Key(Key { name, value, meaning: meaning.to_owned() });
        let expected = [
            Part::Text("About all.".to_owned()),
            key("a", "1", "First."),
            Part::Table("[[t]]", "A table.".to_owned()),
            key("b", "\"x\"", "Second."),
        ];
        assert_eq!(parts(example), expected);
    }

    #[test]
    fn every_key_has_a_meaning() {
        let all = parts(config::EXAMPLE);
        let keys: Vec<_> =
            all.iter().filter_map(|part| if let Part::Key(key) = part { Some(key) } else { None }).collect();
        assert!(keys.len() > 20 && keys.iter().all(|key| !key.meaning.is_empty()), "{keys:?}");
        for (keys, all) in [(of_run(), &run::KEYS[..]), (of_mount(), &mount_config::KEYS[..])] {
            assert!(keys.len() == all.len() && keys.iter().all(|(_, meaning)| !meaning.is_empty()), "{keys:?}");
        }
    }
}
