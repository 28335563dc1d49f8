//! Sockets that cannot be listened on.

use super::{Exit, Told};
use std::io;
use std::path::PathBuf;
use tidegate_nbd::TlsError;

/// Why a socket could not be opened for listening.
#[derive(Debug)]
pub(crate) enum ListenFailure {
    /// Another server answers on the unix socket.
    SocketInUse {
        /// The socket's path.
        path: PathBuf,
        /// The process that listens on it, if the system tells.
        pid: Option<u32>,
    },
    /// A file that is no socket is in the way.
    NotASocket {
        /// The file's path.
        path: PathBuf,
    },
    /// A path longer than the system lets a socket have.
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
    },
    /// The server's identity cannot be used.
    Identity {
        /// The files, and what is wrong with them.
        error: TlsError,
    },
    /// Another program listens on the port.
    PortInUse {
        /// Address and port.
        address: String,
    },
    /// The system refused for want of permission.
    Denied {
        /// Path, or address and port.
        place: String,
    },
    /// The socket cannot be given to a group.
    Group {
        /// The socket's path.
        path: PathBuf,
        /// The group.
        group: u32,
        /// What the system answered.
        error: io::Error,
    },
    /// Another flag than --listen named the place.
    Named {
        /// The flag and its value, to name another.
        flag: &'static str,
        /// Why nobody can listen there.
        failure: Box<ListenFailure>,
    },
    /// The system refused for another reason.
    Refused {
        /// Path, or address and port.
        place: String,
        /// What the system answered.
        error: io::Error,
    },
}

/// Bytes a unix socket's path may have on Linux, its closing zero left out.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

impl ListenFailure {
    pub(super) fn told(&self) -> Told {
        Told::of(self.kind(), self.what_and_why(), self.next())
    }

    fn kind(&self) -> (&'static str, Exit) {
        match self {
            ListenFailure::SocketInUse { .. } => ("socket-in-use", Exit::InUse),
            ListenFailure::NotASocket { .. } => ("not-a-socket", Exit::Environment),
            ListenFailure::PathTooLong { .. } => ("socket-path-too-long", Exit::Environment),
            ListenFailure::PortInUse { .. } => ("port-in-use", Exit::InUse),
            ListenFailure::Identity { .. } => ("tls", Exit::Environment),
            ListenFailure::Denied { .. } => ("permission", Exit::Environment),
            ListenFailure::Group { .. } => ("socket-group", Exit::Environment),
            ListenFailure::Named { failure, .. } => failure.kind(),
            ListenFailure::Refused { .. } => ("listen", Exit::Environment),
        }
    }

    fn what_and_why(&self) -> (String, String) {
        match self {
            ListenFailure::SocketInUse { path, pid } => {
                let who = pid.map_or("a server".to_owned(), |pid| format!("process {pid}"));
                (format!("socket {} is in use", path.display()), format!("{who} answers on it"))
            }
            ListenFailure::NotASocket { path } => {
                (format!("cannot listen on {}", path.display()), "a file that is no socket has this name".to_owned())
            }
            ListenFailure::PathTooLong { path } => (
                format!("cannot listen on {}", path.display()),
                format!("the path of a unix socket may have {SOCKET_PATH_BYTES_MAX} bytes"),
            ),
            ListenFailure::PortInUse { address } => {
                (format!("port {address} is in use"), "another program listens on it".to_owned())
            }
            ListenFailure::Identity { error } => {
                ("the server has no identity to encrypt with".to_owned(), error.to_string())
            }
            ListenFailure::Denied { place } => {
                (format!("no permission to listen on {place}"), "the system refused it to this user".to_owned())
            }
            ListenFailure::Group { path, group, error } => {
                (format!("socket {} cannot be given to group {group}", path.display()), error.to_string())
            }
            ListenFailure::Named { failure, .. } => failure.what_and_why(),
            ListenFailure::Refused { place, error } => (format!("cannot listen on {place}"), error.to_string()),
        }
    }

    fn next(&self) -> String {
        match self {
            ListenFailure::SocketInUse { .. } => {
                "attach to that server, stop it, or choose another: --listen unix:PATH".to_owned()
            }
            ListenFailure::NotASocket { .. } => "move the file away, or choose another: --listen unix:PATH".to_owned(),
            ListenFailure::PathTooLong { .. } => "choose a shorter one: --listen unix:PATH".to_owned(),
            ListenFailure::PortInUse { .. } => {
                "choose another port, or 0 for any free one: --listen tcp:127.0.0.1:0".to_owned()
            }
            ListenFailure::Identity { .. } => {
                "put the file right, or name others: --tls-certificate FILE --tls-key FILE".to_owned()
            }
            ListenFailure::Denied { .. } => {
                "choose a folder you may write to, or a port from 1024 on, with --listen".to_owned()
            }
            ListenFailure::Group { group, .. } => format!(
                "run the server as root or as a user who is in group {group}; or let nobody else in by leaving --allow-gid out"
            ),
            ListenFailure::Named { flag, .. } => format!("choose another place: {flag}"),
            ListenFailure::Refused { .. } => "choose another place with --listen".to_owned(),
        }
    }
}
