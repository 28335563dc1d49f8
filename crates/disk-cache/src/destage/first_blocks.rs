//! The contents of the disk's first blocks, as far as writes and flushes tell: see `open/guard.rs`.

use crate::region_io::Medium;
use tidegate_layout::disk_cache::StartSum;
use tidegate_media::Region;
use tidegate_media::sync::Mutex;

/// What was written to the disk's first blocks.
#[derive(Default)]
pub(crate) struct FirstBlocks {
    /// How many blocks have a checksum that is kept.
    pub(super) blocks: u64,
    pub(super) written: Mutex<Written>,
}

#[derive(Default)]
pub(super) struct Written {
    /// How often each of the blocks was written.
    pub(super) turns: Vec<u64>,
    /// What the disk has taken since the last flush began.
    pub(super) taken: Vec<TakenBlock>,
}

/// A block that the disk has taken.
pub(crate) struct TakenBlock {
    pub(super) lba: u64,
    pub(super) turn: u64,
    pub(super) word: u64,
    /// Flushes of the disk that had failed before.
    pub(super) failures: u64,
}

/// The index of `lba` among the first blocks.
pub(crate) fn place(lba: u64) -> usize {
    usize::try_from(lba).expect("one of the first blocks")
}

/// Stores a word that is durable with this thread's next fence.
pub(crate) fn store<R: Region>(medium: &Medium<R>, at: u64, word: u64) {
    medium.region.store_u64(at, word);
    medium.region.flush(at, size_of::<StartSum>() as u64);
}

impl FirstBlocks {
    /// For a cache that keeps checksums of the disk's first `blocks` blocks.
    pub(crate) fn of(blocks: u64) -> FirstBlocks {
        let turns = (0..blocks).map(|_| 0).collect();
        FirstBlocks { blocks, written: Mutex::new(Written { turns, taken: Vec::new() }) }
    }

    /// What a flush that begins now covers.
    pub(crate) fn take(&self) -> Vec<TakenBlock> {
        match self.blocks {
            0 => Vec::new(),
            _ => std::mem::take(&mut self.written.lock().taken),
        }
    }
}
