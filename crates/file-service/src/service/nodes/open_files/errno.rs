//! The kernel's numbers for errors.

use rustix::io::Errno;
use tidegate_file_cache::{FileError, Refused};

/// The kernel's number for what went wrong in the cache.
pub(super) fn errno_of(error: &FileError) -> Errno {
    match error {
        FileError::Below(refused) => refused_as(refused),
        FileError::NoRoomForGroup => Errno::NOSPC,
        FileError::Mapped => Errno::TXTBSY,
        FileError::NotMappable => Errno::INVAL,
        FileError::NoRoomForMapping => Errno::NOMEM,
        _ => Errno::IO,
    }
}

/// The kernel's number for what the file below refused.
pub(super) fn refused_as(refused: &Refused) -> Errno {
    Errno::from_raw_os_error(refused.errno)
}
