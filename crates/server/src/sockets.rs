//! Sockets of a server: where it listens, who may connect, and the connections.

pub mod accept;
pub mod access;
pub mod activation;
pub mod capacity;
pub mod connections;
pub mod failure;
pub mod listen;
