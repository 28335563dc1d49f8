//! Questions to the kernel that take unsafe code and are not about memory: which process this is,
//! and one more open file of the device of FUSE.
//!
//! They are here because the crates above have no unsafe code.

mod fuse_device;
mod process;

pub use fuse_device::join_fuse_mount;
pub use process::Process;
#[cfg(test)]
pub(crate) use process::in_a_child;
