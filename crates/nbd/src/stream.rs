//! The stream below a connection: bytes in both directions, received by one thread while others
//! send.

use rustix::net::{RecvFlags, recv};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected socket, or what stands for one.
pub trait Stream: Sync {
    /// Waits for bytes and takes as many as there are and fit; 0 at the stream's end.
    ///
    /// # Errors
    /// `WouldBlock` or `TimedOut` once the limit of waiting has passed; `Interrupted` if the caller
    /// had better look at the clock before it goes on waiting; anything else ends the connection.
    fn receive(&self, out: &mut [u8]) -> io::Result<usize>;

    /// Takes as many bytes as there are and fit, without waiting; 0 at the stream's end.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, or none yet that can be understood; anything else ends the
    /// connection.
    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize>;

    /// Sends all of `bytes`.
    fn send(&self, bytes: &[u8]) -> io::Result<()>;

    /// Limits how long each [`Stream::receive`] from now on waits. `None`: for ever.
    fn limit_waiting(&self, limit: Option<Duration>) -> io::Result<()>;

    /// Limits how long each [`Stream::send`] from now on waits for the other side to take
    /// something. `None`: for ever.
    fn limit_sending(&self, limit: Option<Duration>) -> io::Result<()>;
}

/// Both kinds of socket do the same under the same names, and no trait of the standard library says
/// so.
macro_rules! stream_for_socket {
    ($socket:ty) => {
        impl Stream for $socket {
            fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
                (&*self).read(out)
            }

            fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
                let (len, _) = recv(self, out, RecvFlags::DONTWAIT)?;
                Ok(len)
            }

            fn send(&self, bytes: &[u8]) -> io::Result<()> {
                (&*self).write_all(bytes)
            }

            fn limit_waiting(&self, limit: Option<Duration>) -> io::Result<()> {
                self.set_read_timeout(limit)
            }

            fn limit_sending(&self, limit: Option<Duration>) -> io::Result<()> {
                self.set_write_timeout(limit)
            }
        }
    };
}

stream_for_socket!(UnixStream);
stream_for_socket!(TcpStream);
