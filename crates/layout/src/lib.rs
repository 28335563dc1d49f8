//! Every byte Tidegate keeps on a medium: structs, checks and descriptions. No I/O.
//!
//! A struct here is the bytes on the medium, raw and perhaps damaged. Its `check` names the rule
//! that fails and is the only way to the trusted type beside it, which the engines work with.
//! [`describe`] prints the structs as Markdown; `docs/layout.md` is that text.
//!
//! All integers are little-endian. No struct has padding; each one's size and offsets are asserted
//! at compile time, and a golden byte string stands in its tests.

#![forbid(unsafe_code)]

pub mod append_log;
pub mod btt;
mod describe;
pub mod disk_cache;
pub mod file_cache;
pub mod foreign;
pub mod former_run;
pub mod mirror;
mod on_media;
pub mod ring;
pub mod write_cache;

pub use describe::describe;
pub use on_media::{Broken, Description, Field};
