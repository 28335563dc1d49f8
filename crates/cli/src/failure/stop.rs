//! Servers that are not stopped.

use super::{Exit, Told};
use std::io;
use std::path::PathBuf;
use tidegate_host::owned;
use tidegate_host::shell::word;

/// Why no server was stopped.
#[derive(Debug)]
pub(crate) enum StopFailure {
    /// There is none.
    NoServer {
        /// The region, or the control socket.
        at: PathBuf,
        /// What the system answered.
        why: String,
    },
    /// The server has other volumes.
    NotServed {
        /// Its control socket.
        socket: PathBuf,
        /// The region that it does not serve.
        pmem: PathBuf,
        /// Those that it does.
        served: Vec<PathBuf>,
    },
    /// The server belongs to another user.
    OfAnother {
        /// Its control socket.
        socket: PathBuf,
        /// Its user.
        user: u32,
    },
    /// The process that answers is not seen from here, or is not the one that listens.
    Unseen {
        /// The control socket.
        socket: PathBuf,
    },
    /// The system lets nobody signal the process.
    NotSignalled {
        /// Its number.
        pid: u32,
        /// What the system answered.
        error: io::Error,
    },
}

impl StopFailure {
    pub(super) fn told(&self) -> Told {
        let what = match self {
            StopFailure::NoServer { at, .. } => format!("no server runs at {}", at.display()),
            StopFailure::NotServed { socket, pmem, .. } => {
                format!("the server on {} does not serve {}", socket.display(), pmem.display())
            }
            StopFailure::OfAnother { socket, user } => {
                format!("the server on {} belongs to {}", socket.display(), owned::named(*user))
            }
            StopFailure::Unseen { socket } => format!("the server on {} was not stopped", socket.display()),
            StopFailure::NotSignalled { pid, .. } => format!("process {pid} was not asked to end"),
        };
        Told { kind: self.kind(), what, why: self.why(), next: self.next(), exit: self.exit() }
    }

    fn kind(&self) -> &'static str {
        match self {
            StopFailure::NoServer { .. } => "no-server",
            StopFailure::NotServed { .. } => "not-served",
            StopFailure::OfAnother { .. } | StopFailure::NotSignalled { .. } => "permission",
            StopFailure::Unseen { .. } => "unseen-server",
        }
    }

    fn exit(&self) -> Exit {
        match self {
            StopFailure::NoServer { .. } | StopFailure::NotServed { .. } => Exit::Refused,
            StopFailure::OfAnother { .. } | StopFailure::Unseen { .. } | StopFailure::NotSignalled { .. } => {
                Exit::Environment
            }
        }
    }

    fn why(&self) -> String {
        match self {
            StopFailure::NoServer { why, .. } => why.clone(),
            StopFailure::NotServed { served, .. } => {
                let served: Vec<_> = served.iter().map(|file| file.display().to_string()).collect();
                format!("it serves {}", served.join(", "))
            }
            StopFailure::OfAnother { .. } => {
                "a user may stop only servers of their own, and root every server".to_owned()
            }
            StopFailure::Unseen { .. } => {
                "the process that answers cannot be seen from here, or another one listens on the socket".to_owned()
            }
            StopFailure::NotSignalled { error, .. } => error.to_string(),
        }
    }

    fn next(&self) -> String {
        match self {
            StopFailure::NoServer { .. } => "see which servers run: tidegate list".to_owned(),
            StopFailure::NotServed { served, .. } => match served.first() {
                Some(file) => format!("name a volume of it: tidegate stop {}", word(file)),
                None => "see which servers run: tidegate list".to_owned(),
            },
            StopFailure::OfAnother { user, .. } => {
                format!("run this as that user, or as root: sudo -u {} tidegate stop", owned::for_sudo(*user))
            }
            StopFailure::Unseen { .. } => {
                "send it SIGTERM where it runs: in its container, by systemctl or kill".to_owned()
            }
            StopFailure::NotSignalled { .. } => "run this as the user of the server, or as root".to_owned(),
        }
    }
}
