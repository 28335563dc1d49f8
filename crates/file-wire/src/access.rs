//! Records of accesses, which programs store to chunks of a file as they make them.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Names in the environment the file to which programs store their accesses.
pub const TRACE: &std::ffi::CStr = c"TIDEGATE_TRACE";

/// Records that a process takes the room for at a time: whole pages. Those that it has not filled
/// are all zero.
pub const CHUNK_RECORDS: usize = 4096;

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// It wrote, and what it wrote was durable when the call returned (`O_DSYNC`).
    SyncWrite,
    /// It synced the file: everything that was written to it before is durable.
    Sync,
}

impl AccessKind {
    /// The word that says so in a record.
    pub fn word(self) -> u32 {
        match self {
            AccessKind::Read => 1,
            AccessKind::Write => 2,
            AccessKind::SyncWrite => 3,
            AccessKind::Sync => 4,
        }
    }

    /// What a word says.
    pub fn of(word: u32) -> Option<AccessKind> {
        let all = [AccessKind::Read, AccessKind::Write, AccessKind::SyncWrite, AccessKind::Sync];
        all.into_iter().find(|kind| kind.word() == word)
    }
}

/// One access that was carried out.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AccessRecord {
    /// When it had returned, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: U64,
    /// The program context.
    pub context: U64,
    /// The file's device.
    pub device: U64,
    /// The file's inode.
    pub inode: U64,
    /// Offset of the first byte.
    pub offset: U64,
    /// Bytes that were read or written.
    pub bytes: U32,
    /// Word of the [`AccessKind`], stored last; 0: there is no record here.
    pub kind: U32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_no_kind_is_none() {
        for kind in [AccessKind::Read, AccessKind::Write, AccessKind::SyncWrite, AccessKind::Sync] {
            assert_eq!(AccessKind::of(kind.word()), Some(kind));
        }
        assert_eq!([0, 5, u32::MAX].map(AccessKind::of), [None; 3]);
        assert_eq!(size_of::<AccessRecord>(), 48);
    }
}
