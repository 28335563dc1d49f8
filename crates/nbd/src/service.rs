//! The exports that a server offers its clients, and the terms.

use crate::exports::Exports;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block_export::PollBudget;

/// What connections are served.
pub struct Service {
    /// The exports, which other services may offer too.
    pub exports: Arc<Exports>,
    /// Who may do without encryption.
    pub encryption: Encryption,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// The busy-poll budget, which services on the same cores share.
    pub poll_budget: Arc<PollBudget>,
}

/// How long a connection waits for its client. A client without requests may be silent for ever, as
/// an idle disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of the server until an export is picked, encryption included.
    pub handshake: Duration,
    /// From the first byte of a request to its last.
    pub request: Duration,
}

impl Default for Timeouts {
    /// Enough for people and for slow networks.
    fn default() -> Timeouts {
        Timeouts { handshake: Duration::from_secs(10), request: Duration::from_secs(60) }
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
        let poll_budget = Arc::default();
        Service { exports: Arc::new(exports), encryption: Encryption::Off, timeouts: Timeouts::default(), poll_budget }
    }

    /// These exports, timeouts and cores with another encryption.
    pub fn with(&self, encryption: Encryption) -> Service {
        let (exports, poll_budget) = (Arc::clone(&self.exports), Arc::clone(&self.poll_budget));
        Service { exports, encryption, timeouts: self.timeouts, poll_budget }
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
