//! Both ends of an NBD test: a client, and a device in memory for a server to export.
//!
//! The client does not use the server's code. It states the protocol's numbers itself, so a wrong
//! number in the server is not hidden by the same number in its test.

#![forbid(unsafe_code)]

pub mod client;
pub mod ram;
mod wire;
