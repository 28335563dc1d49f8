//! `tidegate mode`: what a served cache of a disk does with reads and writes, changed while it is
//! served.

use crate::commands::cache::detach::warn_of_the_risk;
use crate::errors::{Exit, Failure};
use crate::grammar::SetMode;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_host::default_paths;
use tidegate_media::Access;
use tidegate_server::cached_disk::offline;
use tidegate_server::control::client;
use tidegate_server::control::protocol::DiskAct;

/// What `mode` answers.
#[derive(Serialize)]
struct ModeReport {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    mode: String,
    /// What is done with reads and writes until the change under way has ended, if that is
    /// something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    meanwhile: Option<String>,
}

impl fmt::Display for ModeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode       {} until the server ends, or it is changed again", self.mode)?;
        self.meanwhile.iter().try_for_each(|mode| write!(f, "; {mode} until the detach or resize under way has ended"))
    }
}

/// Runs `tidegate mode`.
pub(crate) fn run(args: &SetMode, json: bool) -> Result<Exit, Failure> {
    let socket = args.control.clone().unwrap_or_else(|| default_paths::control_socket(&args.pmem));
    let mode = args.mode.to_string();
    let act = DiskAct::SetMode { mode: mode.clone(), accept_volatile: args.accept_volatile };
    let (_, state) =
        client::ask_disk(&socket, &args.pmem, act).map_err(|failure| of_the_file(&args.pmem, failure.into()))?;
    warn_of_the_risk(&args.pmem, &state);
    let meanwhile = (state.mode != mode).then_some(state.mode);
    output::give(&ModeReport { file: args.pmem.clone(), mode, meanwhile }, json)?;
    Ok(Exit::Done)
}

/// What is wrong with the file `pmem`, if no server answers because none can serve it as a cache;
/// else `failure`.
fn of_the_file(pmem: &Path, failure: Failure) -> Failure {
    match offline::cache_in(pmem, Access::PrivateUnlocked) {
        Err(of_it) if failure.is_no_server() => of_it.into(),
        _ => failure,
    }
}
