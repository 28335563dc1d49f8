//! What a server offers its clients, and on which terms.

use crate::attendance::Attendance;
use crate::export::Exports;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;

/// What connections are served.
pub struct Service {
    /// The exports, which other services may offer too.
    pub exports: Arc<Exports>,
    /// Who may do without encryption.
    pub encryption: Encryption,
    /// How long clients are waited for.
    pub patience: Patience,
    /// Who is awake, which services on the same cores share.
    pub attendance: Arc<Attendance>,
}

/// How long clients are waited for. One that has nothing to say may be silent for ever, as an idle disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the first byte of the server until an export is picked, encryption included.
    pub handshake: Duration,
    /// From the first byte of a request to its last.
    pub request: Duration,
}

impl Default for Patience {
    /// Enough for people and for slow networks.
    fn default() -> Patience {
        Patience { handshake: Duration::from_secs(10), request: Duration::from_secs(60) }
    }
}

/// Whether connections are encrypted.
#[derive(Clone, Debug)]
pub enum Encryption {
    /// None is.
    Off,
    /// Those of clients that ask for it are.
    Allowed(Tls),
    /// All are: a client is told nothing before it asked for encryption and got it.
    Required(Tls),
}

impl Service {
    /// Offers `exports` to anyone who connects, without encryption.
    pub fn plain(exports: Exports) -> Service {
        let attendance = Arc::default();
        Service { exports: Arc::new(exports), encryption: Encryption::Off, patience: Patience::default(), attendance }
    }

    /// The same exports, patience and cores with another encryption.
    pub fn with(&self, encryption: Encryption) -> Service {
        let (exports, attendance) = (Arc::clone(&self.exports), Arc::clone(&self.attendance));
        Service { exports, encryption, patience: self.patience, attendance }
    }
}

impl Encryption {
    /// The identity to encrypt with.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Encryption::Off => None,
            Encryption::Allowed(tls) | Encryption::Required(tls) => Some(tls),
        }
    }
}
