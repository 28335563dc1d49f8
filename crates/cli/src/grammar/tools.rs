//! Commands that examine, and those that print texts: manual pages, completions and help.

use super::help::subjects;
use super::words::words;
use crate::errors::UsageFailure;
use clap::{Args, ValueHint};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The directory of a database [default: examine this machine]
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,

    /// The database's main file of settings, if it is not found beside the data or where its
    /// package has it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "directory")]
    pub(crate) settings: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Config {
    /// The action: only check
    #[arg(value_name = "ACTION", value_parser = ["check"])]
    pub(crate) action: String,

    /// The configuration file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The directory to write them to, created if absent
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that the script is for
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Help {
    /// A command or a topic; `topics` lists the topics [default: the help of the program]
    #[arg(value_name = "COMMAND|TOPIC", value_parser = words(subject, subjects), hide_possible_values = true)]
    pub(crate) subject: Option<String>,
}

/// Reads what `tidegate help` is to explain.
fn subject(text: &str) -> Result<String, UsageFailure> {
    if subjects().contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(UsageFailure::NoHelp { text: text.to_owned(), known: subjects() })
    }
}
