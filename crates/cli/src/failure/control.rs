//! Servers that cannot be asked how they do.

use super::{Exit, Told};
use std::io;
use std::path::PathBuf;

/// Why there is no answer from a running server.
#[derive(Debug)]
pub(crate) enum ControlFailure {
    /// Nobody answers on the socket.
    NoServer {
        /// The control socket.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// The system lets this user not ask, whether somebody answers or not.
    Denied {
        /// The control socket.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// Somebody listens on the socket, and does not answer.
    Silent {
        /// The control socket.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// The answer is not one of this program's.
    Unintelligible {
        /// The control socket.
        path: PathBuf,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

impl ControlFailure {
    pub(super) fn told(&self) -> Told {
        match self {
            ControlFailure::NoServer { path, error } => Told {
                kind: "no-server",
                what: format!("no server answers on {}", path.display()),
                why: error.to_string(),
                next: "start one with `tidegate serve`, or name the control socket that it prints: --control PATH"
                    .to_owned(),
                exit: Exit::Environment,
            },
            ControlFailure::Denied { path, error } => Told {
                kind: "permission",
                what: format!("no permission to ask on {}", path.display()),
                why: error.to_string(),
                next: "run this as the user of the server, or as root".to_owned(),
                exit: Exit::Environment,
            },
            ControlFailure::Silent { path, error } => Told {
                kind: "no-answer",
                what: format!("the server on {} does not answer", path.display()),
                why: error.to_string(),
                next: "it may still be busy with this: look later with `tidegate stat`".to_owned(),
                exit: Exit::Environment,
            },
            ControlFailure::Unintelligible { path, error } => Told {
                kind: "control-answer",
                what: format!("the answer on {} is not understood", path.display()),
                why: error.to_string(),
                next: "ask with the version of tidegate that serves".to_owned(),
                exit: Exit::Environment,
            },
        }
    }
}
