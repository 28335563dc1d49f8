//! The protocol as a client sees it: conversations of bytes, and byte ranges over blocks.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod connections;
mod counting;
mod devices;
mod extents;
mod handshake;
mod hostile;
mod idle;
mod overtaking;
mod pieces;
#[path = "../porous/mod.rs"]
mod porous;
mod ranges;
mod script;
mod timeouts;
mod transmission;
