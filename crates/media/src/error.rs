//! Errors that say whose fault it is: the caller's, the medium's, or the bytes'.

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
    /// Blocks that the device takes later: neither it nor they are at fault, and others may be written meanwhile.
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
    /// A store to the region was refused by the medium.
    #[error(
        "a store at offset {at} was lost (bad memory, a file cut short, or a full file system); open the volume anew"
    )]
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
