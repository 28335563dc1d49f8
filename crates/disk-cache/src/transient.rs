//! Blocks that reads brought in and that a restart forgets: their entries stay free, and nothing on the medium tells of them.
//!
//! The data of such a block is stored and not flushed, into a block that is free for good: of every pending word any part may arrive, and means
//! nothing. So no cut can show it, and giving it up changes nothing on the medium: block and entry are free again at once. A commit over
//! it is one of a block that is not cached, with the entry that it holds: that one is free, so its first word is not durable either.
//!
//! When the block is streamed to later, by whatever core, words of the forgotten data may still be pending. They are older than the stream, so none of
//! them can come after it.
//! The other way round, a stream that was never fenced, as that of a commit that met a conflict, cannot come over what is stored in its place later: the
//! lock under which the block is given back waits for it.

use crate::cache::DiskCache;
use crate::commit::Write;
use crate::index::{Cached, Index, State, Stripe};
use crate::pool::FreeEntry;
use tidegate_layout::disk_cache::BlockSum;
use tidegate_media::Region;
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

/// Which block of the disk each entry is held for, if the medium does not tell.
pub(crate) struct Transients(Box<[AtomicU64]>);

/// No block of a disk has this number.
const NONE: u64 = u64::MAX;

impl Transients {
    /// Of a cache of `blocks` blocks.
    pub(crate) fn new(reads: Reads, blocks: u32) -> Transients {
        let entries = match reads {
            Reads::Kept => 0,
            Reads::Forgotten => blocks,
        };
        Transients((0..entries).map(|_| AtomicU64::new(NONE)).collect())
    }

    /// What `entry` is held for. It may be over when it is told: whoever acts on it looks again with the stripe locked.
    pub(crate) fn lba_of(&self, entry: u32) -> Option<u64> {
        // Relaxed, here and below: nothing but the number is told.
        let lba = self.0.get(entry as usize)?.load(Ordering::Relaxed);
        (lba != NONE).then_some(lba)
    }

    fn hold(&self, entry: u32, lba: u64) {
        self.0[entry as usize].store(lba, Ordering::Relaxed);
    }
}

impl<R: Region> DiskCache<R> {
    /// What becomes of blocks that reads brought in.
    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// Stores each of `blocks_read` into the block of the same place in `blocks`, with its sum, for this process alone.
    pub(crate) fn store_all<'a>(&self, blocks_read: impl Iterator<Item = Write<'a>>, blocks: &[u32]) {
        for ((lba, data), block) in blocks_read.zip(blocks) {
            self.medium.store_block(*block, data);
            if let Some(at) = self.medium.plan.sum_at(*block) {
                self.medium.region.store_u64(at, BlockSum::word_of(lba, data));
            }
        }
    }

    /// Lets reads find `block`, which holds block `lba` of the disk for this process alone.
    pub(crate) fn hold(&self, stripe: &mut Stripe, lba: u64, block: u32) {
        let FreeEntry { entry, counter } = self.pool.take_entry();
        self.transients.hold(entry, lba);
        let (state, side) = (State::Transient, stripe.side());
        self.index.insert(stripe, lba, Cached { entry, block, counter, state, named: false, side });
        stripe.counts.fills += 1;
    }

    /// Forgets block `lba`, which is about to be committed. Its entry is the caller's, and its block, which nothing names.
    pub(crate) fn take_over(&self, stripe: &mut Stripe, lba: u64, transient: Cached) -> FreeEntry {
        self.index.remove_overwritten(stripe, lba);
        self.let_go(transient)
    }

    /// Forgets block `lba`, if `entry` is held for it, and makes its block and its entry free at once.
    pub(crate) fn forget(&self, stripe: &mut Stripe, lba: u64, entry: u32) -> bool {
        let cached = stripe.get(lba).filter(|cached| cached.entry == entry);
        let Some(transient) = cached.filter(|cached| cached.state == State::Transient) else { return false };
        Index::remove_transient(stripe, lba);
        // The entry first: whoever takes the block finds one.
        self.pool.give_entry(self.let_go(transient));
        self.pool.give_block(transient.block);
        true
    }

    fn let_go(&self, transient: Cached) -> FreeEntry {
        self.transients.hold(transient.entry, NONE);
        FreeEntry { entry: transient.entry, counter: transient.counter }
    }
}
