//! The protocol as a client sees it: conversations of bytes, without a socket.

mod handshake;
mod script;
