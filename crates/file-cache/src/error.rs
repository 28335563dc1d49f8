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
    /// The file below was not found since an earlier process left the file: recover the pool.
    #[error("the file below was not found yet: recover the pool")]
    Detached,
    /// The file below was found, so there is nothing to salvage.
    #[error("the file below was found: nothing is to be salvaged")]
    Attached,
    /// The file below is another one than an earlier process left.
    #[error("another file is in the place of the one that was cached")]
    Replaced,
    /// The pool has newer bytes of the file, and somebody else changed the file since: it is not
    /// written over, and the pool retains them.
    #[error("the file was changed by others since the pool got newer bytes of it: salvage or discard these")]
    Changed,
    /// The pool has no room for a group of writes, of which nothing is written: `ENOSPC`.
    #[error("the pool has no room for the group of writes: commit smaller groups, or use a larger pool")]
    NoRoomForGroup,
    /// Programs have pages of the file mapped, which stay where they are: `ETXTBSY`.
    #[error("a program has pages of the file mapped directly: end the mapping first")]
    Mapped,
    /// Not whole pages within the file: `EINVAL`.
    #[error("a direct mapping takes whole pages that lie within the file")]
    NotMappable,
    /// The pool has no room for the pages of a mapping, of which none is mapped: `ENOMEM`.
    #[error("the pool has no room for the pages of the mapping: map less, or use a larger pool")]
    NoRoomForMapping,
    /// The number is no open file's.
    #[error("no file has the number {0}")]
    NotOpen(u32),
}

impl From<Sealed> for FileError {
    fn from(sealed: Sealed) -> FileError {
        FileError::Memory(sealed.into())
    }
}
