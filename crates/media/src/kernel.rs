//! Questions to the kernel that take unsafe code: which process this is, one more open file of the
//! device of FUSE, which pages of a mapping were stored to, and which absent ones are touched.
//!
//! They are here because the crates above have no unsafe code.

mod absent_pages;
mod fuse_device;
mod process;
mod written_pages;

pub use absent_pages::AbsentPages;
pub use fuse_device::join_fuse_mount;
pub use process::Process;
#[cfg(test)]
pub(crate) use process::in_a_child;
pub use written_pages::{WrittenPages, WrittenRange};
