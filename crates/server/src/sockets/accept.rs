//! Waiting for clients and signals, on one thread.

use crate::fronts::Protocol;
use crate::signals::Signals;
use crate::sockets::connections::Connections;
use crate::sockets::listen::Listener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use tidegate_host::sd_notify::SystemdNotify;

/// How long to leave clients waiting when the system has no file descriptor for one more.
pub(crate) const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Clients of one listener that are accepted before the others, the signals and the supervisor have
/// their turn.
const ACCEPTED_AT_ONCE_MAX: usize = 64;

/// A socket, and the protocol of those who connect to it.
pub struct Entrance {
    /// The socket.
    pub listener: Listener,
    /// The protocol.
    pub protocol: Protocol,
}

/// Admits clients until a signal arrives.
pub fn accept_until_signalled(
    entrances: &[Entrance],
    signals: &Signals,
    connections: &Arc<Connections>,
    supervisor: &SystemdNotify,
) -> io::Result<()> {
    let mut pause = false;
    loop {
        let mut watched = vec![PollFd::new(&signals.arrived, PollFlags::IN)];
        if !pause {
            watched.extend(entrances.iter().map(|entrance| PollFd::new(&entrance.listener, PollFlags::IN)));
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
        pause = entrances.iter().any(|entrance| !accept_waiting(entrance, connections));
    }
}

/// Accepts clients that wait, but no more than [`ACCEPTED_AT_ONCE_MAX`]: more may come as fast as
/// they are accepted. False if the system has no room for one.
fn accept_waiting(entrance: &Entrance, connections: &Arc<Connections>) -> bool {
    for _ in 0..ACCEPTED_AT_ONCE_MAX {
        match entrance.listener.accept() {
            Ok(stream) => connections.admit(stream, entrance.protocol),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) if is_no_lack(&error) => {}
            Err(error) => {
                tracing::warn!("a client has to wait: {error}");
                return false;
            }
        }
    }
    true
}

/// Whether the system could accept a client, and none is there: it did not come, or left before it
/// was accepted.
pub(crate) fn is_no_lack(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | ConnectionAborted | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::access::Peers;
    use crate::sockets::connections::Services;
    use crate::sockets::listen::{ListenAddress, SocketAccess};
    use std::os::unix::net::UnixStream;
    use tidegate_block_export::Export;
    use tidegate_nbd::{Exports, Service};
    use tidegate_nbd_client::ram::Ram;

    #[test]
    fn a_crowd_is_accepted_in_rounds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = Listener::bind(&ListenAddress::Unix(path.clone()), SocketAccess::OWN).unwrap();
        let entrance = Entrance { listener, protocol: Protocol::Nbd };
        let export = || Export::new("", "", Arc::new(Ram::new(512, 8)));
        let service = || Service::plain(Exports::new(vec![export()]).unwrap());
        let connections = Connections::new(Services { unix: service(), tcp: service() }, Peers::default(), 0);
        let crowd: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for met in [64, 100, 100] {
            assert!(accept_waiting(&entrance, &connections));
            assert_eq!(connections.counts().over_limit, met);
        }
        drop(crowd);
    }
}
