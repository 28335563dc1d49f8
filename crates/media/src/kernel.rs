//! Questions to the kernel that take unsafe code: which process this is, one more open file of the
//! device of FUSE, and which pages of a mapping were stored to.
//!
//! They are here because the crates above have no unsafe code.

mod fuse_device;
mod process;
mod written_pages;

pub use fuse_device::join_fuse_mount;
pub use process::Process;
#[cfg(test)]
pub(crate) use process::in_a_child;
pub use written_pages::{WrittenPages, WrittenRange};
