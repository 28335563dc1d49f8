//! What is mounted where, and why it could not be.

use crate::device::DeviceError;
use rustix::io::Errno;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tidegate_fuse::TooOld;

/// The kind of our file systems, as `/proc/mounts` shows it.
pub const KIND: &str = "fuse.tidegate";

/// What is mounted where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountAt {
    /// The directory below which the files appear, as an absolute path.
    pub mountpoint: PathBuf,
    /// What `/proc/mounts` shows as the source.
    pub source: OsString,
    /// Whether the mount covers files that are there on purpose.
    pub covers_files: bool,
}

/// The file system could not be mounted, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or this container not its device.
    #[error(
        "/dev/fuse cannot be opened ({0}): load the kernel's module with `modprobe fuse`, give the container this device, or let this user open it with `chmod 666 /dev/fuse`"
    )]
    NoDevice(Errno),
    /// What is mounted, paths of open files and their users cannot be found out.
    #[error("{doing} needs /proc, which is not mounted: mount -t proc proc /proc")]
    NoProc {
        /// What was asked for.
        doing: &'static str,
    },
    /// Only root mounts without `fusermount3`.
    #[error("fusermount3 is not installed, and only root mounts without it: install the package fuse3")]
    NoFusermount,
    /// `fusermount3` refused.
    #[error("fusermount3 refused: {said}")]
    Fusermount {
        /// What it said.
        said: String,
    },
    /// The mountpoint cannot be looked at.
    #[error("{mountpoint}: {errno}")]
    Unreadable {
        /// The directory.
        mountpoint: PathBuf,
        /// Why not.
        errno: Errno,
    },
    /// The mountpoint is a file.
    #[error("{mountpoint} is not a directory: name a directory that is empty")]
    NotDirectory {
        /// What is no directory.
        mountpoint: PathBuf,
    },
    /// The mountpoint has files, which the mount would hide.
    #[error("{mountpoint} is not empty, and its files would be hidden: name a directory that is empty")]
    NotEmpty {
        /// The directory.
        mountpoint: PathBuf,
    },
    /// A mount of ours is there already.
    #[error("{source_name} is mounted at {mountpoint} already: unmount it first with `tidegate umount {mountpoint}`")]
    AlreadyMounted {
        /// The directory.
        mountpoint: PathBuf,
        /// What is mounted there.
        source_name: String,
    },
    /// A mount is there whose server ended.
    #[error(
        "the server of the file system at {mountpoint} has ended: remove the mount with `umount --lazy {mountpoint}`"
    )]
    DeadMount {
        /// The directory.
        mountpoint: PathBuf,
    },
    /// The kernel refused to mount.
    #[error("the kernel refused to mount at {mountpoint}: {errno}")]
    Refused {
        /// The directory.
        mountpoint: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The kernel's FUSE is too old.
    #[error(transparent)]
    TooOld(#[from] TooOld),
    /// The kernel did not begin as the protocol says.
    #[error("the kernel's first request is none of FUSE's: {0}")]
    Protocol(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Nothing is mounted there.
    #[error("nothing is mounted at {mountpoint}")]
    NotMounted {
        /// The directory.
        mountpoint: PathBuf,
    },
    /// Another user mounted it.
    #[error("{mountpoint} was mounted by another user: unmount it as that user, or as root")]
    OfAnotherUser {
        /// The directory.
        mountpoint: PathBuf,
    },
    /// Programs use files of the mount.
    #[error("programs use files below {mountpoint}: end them, or unmount lazily")]
    Busy {
        /// The directory.
        mountpoint: PathBuf,
    },
    /// The kernel refused to unmount.
    #[error("the kernel refused to unmount {mountpoint}: {errno}")]
    UnmountRefused {
        /// The directory.
        mountpoint: PathBuf,
        /// Why.
        errno: Errno,
    },
}

/// Refuses `doing` where no `/proc` is mounted, or that of other processes: without it, open files
/// seem to have no paths, and nothing to be mounted.
///
/// # Errors
/// [`MountError::NoProc`].
pub fn refuse_without_proc(doing: &'static str) -> Result<(), MountError> {
    // No descriptor is opened, as there may be none left.
    if Path::new("/proc/self/fd").is_dir() { Ok(()) } else { Err(MountError::NoProc { doing }) }
}

/// When an unmount takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// At once; refused while programs use files of the mount.
    Now,
    /// For new programs at once, for others when they end.
    Lazily,
}
