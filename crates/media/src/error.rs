//! Errors that say whose fault it is: the caller's, the medium's, or the bytes'.

use rustix::io::Errno;
use std::fmt;

/// What a region or a device answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed, sorted by whose fault it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller asked for what the device does not have or does not allow. Nothing was changed.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The medium cannot give these bytes back. Other bytes are unharmed.
    #[error(transparent)]
    Media(#[from] Poison),
    /// The file system that the device lies on has no room for these bytes. Other bytes are
    /// unharmed, and these may be written when there is room.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Bytes on the medium break a rule of their format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// An earlier store or flush failed: the handle takes no more writes until it is opened anew.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}

/// A mistake of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Blocks past the end of the device.
    #[error("blocks {first}..{end} reach past the end of a device of {blocks} blocks")]
    OutOfRange {
        /// First block asked for.
        first: u64,
        /// One past the last block asked for.
        end: u64,
        /// Blocks the device has.
        blocks: u64,
    },
    /// A buffer that does not hold whole blocks.
    #[error("a buffer of {len} bytes does not hold whole blocks of {block_size} bytes")]
    PartialBlock {
        /// Bytes in the buffer.
        len: usize,
        /// Bytes in a block.
        block_size: u32,
    },
    /// A write to a device opened for reading only.
    #[error("the device is open for reading only")]
    ReadOnly,
    /// Blocks that the device takes later: neither it nor they are at fault, and others may be
    /// written meanwhile.
    #[error("the device does not take these blocks now")]
    NotNow,
}

/// Bytes the medium cannot give back (an uncorrectable memory error, a file cut short).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the medium cannot give back {len} bytes at offset {at}")]
pub struct Poison {
    /// Offset of the failed access in the region, in bytes.
    pub at: u64,
    /// Length of the failed access, in bytes.
    pub len: u64,
}

/// Bytes that found no room: the file system, or what its user may have of it, is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its file system has no room for {len} bytes at offset {at}")]
pub struct NoRoom {
    /// Offset of the bytes, in bytes.
    pub at: u64,
    /// How many there are.
    pub len: u64,
}

impl Error {
    /// Whether nothing is wrong but that a file system is full, or what its user may have of it.
    pub fn is_for_want_of_room(&self) -> bool {
        match self {
            Error::NoRoom(_) | Error::Sealed(Sealed::NoRoom { .. }) => true,
            Error::Sealed(Sealed::SyncFailed { errno }) => tells_of_no_room(Errno::from_raw_os_error(*errno)),
            Error::Misuse(_) | Error::Media(_) | Error::Corrupt(_) | Error::Sealed(_) => false,
        }
    }
}

/// Whether the system means by `errno` that there is no room, or none for this process.
pub(crate) fn tells_of_no_room(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
}

/// A rule of a format that bytes on the medium break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The rule, as a sentence that is false of these bytes.
    pub rule: &'static str,
    /// Where, as an offset in the region, in bytes.
    pub at: u64,
    /// What was found there instead.
    pub found: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken rule at offset {:#x}: {} (found {})", self.at, self.rule, self.found)
    }
}

impl std::error::Error for Corrupt {}

/// The handle is sealed: a store, a fence or a flush failed, and what it covered may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Sealed {
    /// A store to the region found no room: its file is sparse, and the file system is full.
    #[error(
        "a store at offset {at} was lost, as the file system of the region has no room; open the volume anew when there is some"
    )]
    NoRoom {
        /// Offset of the lost store in the region, in bytes.
        at: u64,
    },
    /// A store to the region was refused by the medium.
    #[error("a store at offset {at} was lost (bad memory, or a file cut short); open the volume anew")]
    StoreLost {
        /// Offset of the lost store in the region, in bytes.
        at: u64,
    },
    /// The operating system could not make the region's file durable.
    #[error(
        "the file could not be made durable (errno {errno}); what was written since the last good flush may be lost; open the volume anew"
    )]
    SyncFailed {
        /// The error number of the failed `fdatasync`.
        errno: i32,
    },
}

impl Sealed {
    /// That the operating system answered `error` when the region's file was to be made durable.
    pub fn by_failed_sync(error: &std::io::Error) -> Sealed {
        let errno = error.raw_os_error().filter(|errno| *errno != 0);
        Sealed::SyncFailed { errno: errno.unwrap_or(Errno::IO.raw_os_error()) }
    }
}
