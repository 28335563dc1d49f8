//! Control of a running server: its sockets, the requests and their answers, and the clients.

pub mod client;
pub mod failure;
pub mod last_words;
pub mod protocol;
pub mod socket;
pub mod watchers;
pub mod watching;
