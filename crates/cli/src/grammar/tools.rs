//! Commands that print texts: manual pages and completions.

use clap::{Args, ValueHint};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The folder to write them to, made if it is absent
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that is to complete them
    pub(crate) shell: Shell,
}
