//! Why a log cannot be made, opened or used.

use std::fmt;
use tidegate_layout::Broken;
use tidegate_media::{Corrupt, Error, Poison, Sealed};

/// Bytes of the log that are damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The first of them, as an offset in the log.
    pub from: u64,
    /// One past the last of them.
    pub to: u64,
    /// What was found on the region.
    pub found: DamageFound,
}

/// What was found in the place of bytes of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageFound {
    /// The memory cannot give bytes back.
    Unreadable(Poison),
    /// Bytes break a rule of the format.
    Broken(Corrupt),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}..{} of the log are damaged: ", self.from, self.to)?;
        match &self.found {
            DamageFound::Unreadable(poison) => poison.fmt(f),
            DamageFound::Broken(corrupt) => corrupt.fmt(f),
        }
    }
}

/// Why a log cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The region, the chunks or what lies below have no fit size.
    #[error("a log cannot have this layout: {0}")]
    Layout(#[from] Broken),
    /// A chunk is not a number of whole blocks below.
    #[error("chunks of {chunk_bytes} bytes do not hold whole blocks of {block_size} bytes")]
    Blocks {
        /// Bytes in a chunk.
        chunk_bytes: u64,
        /// Bytes in a block below.
        block_size: u32,
    },
    /// The region lost a store.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}

/// Why a log cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogOpenError {
    /// The region does not claim to hold a log.
    #[error("the region holds no append-only log: create one, or name the region that has it")]
    NoLog,
    /// Both copies of the superblock are damaged.
    #[error("both copies of the log's superblock are damaged: {0}")]
    Superblock(Corrupt),
    /// The region is shorter than the log.
    #[error("the log needs a region of {needs} bytes, and this one has {has}")]
    Region {
        /// Bytes that the log needs.
        needs: u64,
        /// Bytes of the region.
        has: u64,
    },
    /// What lies below is smaller than it was, or has other blocks.
    #[error("the log needs {needs} bytes below, in whole blocks, and there are {has} in blocks of {block_size}")]
    Below {
        /// Bytes that the log needs.
        needs: u64,
        /// Bytes that are there.
        has: u64,
        /// Bytes in a block.
        block_size: u32,
    },
    /// Bytes of the log are damaged. [`crate::OnDamage::ReadOnly`] gives the others.
    #[error("{0}; open the log for reading only to save the other bytes")]
    Damaged(Damage),
    /// The log ends before the place where it begins.
    #[error("the log begins at byte {begin} and ends at byte {end}: heads of its chunks were lost")]
    EndsBeforeBegin {
        /// Where it begins.
        begin: u64,
        /// Where it ends.
        end: u64,
    },
    /// The region failed meanwhile.
    #[error(transparent)]
    Medium(#[from] Error),
}

/// Why a log does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The window has no room: write chunks back, then try again.
    #[error("the log's window has room for {room} bytes; write back what is synced, then append again")]
    Full {
        /// Bytes that it has room for.
        room: u64,
    },
    /// More bytes than the window has in all.
    #[error("{len} bytes are more than the {window} bytes of the log's window; append them in parts")]
    TooLong {
        /// How many they are.
        len: u64,
        /// Bytes of the window.
        window: u64,
    },
    /// What lies below is full: the log from its begin on takes all of it.
    #[error("what lies below the log has no room beyond {chunks} chunks; drop what is no longer needed")]
    BelowFull {
        /// Chunks that it has room for.
        chunks: u64,
    },
    /// What lies below refuses. What is synced stays in the window; the step may be tried again.
    #[error("what lies below the log refuses: {0}; nothing is lost, and the log goes on once it takes chunks again")]
    Below(Error),
    /// Bytes that were dropped.
    #[error("the log begins at byte {begin}: what lay before it was dropped")]
    Dropped {
        /// Where the log begins.
        begin: u64,
    },
    /// Bytes that are not durable, or were never appended.
    #[error("byte {at} is asked for, and the log is durable up to byte {durable}")]
    Beyond {
        /// The byte asked for.
        at: u64,
        /// Where the durable bytes end.
        durable: u64,
    },
    /// Bytes of the log are damaged.
    #[error("{0}")]
    Damaged(Damage),
    /// An earlier store was lost.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}
