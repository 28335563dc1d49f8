//! Signals that end a server, as a socket that becomes readable, and one that does not.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

/// SIGTERM and SIGINT.
pub struct Signals {
    /// A byte for each signal.
    pub arrived: UnixStream,
}

impl Signals {
    /// From now on signals end the process no more. SIGHUP does nothing: there is nothing to read
    /// anew, and a server outlives the terminal it was started from.
    pub fn watch() -> io::Result<Signals> {
        let (arrived, on_signal) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, on_signal.try_clone()?)?;
        }
        signal_hook::flag::register(SIGHUP, Arc::default())?;
        Ok(Signals { arrived })
    }

    /// Calls `action` on a thread of its own when the signal after the one that has arrived comes.
    pub fn on_the_next(mut self, action: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let work = move || {
            if self.arrived.read_exact(&mut [0; 2]).is_ok() {
                action();
            }
        };
        thread::Builder::new().name("second signal".to_owned()).spawn(work).map(drop)
    }
}
