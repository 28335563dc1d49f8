//! Control of a running server: its sockets, the requests and their answers, and the clients.

pub(crate) mod answering;
pub mod client;
pub mod failure;
pub mod last_words;
pub mod metrics_port;
pub mod protocol;
pub mod socket;
pub mod watchers;
pub mod watching;
