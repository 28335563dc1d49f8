//! The way in which a mount is ended from outside: signals to the process that keeps it alive, and
//! that process' messages to the server.
//!
//! At the first signal that process has the mount unmounted, which the server notices as it notices
//! every other end. A later one is a message to the server, to end at once. A message waits in the
//! socket until the server reads it, however early it was sent. A signal to a server that has just
//! been started would kill it before it could write anything back.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The whole message that a server is to end.
const END: [u8; 1] = [1];

/// Signals that end a mount: SIGTERM, SIGINT and SIGHUP. From its beginning on, this process
/// survives them.
#[derive(Debug)]
pub struct EndSignals {
    pub(crate) came: UnixStream,
}

impl EndSignals {
    /// Catches the signals from now on.
    pub fn caught() -> Result<EndSignals, Errno> {
        let caught = || -> std::io::Result<UnixStream> {
            let (came, on_signal) = UnixStream::pair()?;
            came.set_nonblocking(true)?;
            for signal in [SIGTERM, SIGINT, SIGHUP] {
                signal_hook::low_level::pipe::register(signal, on_signal.try_clone()?)?;
            }
            Ok(came)
        };
        let came = caught().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(EndSignals { came })
    }

    /// Takes the signals that came. Returns how many there are.
    pub(crate) fn take(&self) -> usize {
        (&self.came).read(&mut [0; 64]).unwrap_or(0)
    }
}

/// Has the server at the other end of `socket` end at once, or when it has begun.
pub(crate) fn demand_end(socket: impl AsFd) {
    // A server that is gone already needs no message.
    let _ = send(socket, &END, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// What a server is asked for while it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndDemand {
    /// To end at once: who asks has asked for the end of the mount before.
    AtOnce,
    /// To end the mount, by a signal to the server: the process that keeps the mount alive is gone.
    OfOrphan,
}

/// The server's side.
#[derive(Clone, Debug)]
pub struct EndDemands {
    socket: Arc<OwnedFd>,
    /// Its other end closes when the wait is over.
    over: Arc<(UnixStream, UnixStream)>,
}

impl EndDemands {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> Result<EndDemands, Errno> {
        let over = UnixStream::pair().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(EndDemands { socket, over: Arc::new(over) })
    }

    /// Calls `demanded` at each demand, until [`EndDemands::stop`]. `signals` to this process count
    /// only when the process that keeps the mount alive is gone, which gets them otherwise. The
    /// first one is [`EndDemand::OfOrphan`].
    pub fn for_each(&self, signals: &EndSignals, mut demanded: impl FnMut(EndDemand)) {
        let (mut was_signalled, mut is_orphan) = (false, false);
        loop {
            let mut polled = [
                PollFd::new(&self.over.0, PollFlags::IN),
                PollFd::new(&signals.came, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
            ];
            // The socket of a process that is gone has no more to say.
            let polled_now = if is_orphan { &mut polled[..2] } else { &mut polled[..] };
            match poll(polled_now, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let [is_over, has_signal, has_message] = polled.map(|polled| !polled.revents().is_empty());
            if is_over {
                return;
            }
            let received = has_message.then(|| recv(&*self.socket, &mut [0; 16], RecvFlags::DONTWAIT));
            is_orphan |= matches!(received, Some(Ok((_, 0))));
            let is_demanded = matches!(received, Some(Ok((_, 1..))));
            // Signals are taken in any case, so that the next wait is one.
            let is_signalled = has_signal && signals.take() > 0 && is_orphan;
            if is_demanded || is_signalled && was_signalled {
                demanded(EndDemand::AtOnce);
            } else if is_signalled {
                was_signalled = true;
                demanded(EndDemand::OfOrphan);
            }
        }
    }

    /// Ends [`EndDemands::for_each`] on another thread.
    pub fn stop(&self) {
        // It stays readable, so the wait ends whenever it looks.
        let _ = self.over.1.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep_alive::handover::sockets;
    use std::sync::mpsc;

    #[test]
    fn a_demand_that_came_before_the_server_read_is_heard_and_stop_ends_the_wait() {
        let (ours, theirs) = sockets().expect("sockets");
        demand_end(&ours);
        demand_end(&ours);
        let demands = EndDemands::new(Arc::new(theirs)).expect("sockets");
        let signals = EndSignals::caught().expect("caught");
        let (heard, hear) = mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(|| demands.for_each(&signals, |demand| heard.send(demand).expect("the test listens")));
            assert_eq!([hear.recv(), hear.recv()], [Ok(EndDemand::AtOnce); 2]);
            demands.stop();
        });
        drop(ours);
    }

    #[test]
    fn a_server_without_its_supervisor_heeds_signals_itself() {
        let (ours, theirs) = sockets().expect("sockets");
        drop(ours);
        let demands = EndDemands::new(Arc::new(theirs)).expect("sockets");
        let (came, mut on_signal) = UnixStream::pair().expect("sockets");
        came.set_nonblocking(true).expect("it is a socket");
        let signals = EndSignals { came };
        std::io::Write::write_all(&mut on_signal, &[0]).expect("sent");
        let mut heard = Vec::new();
        demands.clone().for_each(&signals, |demand| {
            heard.push(demand);
            match heard.len() {
                1 => std::io::Write::write_all(&mut on_signal, &[0]).expect("sent"),
                _ => demands.stop(),
            }
        });
        assert_eq!(heard, [EndDemand::OfOrphan, EndDemand::AtOnce]);
    }
}
