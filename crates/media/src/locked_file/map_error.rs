//! Why a region cannot be created or opened: the failure, its reason, the next step.

use crate::locked_file::lock_holder::LockHolder;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why a region cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// No such file.
    #[error("{path:?} does not exist; create it first, or correct the path")]
    NotFound {
        /// The file asked for.
        path: PathBuf,
    },
    /// A file to be created exists.
    #[error("{path:?} exists already; choose another name, or remove the file if nobody needs it")]
    AlreadyExists {
        /// The file asked for.
        path: PathBuf,
    },
    /// Another handle, of this or another process, has the file open.
    #[error("{path:?} is in use: {holder}; end that use first")]
    InUse {
        /// The file asked for.
        path: PathBuf,
        /// Whose lock it is, or who uses the file without one.
        holder: LockHolder,
    },
    /// The user may not do this.
    #[error("no permission for {path:?}; change its owner or mode, or run as a user who may read and write it")]
    Permission {
        /// The file asked for.
        path: PathBuf,
    },
    /// The file system is full, or the user's quota of it.
    #[error(
        "no space for the {len} bytes of {path:?}; free some, choose a smaller size, or, for a volume, create it sparse"
    )]
    NoSpace {
        /// The file asked for.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
    },
    /// The file system cannot give a file its space in advance.
    #[error(
        "the file system of {path:?} cannot allocate a file in advance; create it elsewhere, or, if it is a volume, sparse"
    )]
    CannotAllocate {
        /// The file asked for.
        path: PathBuf,
    },
    /// The file system is mounted for reading only.
    #[error("{path:?} lies on a file system that is mounted for reading only; mount it writable, or copy the file")]
    ReadOnlyFile {
        /// The file asked for.
        path: PathBuf,
    },
    /// No bytes to map.
    #[error("{path:?} has no bytes; a region needs at least one (create the volume first)")]
    Empty {
        /// The file asked for.
        path: PathBuf,
    },
    /// More bytes than a process or the file system can address.
    #[error(
        "{len} bytes are too many for {path:?}: this system cannot address them in one file; choose a smaller size"
    )]
    TooLarge {
        /// The file asked for.
        path: PathBuf,
        /// The length asked for, in bytes.
        len: u64,
    },
    /// Neither a regular file nor a device-DAX character device.
    #[error("{path:?} is {kind}; name a regular file or a device-DAX character device (/dev/dax…)")]
    NotAFile {
        /// The file asked for.
        path: PathBuf,
        /// What it is, as a phrase.
        kind: &'static str,
    },
    /// The operating system failed otherwise.
    #[error("cannot {action}: {path:?}: {source}")]
    Io {
        /// The file asked for.
        path: PathBuf,
        /// What failed, as a phrase.
        action: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
}

impl MapError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> MapError {
        MapError::Io { path: path.to_owned(), action, source }
    }

    pub(crate) fn not_a_file(path: &Path, kind: FileType) -> MapError {
        let kind = match kind {
            FileType::Directory => "a folder",
            FileType::BlockDevice => "a block device",
            FileType::CharacterDevice => "a character device, but not of device-DAX",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            _ => "no regular file",
        };
        MapError::NotAFile { path: path.to_owned(), kind }
    }

    /// Why `open` failed.
    pub(crate) fn opening(path: &Path, errno: Errno) -> MapError {
        let path = path.to_owned();
        match errno {
            Errno::NOENT | Errno::NOTDIR => MapError::NotFound { path },
            Errno::EXIST => MapError::AlreadyExists { path },
            Errno::ACCESS | Errno::PERM => MapError::Permission { path },
            Errno::ROFS => MapError::ReadOnlyFile { path },
            Errno::NOSPC | Errno::DQUOT => MapError::NoSpace { path, len: 0 },
            Errno::ISDIR => MapError::NotAFile { path, kind: "a folder" },
            Errno::NXIO | Errno::NODEV => MapError::NotAFile { path, kind: "a socket, a pipe or a missing device" },
            errno => MapError::Io { path, action: "open the file", source: errno.into() },
        }
    }
}
