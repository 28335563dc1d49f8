//! Signals that end a server, or have it read its configuration again, as sockets that become
//! readable.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::thread;

/// Signals that have arrived.
pub struct Signals {
    /// A byte for each SIGTERM and SIGINT.
    pub ending: UnixStream,
    /// A byte for each SIGHUP.
    pub reload: UnixStream,
}

impl Signals {
    /// From now on signals end the process no more. A server without a configuration outlives the
    /// terminal it was started from, too.
    pub fn watch() -> io::Result<Signals> {
        let (ending, on_end) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, on_end.try_clone()?)?;
        }
        let (reload, on_hangup) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGHUP, on_hangup)?;
        reload.set_nonblocking(true)?;
        Ok(Signals { ending, reload })
    }

    /// Forgets the SIGHUPs that have arrived: one reading of the configuration answers all of them.
    pub fn take_reloads(&self) {
        let mut taken = [0; 64];
        // It ends at the first read that finds none.
        while matches!((&self.reload).read(&mut taken), Ok(1..)) {}
    }

    /// Calls `action` on a thread of its own when the signal after the one that has arrived comes.
    pub fn on_the_next(mut self, action: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let work = move || {
            if self.ending.read_exact(&mut [0; 2]).is_ok() {
                action();
            }
        };
        thread::Builder::new().name("second signal".to_owned()).spawn(work).map(drop)
    }
}
