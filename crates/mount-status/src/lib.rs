//! What the file service of a mount says of itself: the answer of its control socket, as JSON.
//!
//! Servers and clients of different versions meet there. A count that the server does not have is 0
//! for the client.

#![forbid(unsafe_code)]

mod counts;
mod status;

pub use counts::{FileStates, MountCounts, PatternReads, ReadsByPattern};
pub use status::MountStatus;
