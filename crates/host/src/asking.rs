//! Connections to the control sockets of services, on which nothing is waited for without a limit.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a service may take to answer.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Connects to the service that listens on the socket `path`.
///
/// The connection is waited for no longer than `patience`: a service that accepts none has room for
/// a few, and then for no more. Each later read and write of the connection has the same limit.
pub fn connect_within(patience: Duration, path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The kernel has the limit of a send for a connection too.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    connect(&socket, &address).map_err(|errno| named(errno.into(), patience))?;
    Ok(socket.into())
}

/// Names the limit if `error` says that it was reached, which the system words as "temporarily
/// unavailable".
pub fn named(error: io::Error, patience: Duration) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => {
            io::Error::new(ErrorKind::TimedOut, format!("no answer within {} s", patience.as_secs_f64()))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    const SHORT: Duration = Duration::from_millis(50);

    fn said(error: io::Error) -> (ErrorKind, String) {
        (error.kind(), error.to_string())
    }

    #[test]
    fn a_service_that_says_nothing_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).expect("a socket");
        let mut silent = connect_within(SHORT, &path).expect("there is room for one");
        let error = silent.read(&mut [0]).expect_err("it says nothing");
        let expected = (ErrorKind::TimedOut, "no answer within 0.05 s".to_owned());
        assert_eq!(said(named(error, SHORT)), expected);
    }

    #[test]
    fn a_service_that_accepts_no_one_is_given_up_when_it_has_no_more_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(&path).expect("a short path")).expect("bound");
        listen(&socket, 0).expect("it listens");
        let mut waiting = Vec::new();
        let error = loop {
            match connect_within(SHORT, &path) {
                Ok(one) => waiting.push(one),
                Err(error) => break error,
            }
        };
        assert!(waiting.len() < 10, "{}", waiting.len());
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn where_no_service_listens_the_system_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let refused = |path: &Path| connect_within(SHORT, path).expect_err("no service").kind();
        assert_eq!(refused(&path), ErrorKind::NotFound);
        drop(UnixListener::bind(&path).expect("a socket"));
        assert_eq!(refused(&path), ErrorKind::ConnectionRefused);
    }
}
