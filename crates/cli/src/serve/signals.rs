//! Signals that end a server, as a socket that becomes readable.

use crate::failure::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    pub(super) arrived: UnixStream,
}

impl Signals {
    pub(super) fn watch() -> io::Result<Signals> {
        let (arrived, on_signal) = UnixStream::pair()?;
        // The first signal finds the flag clear and sets it; the second one ends the process at once.
        let again = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, Exit::Unexpected as i32, Arc::clone(&again))?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::low_level::pipe::register(signal, on_signal.try_clone()?)?;
        }
        Ok(Signals { arrived })
    }
}
