//! A file system in memory that answers every request at once, behind the transport that the file
//! service ships.
//!
//! It is the floor beside which the file service is measured, and what the tests of mounting and of
//! the server's death run on. With a folder it keeps its files there, where they survive its
//! process but no more: [`Files::kept_in`]. It can refuse changes, as a disk does that is broken or
//! full: [`FailingFiles`].

#![forbid(unsafe_code)]

mod contents;
mod failing;
mod files;
mod groups;
mod tree;

pub use failing::FailingFiles;
pub use files::Files;
