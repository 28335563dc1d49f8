//! Why a command line is refused: the words of clap's errors as failures of this program.

use crate::errors::UsageFailure;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;

/// What is wrong with a line for `command`: a failure of ours if one of our parsers refused a
/// value, else the grammar's own words.
pub(super) fn refusal(error: &clap::Error, command: String) -> UsageFailure {
    if let Some(ours) = error.source().and_then(|source| source.downcast_ref::<UsageFailure>()) {
        return UsageFailure::Value { of: Box::new(ours.clone()), command };
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = paragraphs.next().unwrap_or_default();
    let what = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no command was given".to_owned(),
        _ => first.trim_start_matches("error: ").to_owned(),
    };
    // The value's own error is the reason.
    let what = match error.source().and_then(|source| what.strip_suffix(&format!(": {source}"))) {
        Some(what) => what.to_owned(),
        None => what,
    };
    let mut tips = paragraphs.filter_map(|tip| tip.strip_prefix("tip: ").map(str::to_owned));
    let tip = tips.find(|tip| tip.contains("similar")).or_else(|| number_apart(error, &command));
    UsageFailure::Grammar { what, why: reason(error, &command), tip, command }
}

/// Why the grammar refuses a line for `command`.
fn reason(error: &clap::Error, command: &str) -> String {
    match error.kind() {
        ErrorKind::UnknownArgument => format!("`{command}` takes no such argument"),
        ErrorKind::InvalidSubcommand => "there is no such command".to_owned(),
        ErrorKind::MissingRequiredArgument => format!("this form of `{command}` cannot do without them"),
        ErrorKind::ArgumentConflict => "they exclude each other, or an option may be given only once".to_owned(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "the first word after `tidegate` is the command".to_owned()
        }
        ErrorKind::InvalidValue if has_no_value(error) => "the value has to follow the option".to_owned(),
        ErrorKind::InvalidValue => "only a few words are possible values".to_owned(),
        // The value's own error.
        _ => error.source().map_or_else(
            || error.kind().as_str().unwrap_or("the command line does not follow the grammar").to_owned(),
            ToString::to_string,
        ),
    }
}

/// How to write the number of a block device that stands apart from its option: `serve` takes no
/// other number by itself.
fn number_apart(error: &clap::Error, command: &str) -> Option<String> {
    let (ErrorKind::UnknownArgument, "tidegate serve") = (error.kind(), command) else { return None };
    let Some(ContextValue::String(number)) = error.get(ContextKind::InvalidArg) else { return None };
    number.parse::<u32>().is_ok().then(|| format!("the number of a block device follows at once: --ublk={number}"))
}

/// Whether the line ends, or goes on with the next option, where a value should be.
fn has_no_value(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}

/// The command that `line` names: `tidegate create` if its first word without a dash is `create`.
pub(super) fn named_command(command: &clap::Command, line: &[OsString]) -> String {
    let mut words = line.iter().skip(1).filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    match words.next().and_then(|word| command.find_subcommand(word)) {
        Some(subcommand) => format!("tidegate {}", subcommand.get_name()),
        None => "tidegate".to_owned(),
    }
}
