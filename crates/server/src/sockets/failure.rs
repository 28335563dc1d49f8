//! Why a socket cannot be listened on.

use crate::sockets::token::TokenError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tidegate_nbd::TlsError;

/// Why a socket could not be opened for listening.
#[derive(Debug, thiserror::Error)]
pub enum ListenFailure {
    /// Another server answers on the unix socket.
    #[error("socket {} is in use", path.display())]
    SocketInUse {
        /// The socket's path.
        path: PathBuf,
        /// The process that listens on it, if the system tells.
        pid: Option<u32>,
    },
    /// A file that is no socket is in the way.
    #[error("cannot listen on {}", path.display())]
    NotASocket {
        /// The file's path.
        path: PathBuf,
    },
    /// A path longer than the system lets a socket have.
    #[error("cannot listen on {}", path.display())]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
    },
    /// The server's identity cannot be used.
    #[error("the server has no identity to encrypt with")]
    Identity {
        /// The files, and what is wrong with them.
        error: TlsError,
    },
    /// The token of the metrics cannot be used.
    #[error("the metrics have no token to ask for")]
    Token {
        /// The file, and what is wrong with it.
        error: TokenError,
    },
    /// Another program listens on the port.
    #[error("port {address} is in use")]
    PortInUse {
        /// Address and port.
        address: String,
    },
    /// The system refused for want of permission.
    #[error("no permission to listen on {place}")]
    Denied {
        /// Path, or address and port.
        place: String,
    },
    /// The socket cannot be given to a group.
    #[error("socket {} cannot be given to group {group}", path.display())]
    Group {
        /// The socket's path.
        path: PathBuf,
        /// The group.
        group: u32,
        /// What the system answered.
        error: io::Error,
    },
    /// Another flag than --listen named the place.
    #[error("{failure}")]
    Named {
        /// The flag and its value, to name another.
        flag: &'static str,
        /// Why nobody can listen there.
        failure: Box<ListenFailure>,
    },
    /// The system refused for another reason.
    #[error("cannot listen on {place}")]
    Refused {
        /// Path, or address and port.
        place: String,
        /// What the system answered.
        error: io::Error,
    },
}

/// Text that names no place to listen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no place to listen")]
pub struct NoListenAddress {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A TCP port that asks nobody who they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} can be reached by {to}")]
pub struct Exposed {
    /// The address.
    pub address: SocketAddr,
    /// By whom.
    pub to: Exposure,
}

/// Who reaches a place that asks nobody who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Every user of this machine.
    Users,
    /// Other machines too.
    Machines,
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exposure::Users => "every user of this machine",
            Exposure::Machines => "other machines",
        })
    }
}
