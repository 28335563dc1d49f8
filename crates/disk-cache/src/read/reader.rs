//! The state that reads share: the filter for blocks that are read, and the blocks that a restart
//! forgets.

use crate::counters::UnlockedCounts;
use crate::read::filter::{Filter, RunLength};
use tidegate_media::LbaRange;
use tidegate_media::sync::{AtomicU64, Ordering};

/// What becomes of the blocks that reads brought in when the cache is opened anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// They are cached still: each is streamed to the memory, and has an entry there.
    #[default]
    Kept,
    /// They are forgotten, unless they were written since: no line is flushed for a read.
    Forgotten,
}

/// The state that reads share.
pub(crate) struct Reader {
    filter: Filter,
    pub(super) reads: Reads,
    /// Which block of the disk each entry is held for, if the medium does not tell.
    volatile: Box<[AtomicU64]>,
}

/// No block of a disk has this number.
const NONE: u64 = u64::MAX;

impl Reader {
    /// Of a cache of `blocks` blocks.
    pub(crate) fn new(filter: Filter, reads: Reads, blocks: u32) -> Reader {
        let entries = match reads {
            Reads::Kept => 0,
            Reads::Forgotten => blocks,
        };
        Reader { filter, reads, volatile: (0..entries).map(|_| AtomicU64::new(NONE)).collect() }
    }

    /// What the read of `range` is part of. Every read has to be told, cached or not.
    pub(crate) fn run(&self, range: LbaRange) -> RunLength {
        self.filter.run(range)
    }

    /// Whether block `lba`, which was missed by a read that is part of `run`, comes in.
    pub(super) fn lets_in(&self, lba: u64, run: RunLength, tally: &UnlockedCounts) -> bool {
        self.filter.lets_in(lba, run, tally)
    }

    /// What `entry` is held for. It may be over when it is told: whoever acts on it looks again
    /// with the stripe locked.
    pub(crate) fn lba_of(&self, entry: u32) -> Option<u64> {
        // Relaxed, here and below: nothing but the number is told.
        let lba = self.volatile.get(entry as usize)?.load(Ordering::Relaxed);
        (lba != NONE).then_some(lba)
    }

    pub(super) fn hold(&self, entry: u32, lba: u64) {
        self.volatile[entry as usize].store(lba, Ordering::Relaxed);
    }

    pub(super) fn let_go(&self, entry: u32) {
        self.hold(entry, NONE);
    }
}
