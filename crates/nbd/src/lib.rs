//! The NBD protocol (fixed newstyle) in front of any block device.
//!
//! A server offers [`Exports`]; [`serve`] drives one connection over any [`Stream`], encrypted or
//! not. The machines beneath do no input or output: `handshake` and `transmission` take bytes and
//! give bytes, `wire` knows the protocol's records, `buffers` holds the bytes in between. Sockets,
//! the number of connections and a thread for each belong to the program.
//!
//! One connection executes its requests in the order in which they arrive, on its own thread, and
//! gathers the replies of all requests it finds in its input buffer into one send. Requests that
//! are likely to take long go to a second thread, and others overtake them. A connection holds at
//! most `CONNECTION_BYTES_MAX` bytes of buffers and does not allocate for a read or a write that
//! succeeds.

#![forbid(unsafe_code)]

mod buffers;
mod connection;
mod contexts;
mod exports;
mod failure;
mod handshake;
mod limits;
pub mod loopback;
mod service;
mod stream;
mod tls;
mod transmission;
mod wire;

pub use connection::serve;
pub use exports::{Exports, ExportsError};
pub use failure::{ConnectionError, End, Violation};
pub use limits::OFFLOAD_THREADS_MAX;
pub use service::{Encryption, Service, Timeouts};
pub use stream::Stream;
pub use tls::{Encrypted, Tls, TlsError};
