//! Why a running server does not answer, or refuses a request.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use tidegate_host::owned;

/// Why there is no answer from a running server.
#[derive(Debug, thiserror::Error)]
pub enum ControlFailure {
    /// Nobody answers on the socket.
    #[error("no server answers on {}", path.display())]
    NoServer {
        /// The control socket.
        path: PathBuf,
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// The system lets this user not ask, whether somebody answers or not.
    #[error("no permission to ask on {}", path.display())]
    Denied {
        /// The control socket.
        path: PathBuf,
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// Somebody listens on the socket, and does not answer.
    #[error("the server on {} does not answer", path.display())]
    Silent {
        /// The control socket.
        path: PathBuf,
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// The answer is not one of this program's.
    #[error("the answer on {} is not understood", path.display())]
    Unintelligible {
        /// The control socket.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        error: serde_json::Error,
    },
    /// The server belongs to another user.
    #[error("the server on {} belongs to {}", path.display(), owned::named(*user))]
    OfAnother {
        /// The control socket.
        path: PathBuf,
        /// The server's user.
        user: u32,
    },
    /// The server refuses what was asked of it.
    #[error("the running server refuses")]
    Refused(Refused),
}

impl ControlFailure {
    /// Whether it means that no server is there, so that somebody else may do the work.
    pub fn is_no_server(&self) -> bool {
        matches!(self, ControlFailure::NoServer { .. })
    }
}

/// Why a request is not carried out.
#[derive(Debug, Deserialize, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The line is no request.
    #[error("the request is not understood: {why}")]
    NotUnderstood {
        /// What is wrong with it.
        why: String,
    },
    /// The server has no such volume.
    #[error("{} is not served here", pmem.display())]
    NotServed {
        /// The region asked for.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
    },
    /// The volume has no disk behind it.
    #[error("{} is no cache of a disk", pmem.display())]
    NoCache {
        /// The region asked for.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
    },
    /// It was tried, and did not succeed.
    #[error("{why}")]
    Failed {
        /// What happened, and why.
        why: String,
        /// What to do now.
        next: String,
        /// How the command ends that asked for it.
        exit: u8,
    },
    /// The server ended before a change was made.
    #[error("the server ends, and {} stays as it was", pmem.display())]
    Ending {
        /// The region.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
    },
    /// No cache has this mode.
    #[error("{mode} is no mode of a cache")]
    NoMode {
        /// The word.
        mode: String,
    },
}
