//! The files of a device, and users of the block device: a mount, a device made of it, a program
//! that has it open.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tidegate_media::{quiet_user_of_device, user_of_device};

/// The file by which the device `number` is served.
pub(crate) fn file_of(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{number}"))
}

/// The block device `number`.
pub(crate) fn block_device(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// What uses a block device, or why that cannot be seen; as one says of the device.
pub(crate) struct Used(pub(crate) String);

impl Used {
    fn unseen(error: io::Error) -> Used {
        Used(format!("whether it has users cannot be seen: {error}"))
    }
}

/// The block device `number`, open for this process alone: no one mounts it meanwhile. None: there
/// is no such block device.
///
/// # Errors
/// It has a user, or it cannot be told that it has none.
pub(crate) fn unused(number: u32) -> Result<Option<File>, Used> {
    let path = block_device(number);
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(device) => File::from(device),
        Err(Errno::BUSY) => return Err(Used(user_of_device(&path).to_string())),
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) if !shown_to_others(number) => return Ok(None),
        Err(errno) => return Err(Used::unseen(errno.into())),
    };
    // Loop devices over it, and programs that have it or a partition of it open, keep no one off.
    match quiet_user_of_device(&path) {
        Ok(None) => Ok(Some(device)),
        Ok(Some(user)) => Err(Used(user)),
        Err(error) => Err(Used::unseen(error)),
    }
}

/// Whether the kernel has the block device `number`, though this process may have no file of it.
fn shown_to_others(number: u32) -> bool {
    Path::new("/sys/class/block").join(format!("ublkb{number}")).exists()
}
