//! The command line of `tidegate run-log`, which will be removed: no command of the help.

use super::refusal::refusal;
use super::values::size;
use crate::errors::Failure;
use clap::error::ErrorKind;
use clap::{ArgAction, Parser, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Run an unchanged program above a log of its calls (experimental; to be removed)
///
/// After a power loss, recovery can in some cases write older bytes over synced ones, or fail to
/// write synced bytes back. The guide lists these cases (docs/guide/run-log.md). Keep backups of
/// the files below the roots.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "tidegate run-log")]
pub(crate) struct RunLog {
    /// Errors as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Log more than warnings to stderr
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// The pool: a file in persistent memory (on a DAX file system), or a DAX device; created if
    /// absent [default: one in the user's state directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pool: Option<PathBuf>,

    /// A TOML file with the keys pool, size, root and deny. Flags win over the file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Bytes of a pool that is created: 64M, 1G [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,

    /// A directory whose files, at any depth, are accelerated; repeatable [default: the current
    /// directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Vec<PathBuf>,

    /// Files that are never accelerated, repeatable: `*.tmp` matches names, `/data/**` matches
    /// paths
    #[arg(long, value_name = "GLOB")]
    pub(crate) deny: Vec<String>,

    /// Run even if the pool is not persistent memory: a power loss then takes what programs synced
    /// last
    #[arg(long = "try")]
    pub(crate) is_trial: bool,

    /// The program and its arguments
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments, required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// What the words after `run-log` lead to.
pub(crate) enum RunLogLine {
    /// A program to run.
    Run(Box<RunLog>),
    /// The help, to print.
    Print(String),
    /// A mistake, and whether the line asked for JSON.
    Refuse(Failure, bool),
}

impl RunLogLine {
    /// Reads a line that begins with the command's own word.
    pub(super) fn parse(line: &[OsString]) -> RunLogLine {
        match RunLog::try_parse_from(line) {
            Ok(run) => RunLogLine::Run(Box::new(run)),
            Err(error) if error.kind() == ErrorKind::DisplayHelp => RunLogLine::Print(error.render().to_string()),
            Err(error) => {
                let json = line.iter().take_while(|word| *word != "--").any(|word| word == "--json");
                RunLogLine::Refuse(refusal(&error, "tidegate run-log".to_owned()).into(), json)
            }
        }
    }
}
