//! Sockets that this process was started with, open already: systemd's socket activation
//! (LISTEN_FDS).

use crate::failure::{Failure, ListenFailure};
use crate::sockets::listen::Listener;
use listenfd::ListenFd;

/// The number of the first one.
const FIRST: usize = 3;

/// All of them, in their order. Takes the variables out of the environment, so it comes before any
/// thread.
pub fn inherited() -> Result<Vec<Listener>, Failure> {
    let mut fds = ListenFd::from_env();
    (0..fds.len()).map(|index| take(&mut fds, index).map_err(Failure::from)).collect()
}

fn take(fds: &mut ListenFd, index: usize) -> Result<Listener, ListenFailure> {
    let refused = |error| ListenFailure::Refused { place: format!("inherited descriptor {}", FIRST + index), error };
    if let Ok(Some(listener)) = fds.take_unix_listener(index) {
        return Listener::inherited_unix(listener).map_err(refused);
    }
    let listener = fds.take_tcp_listener(index).map_err(refused)?;
    let taken = || std::io::Error::other("it is taken already");
    Listener::of_tcp(listener.ok_or_else(taken).map_err(refused)?).map_err(refused)
}
