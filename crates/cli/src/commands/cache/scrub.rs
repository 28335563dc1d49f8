//! `tidegate scrub`: every block that a cache of a disk holds is read, and compared with its
//! checksum if the cache keeps them. A running server does it, a few blocks at a time beside its
//! clients; without one this command does it, and changes nothing.

use crate::errors::{Exit, Failure};
use crate::grammar::Scrub;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_host::columns::line;
use tidegate_host::default_paths;
use tidegate_server::cached_disk::offline;
use tidegate_server::control::client;
use tidegate_server::control::protocol::DiskAct;
use tidegate_server::control::protocol::DiskAnswer;
use tidegate_server::control::protocol::ScrubFindings;

/// What `scrub` answers.
#[derive(Serialize)]
struct ScrubReport {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    /// Whether a server did it.
    served: bool,
    /// Whether the cache keeps checksums.
    checksums: bool,
    #[serde(flatten)]
    found: ScrubFindings,
}

impl fmt::Display for ScrubReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScrubFindings { sound, damaged, named } = &self.found;
        line(f, "volume", self.file.display())?;
        let by = if self.checksums { "fit their checksums" } else { "can be read; the cache keeps no checksums" };
        line(f, "sound", format_args!("{sound} blocks {by}"))?;
        named.iter().try_for_each(|block| line(f, "damaged", block))?;
        match *damaged {
            0 => write!(f, "{:<10} nothing is damaged", "result"),
            _ => write!(f, "{:<10} {damaged} blocks are damaged; what the disk has too is read from there", "result"),
        }
    }
}

/// Runs `tidegate scrub`.
pub(crate) fn run(args: &Scrub, json: bool) -> Result<Exit, Failure> {
    let file = args.pmem.clone();
    let socket = args.control.clone().unwrap_or_else(|| default_paths::control_socket(&file));
    let answer = match served(&socket, &file) {
        Err(failure) if args.control.is_none() && failure.is_no_server() => {
            let (checksums, found) = offline::scrub(&file)?;
            ScrubReport { file, served: false, checksums, found }
        }
        other => other?,
    };
    output::end_with(&answer, json, if answer.found.damaged == 0 { Exit::Done } else { Exit::Refused })
}

/// By the server, step by step.
fn served(socket: &Path, pmem: &Path) -> Result<ScrubReport, Failure> {
    let mut found = ScrubFindings::default();
    let (mut next, mut checksums) = (Some(0), false);
    while let Some(from) = next {
        let (answer, state) = client::ask_disk(socket, pmem, DiskAct::Scrub { from })?;
        let DiskAnswer::Scrubbed { found: more, next: after } = answer else { break };
        found.add(more);
        (next, checksums) = (after, state.checksums);
    }
    Ok(ScrubReport { file: pmem.to_owned(), served: true, checksums, found })
}
