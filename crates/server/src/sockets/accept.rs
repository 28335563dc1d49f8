//! Waiting for clients and signals, on one thread.

use crate::signals::Signals;
use crate::sockets::connections::Connections;
use crate::sockets::entrances::Entrance;
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

/// What the signal that arrived asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The end.
    End,
    /// A look at the configuration.
    Reload,
}

/// Admits clients until a signal arrives.
pub fn accept_until_signalled(
    entrances: &[Entrance],
    signals: &Signals,
    connections: &Arc<Connections>,
    supervisor: &SystemdNotify,
) -> io::Result<Asked> {
    let mut pause = false;
    loop {
        let mut watched =
            vec![PollFd::new(&signals.ending, PollFlags::IN), PollFd::new(&signals.reload, PollFlags::IN)];
        if !pause {
            watched.extend(entrances.iter().map(|entrance| PollFd::new(&entrance.listener, PollFlags::IN)));
        }
        let limit = if pause { Some(ACCEPT_PAUSE) } else { supervisor.wait_max() };
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let arrived = [Asked::End, Asked::Reload].into_iter().zip(&watched);
        if let Some((asked, _)) = arrived.into_iter().find(|(_, socket)| !socket.revents().is_empty()) {
            return Ok(asked);
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
            Ok(stream) => connections.admit(stream, entrance.client()),
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
    use crate::options::Plan;
    use crate::sockets::access::Peers;
    use crate::sockets::connections::{Services, Terms};
    use crate::sockets::entrances::Entrances;
    use crate::sockets::listen::ListenAddress;
    use std::os::unix::net::UnixStream;
    use tidegate_block_export::Export;
    use tidegate_nbd::{Exports, Service};
    use tidegate_nbd_client::ram::Ram;

    #[test]
    fn a_crowd_is_accepted_in_rounds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let plan = Plan { listen: vec![ListenAddress::Unix(path.clone())], ..Plan::default() };
        let entrances = Entrances::open(&plan, Vec::new()).unwrap();
        let entrance = &entrances.all()[0];
        let export = || Export::new("", "", Arc::new(Ram::new(512, 8)));
        let service = || Service::plain(Exports::new(vec![export()]).unwrap());
        let services = Services { unix: service(), tcp: service() };
        let connections =
            Connections::new(Terms { services, peers: Peers::default(), connections_max: 0, busy_poll: true });
        let crowd: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for met in [64, 100, 100] {
            assert!(accept_waiting(entrance, &connections));
            assert_eq!(connections.counts().over_limit, met);
        }
        drop(crowd);
    }
}
