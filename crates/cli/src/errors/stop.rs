//! Servers that are not stopped.

use super::{Exit, Report};
use std::io;
use std::path::PathBuf;
use tidegate_host::shell::word;

/// Why no server was stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StopFailure {
    /// There is none.
    #[error("no server runs at {}", at.display())]
    NoServer {
        /// The region, or the control socket.
        at: PathBuf,
        /// What the system answered.
        why: String,
    },
    /// The server has other volumes.
    #[error("the server on {} does not serve {}", socket.display(), pmem.display())]
    NotServed {
        /// Its control socket.
        socket: PathBuf,
        /// The region that it does not serve.
        pmem: PathBuf,
        /// Those that it does.
        served: Vec<PathBuf>,
    },
    /// The process that answers is not seen from here, or is not the one that listens.
    #[error("the server on {} was not stopped", socket.display())]
    Unseen {
        /// The control socket.
        socket: PathBuf,
    },
    /// The system lets nobody signal the process.
    #[error("process {pid} was not asked to end")]
    NotSignalled {
        /// Its number.
        pid: u32,
        /// What the system answered.
        error: io::Error,
    },
}

impl From<&StopFailure> for Report {
    fn from(failure: &StopFailure) -> Report {
        let what = failure.to_string();
        match failure {
            StopFailure::NoServer { why, .. } => no_server(what, why),
            StopFailure::NotServed { served, .. } => not_served(what, served),
            StopFailure::Unseen { .. } => unseen(what),
            StopFailure::NotSignalled { error, .. } => not_signalled(what, error.to_string()),
        }
    }
}

const SEE_SERVERS: &str = "see which servers run: tidegate list";

fn no_server(what: String, why: &str) -> Report {
    Report::new(("no-server", Exit::Refused), what, why, SEE_SERVERS)
}

fn not_served(what: String, served: &[PathBuf]) -> Report {
    let name = |file: &PathBuf| format!("name a volume of it: tidegate stop {}", word(file));
    let next = served.first().map_or(SEE_SERVERS.to_owned(), name);
    let served: Vec<_> = served.iter().map(|file| file.display().to_string()).collect();
    Report::new(("not-served", Exit::Refused), what, format!("it serves {}", served.join(", ")), next)
}

fn unseen(what: String) -> Report {
    let why = "the process that answers cannot be seen from here, or another one listens on the socket";
    let next = "send it SIGTERM where it runs: in its container, by systemctl or kill";
    Report::new(("unseen-server", Exit::Environment), what, why, next)
}

fn not_signalled(what: String, why: String) -> Report {
    Report::new(("permission", Exit::Environment), what, why, "run this as the user of the server, or as root")
}
