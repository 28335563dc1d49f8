//! The errors of a cache.

use crate::below::Refused;
use tidegate_media::{Error, Sealed};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file below refused: the program gets this errno.
    #[error(transparent)]
    Below(#[from] Refused),
    /// The persistent memory or the shared memory failed: `EIO`.
    #[error(transparent)]
    Memory(#[from] Error),
    /// More files are open than the lane has records for: the file goes past the cache.
    #[error("the lane has no record for one more file")]
    TooManyFiles,
    /// The path hint is longer than a record takes: the file goes past the cache.
    #[error("a path of {0} bytes does not fit into a record")]
    PathTooLong(usize),
    /// The lane has counted 2^43 commits: what it holds can be recovered, and the pool has to be
    /// laid out anew.
    #[error("the lane has used up its versions: recover it, and format the pool anew")]
    Worn,
    /// The number is no open file's.
    #[error("no file has the number {0}")]
    NotOpen(u32),
}

impl From<Sealed> for FileError {
    fn from(sealed: Sealed) -> FileError {
        FileError::Memory(sealed.into())
    }
}
