//! Blocks that reads brought in and that a restart forgets: their entries stay free, and no word on
//! the medium tells of them.
//!
//! The data of such a block is stored and not flushed, into a block that is free for good: any part
//! of every pending word may arrive, and has no meaning. So no cut can show it, and giving it up
//! does not change the medium: block and entry are free again at once. A commit over it is one of a
//! block that is not cached, with the entry that it holds: that one is free, so its first word is
//! not durable either.
//!
//! When the block is streamed to later, by any core, words of the forgotten data may still be
//! pending. They are older than the stream, so none of them can come after it. The other way round,
//! a stream that was never fenced, as that of a commit that met a conflict, cannot come over a
//! later store in its place: the lock under which the block is given back waits for it.

use crate::cache::DiskCache;
use crate::commit::Write;
use crate::free_list::FreeEntry;
use crate::index::{BlockState, Cached, Index, IndexStripe};
use crate::read::reader::Reads;
use tidegate_layout::disk_cache::BlockSum;
use tidegate_media::Region;

impl<R: Region> DiskCache<R> {
    /// What becomes of blocks that reads brought in.
    pub fn reads(&self) -> Reads {
        self.reader.reads
    }

    /// Stores each of `blocks_read` into the block of the same place in `blocks`, with its sum, for
    /// this process alone.
    pub(crate) fn store_all<'a>(&self, blocks_read: impl Iterator<Item = Write<'a>>, blocks: &[u32]) {
        for ((lba, data), block) in blocks_read.zip(blocks) {
            self.medium.store_block(*block, data);
            if let Some(at) = self.medium.plan.sum_at(*block) {
                self.medium.region.store_u64(at, BlockSum::word_of(lba, data));
            }
        }
    }

    /// Lets reads find `block`, which holds block `lba` of the disk for this process alone.
    pub(crate) fn hold(&self, stripe: &mut IndexStripe, lba: u64, block: u32) {
        let FreeEntry { entry, counter } = self.table.free_list.take_entry();
        self.reader.hold(entry, lba);
        let (state, side) = (BlockState::Volatile, stripe.side());
        self.table.index.insert(stripe, lba, Cached { entry, block, counter, state, named: false, side });
        stripe.counts.fills += 1;
    }

    /// Forgets block `lba`, which is about to be committed. Its entry is the caller's, and its
    /// block, which nothing names.
    pub(crate) fn take_over(&self, stripe: &mut IndexStripe, lba: u64, volatile: Cached) -> FreeEntry {
        self.table.index.remove_overwritten(stripe, lba);
        self.let_go(volatile)
    }

    /// Forgets block `lba`, if `entry` is held for it, and makes its block and its entry free at
    /// once.
    pub(crate) fn forget(&self, stripe: &mut IndexStripe, lba: u64, entry: u32) -> bool {
        let cached = stripe.get(lba).filter(|cached| cached.entry == entry);
        let Some(volatile) = cached.filter(|cached| cached.state == BlockState::Volatile) else { return false };
        Index::remove_volatile(stripe, lba);
        // The entry first: whoever takes the block finds one.
        self.table.free_list.give_entry(self.let_go(volatile));
        self.table.free_list.give_block(volatile.block);
        true
    }

    fn let_go(&self, volatile: Cached) -> FreeEntry {
        self.reader.let_go(volatile.entry);
        FreeEntry { entry: volatile.entry, counter: volatile.counter }
    }
}
