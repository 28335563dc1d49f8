//! The files of a device, and users of the block device: a mount, a device made of it, a program
//! that has it open.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::PathBuf;
use tidegate_host::files::users::{Use, users_of};
use tidegate_media::user_of_device;

/// The file by which the device `number` is served.
pub(crate) fn file_of(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{number}"))
}

/// The block device `number`.
pub(crate) fn block_device(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// The block device `number` for this process alone: while it is open, no one can mount it.
pub(crate) fn exclusive(number: u32) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(block_device(number), flags, Mode::empty()).map(File::from)
}

/// A program that has the block device open, other than this one; as one says of it.
pub(crate) fn user_of(number: u32) -> Option<String> {
    users_of(&block_device(number), Use::Any).into_iter().next().map(|user| format!("{user} is open"))
}

/// What keeps the block device from being this process's alone.
pub(crate) fn holder_of(number: u32) -> String {
    user_of_device(&block_device(number)).to_string()
}
