//! The way in which a mount is ended from outside: signals to the process that keeps it alive, and
//! that process' messages to the server.
//!
//! A message waits in the socket until the server reads it, however early it was sent, and a server
//! that replaces a dead one is sent it again. A signal to a server that has just been started would
//! kill it before it could write anything back.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The whole message that a server is to end the mount.
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

/// Has the server at the other end of `socket` end the mount, now or when it has begun.
pub(crate) fn demand_end(socket: impl AsFd) {
    // A server that is gone already needs no message.
    let _ = send(socket, &END, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// The server's side: what it is asked for while it serves.
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

    /// Calls `demanded` each time that the mount is to end, with the number of former times, until
    /// [`EndDemands::stop`]. `signals` to this process count only when the process that keeps the
    /// mount alive is gone: that process gets them otherwise, and hands them on.
    pub fn for_each(&self, signals: &EndSignals, mut demanded: impl FnMut(usize)) {
        let (mut count, mut is_orphan) = (0, false);
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
            if is_demanded || is_signalled {
                demanded(count);
                count += 1;
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
            threads.spawn(|| demands.for_each(&signals, |former| heard.send(former).expect("the test listens")));
            assert_eq!([hear.recv(), hear.recv()], [Ok(0), Ok(1)]);
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
        demands.clone().for_each(&signals, |former| {
            heard.push(former);
            demands.stop();
        });
        assert_eq!(heard, [0]);
    }
}
