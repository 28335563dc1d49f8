//! Clients that wait for a server's end, as `tidegate stop` does, and the report they get then.

use crate::sockets::listen::Stream;
use rustix::net::{SendFlags, send};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Clients that may wait for the end at a time; one more takes the place of the oldest.
const WAITING_MAX: usize = 8;

/// How a server ended.
#[derive(Debug, Deserialize, Serialize)]
pub struct EndReport {
    /// Each volume's farewell, for scripts.
    pub ended: Vec<Value>,
    /// Each volume's farewell, for people.
    pub lines: Vec<String>,
    /// The server's exit code.
    pub exit: u8,
    /// What went wrong, if anything did.
    pub trouble: Option<String>,
}

/// The clients that wait for the end.
#[derive(Default)]
pub struct LastWords(Mutex<VecDeque<Arc<Stream>>>);

impl LastWords {
    /// Keeps the connection of a client that waits.
    pub fn await_by(&self, client: Arc<Stream>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(client);
    }

    /// Tells everybody who waits. Nobody is waited for: a line is short, and has room in the
    /// socket.
    pub fn say(&self, told: &EndReport) {
        let mut line = serde_json::to_vec(told).expect("strings and numbers have a JSON form");
        line.push(b'\n');
        for client in self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Whoever has gone hears nothing.
            let _ = send(&*client, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}
