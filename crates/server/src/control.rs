//! Control of a running server: its sockets, what is asked there, and who waits for an answer.

pub mod client;
pub mod failure;
pub mod last_words;
pub mod protocol;
pub mod socket;
pub mod watchers;
pub mod watching;
