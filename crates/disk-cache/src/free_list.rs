//! Blocks and entries that hold nothing.
//!
//! Every block is in one place: named by an entry, here, or in the hands of a writer that took it
//! from here. So is every entry, and there are as many of them as blocks. A writer that holds a
//! block therefore always finds an entry: the blocks that others hold are at least as many as the
//! entries they took.

use tidegate_media::sync::{SpinLock, thread_token};

/// A free entry, and the counter that its second word carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeEntry {
    pub(crate) entry: u32,
    pub(crate) counter: u16,
}

/// Free blocks and entries, dealt out to shards so that threads do not meet.
pub(crate) struct FreeList {
    shards: Box<[Shard]>,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard {
    blocks: SpinLock<Vec<u32>>,
    entries: SpinLock<Vec<FreeEntry>>,
}

const SHARDS: usize = 16;

impl FreeList {
    pub(crate) fn new(blocks: impl Iterator<Item = u32>, entries: impl Iterator<Item = FreeEntry>) -> FreeList {
        let mut lists: Vec<(Vec<u32>, Vec<FreeEntry>)> = (0..SHARDS).map(|_| Default::default()).collect();
        // Neighbours go together: entries of one line into one shard, so that a writer's new
        // entries share lines.
        blocks.for_each(|block| lists[block as usize / 64 % SHARDS].0.push(block));
        entries.for_each(|free| lists[free.entry as usize / 64 % SHARDS].1.push(free));
        let shards = lists.into_iter().map(|(blocks, entries)| Shard::of(blocks, entries)).collect();
        FreeList { shards }
    }

    /// Adds `wanted` blocks to `taken`, or none.
    pub(crate) fn take_blocks(&self, wanted: usize, taken: &mut Vec<u32>) -> bool {
        let before = taken.len();
        for shard in self.near() {
            let mut blocks = shard.blocks.lock();
            let count = blocks.len().min(wanted - (taken.len() - before));
            let rest = blocks.len() - count;
            taken.extend(blocks.drain(rest..).rev());
            if taken.len() - before == wanted {
                return true;
            }
        }
        self.give_blocks(taken.drain(before..));
        false
    }

    /// A block.
    pub(crate) fn take_block(&self) -> Option<u32> {
        self.near().find_map(|shard| shard.blocks.lock().pop())
    }

    /// An entry for a block that the caller has taken.
    pub(crate) fn take_entry(&self) -> FreeEntry {
        loop {
            // One may be on its way from a shard already searched to one not yet searched: look
            // again.
            if let Some(free) = self.near().find_map(|shard| shard.entries.lock().pop()) {
                return free;
            }
        }
    }

    pub(crate) fn give_block(&self, block: u32) {
        self.own().blocks.lock().push(block);
    }

    pub(crate) fn give_blocks(&self, blocks: impl Iterator<Item = u32>) {
        self.own().blocks.lock().extend(blocks);
    }

    pub(crate) fn give_entry(&self, free: FreeEntry) {
        self.own().entries.lock().push(free);
    }

    /// Blocks that are free.
    pub(crate) fn free_blocks(&self) -> usize {
        self.shards.iter().map(|shard| shard.blocks.lock().len()).sum()
    }

    fn own(&self) -> &Shard {
        &self.shards[thread_token() as usize % SHARDS]
    }

    /// Every shard, the calling thread's own first.
    fn near(&self) -> impl Iterator<Item = &Shard> {
        let first = thread_token() as usize;
        (first..first + SHARDS).map(|index| &self.shards[index % SHARDS])
    }
}

impl Shard {
    /// The first to be taken is the last in the list.
    fn of(mut blocks: Vec<u32>, mut entries: Vec<FreeEntry>) -> Shard {
        blocks.reverse();
        entries.reverse();
        Shard { blocks: SpinLock::new(blocks), entries: SpinLock::new(entries) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_none() {
        let entries = (0..200).map(|entry| FreeEntry { entry, counter: 0 });
        let list = FreeList::new(0..200, entries);
        let mut taken = vec![1000];
        assert!(!list.take_blocks(201, &mut taken) && taken == [1000]);
        assert_eq!(list.free_blocks(), 200);
        assert!(list.take_blocks(200, &mut taken));
        taken.sort_unstable();
        assert!(taken.into_iter().eq((0..200).chain([1000])));
        assert_eq!((list.take_block(), list.free_blocks()), (None, 0));
        list.give_block(7);
        assert_eq!(list.take_block(), Some(7));
    }

    #[test]
    fn a_thread_gets_neighbours() {
        let list = FreeList::new(0..0, (0..200).map(|entry| FreeEntry { entry, counter: 0 }));
        let first = list.take_entry().entry;
        assert!((1..64).all(|next| list.take_entry().entry == first + next));
    }
}
