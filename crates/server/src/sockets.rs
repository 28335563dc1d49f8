//! Sockets of a server: where it listens, which users may connect, and the connections.

pub mod accept;
pub mod access;
pub mod activation;
pub mod capacity;
pub mod connections;
pub mod entrances;
pub mod failure;
pub mod listen;
pub mod token;
