//! Commands that print texts: manual pages, completions and help.

use super::help::subjects;
use super::words::words;
use crate::errors::UsageFailure;
use clap::{Args, ValueHint};
use clap_complete::Shell;
use std::path::PathBuf;

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
