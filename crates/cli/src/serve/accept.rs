//! Waiting for clients and signals, on one thread.

use super::signals::Signals;
use crate::connections::Connections;
use crate::listen::Listener;
use crate::supervisor::Supervisor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// How long to leave clients waiting when the system has no file descriptor for one more.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Admits clients until a signal arrives.
pub(super) fn accept_until_signalled(
    listeners: &[Listener],
    signals: &Signals,
    connections: &Arc<Connections>,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let mut pause = false;
    loop {
        let mut watched = vec![PollFd::new(&signals.arrived, PollFlags::IN)];
        if !pause {
            watched.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        let limit = if pause { Some(ACCEPT_PAUSE) } else { supervisor.wait_max() };
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        supervisor.beat();
        pause = listeners.iter().any(|listener| !accept_waiting(listener, connections));
    }
}

/// Accepts every client that waits; false if the system has no room for one.
fn accept_waiting(listener: &Listener, connections: &Arc<Connections>) -> bool {
    loop {
        match listener.accept() {
            Ok(stream) => connections.admit(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            // The client left before it was accepted.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!("a client has to wait: {error}");
                return false;
            }
        }
    }
}
