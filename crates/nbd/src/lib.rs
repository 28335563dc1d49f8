//! The NBD protocol (fixed newstyle) in front of any block device.
//!
//! A server offers [`Exports`]; [`serve`] drives one connection over any [`Stream`], encrypted or not. The machines beneath do no input or output: `handshake` and
//! `transmission` take bytes and give bytes, `wire` knows the protocol's records, `buffers` holds what is in between.
//! Sockets, the number of connections and a thread for each belong to the program.
//!
//! One connection executes its requests in the order in which they arrive, on its own thread, and gathers the replies
//! of all requests it finds in its input buffer into one send. Requests that are likely to take long go to a second
//! thread, and others overtake them. A connection holds at most [`limits::CONNECTION_BYTES_MAX`] bytes of
//! buffers and allocates nothing for a read or a write that succeeds.

#![forbid(unsafe_code)]

mod aside;
mod buffers;
pub mod client;
mod contexts;
mod execution;
mod exports;
mod failure;
mod handshake;
pub mod limits;
pub mod ram;
pub mod rehearsal;
mod reply;
mod serve;
mod service;
mod stream;
mod tls;
mod transmission;
mod waiting;
mod wire;

pub use exports::{Exports, ExportsError};
pub use serve::{ConnectionError, End, Violation, serve};
pub use service::{Encryption, Patience, Service};
pub use stream::Stream;
pub use tls::{Tls, TlsError};
