//! Files and folders that other users may have put there.

use super::{Exit, Told};
use crate::owned::{Distrust, for_sudo};
use crate::shell::word;
use std::path::PathBuf;

/// A file or folder that is not used.
#[derive(Debug)]
pub(crate) struct NotOwn {
    /// Which.
    pub(crate) file: PathBuf,
    /// Why.
    pub(crate) distrust: Distrust,
    /// The command that its owner would give.
    pub(crate) command: &'static str,
    /// What to name in its place.
    pub(crate) instead: &'static str,
}

impl NotOwn {
    pub(super) fn told(&self) -> Told {
        let NotOwn { file, distrust, command, instead } = self;
        let next = match distrust {
            Distrust::Owner(uid) => {
                let user = for_sudo(*uid);
                format!("run the same command as that user, for example: sudo -u {user} {command}; or {instead}")
            }
            Distrust::Writable(_) => {
                format!("if no other user has changed it, take that right away: chmod go-w {}", word(file))
            }
            Distrust::Link(_) | Distrust::Kind(_) => format!("move it away, or {instead}"),
        };
        let what = format!("{} is not used: other users may have put it there", file.display());
        Told { kind: "not-own", what, why: distrust.to_string(), next, exit: Exit::Refused }
    }
}
