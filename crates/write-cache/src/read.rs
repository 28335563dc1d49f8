//! Reads: a block comes from its newest slot, or from the device.

use crate::cache::WriteCache;
use crate::set::Queue;
use tidegate_media::sync::Ordering;
use tidegate_media::{Lba, LbaRange, Poison, Region, Result};

impl<R: Region> WriteCache<R> {
    /// The newest slot of `queue` that holds block `lba`.
    pub(crate) fn newest(&self, queue: &Queue, lba: u64) -> Result<Option<u32>, Poison> {
        let mut newest = None;
        for slot in queue.slots(&self.links) {
            if self.slots.lba(slot)? == lba {
                newest = Some(slot);
            }
        }
        Ok(newest)
    }

    /// Copies block `lba` out of its slot, if it is in one.
    pub(crate) fn read_cached(&self, lba: u64, out: &mut [u8]) -> Result<bool, Poison> {
        let index = self.index_of(lba);
        while self.is_used(index) {
            let mut queue = self.sets[index].queue.lock();
            let Some(slot) = self.newest(&queue, lba)? else { break };
            let version = self.slots.version(slot)?;
            queue.read_hits += 1;
            drop(queue);
            self.slots.copy_out(slot, out)?;
            // The load is not moved before the copy: `copy_out` ends with a routine that the
            // compiler does not see into, and loads of one thread stay in order (on processors
            // where they do not, the fence keeps them so).
            tidegate_media::sync::fence(Ordering::Acquire);
            // A linked slot shows `FREE` if the memory lost the store of its version. Every fill
            // fails from then on, so no other block comes into the slot while this one is copied.
            if self.slots.version(slot)? == version {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The lowest block of `range` that a slot holds.
    pub(crate) fn first_cached(&self, range: LbaRange) -> Result<Option<u64>, Poison> {
        let mut first = None;
        for (index, set) in self.sets.iter().enumerate() {
            if self.is_used(index) {
                let queue = set.queue.lock();
                for slot in queue.slots(&self.links) {
                    let lba = self.slots.lba(slot)?;
                    if (range.first.0..range.end()).contains(&lba) {
                        first = Some(first.map_or(lba, |first: u64| first.min(lba)));
                    }
                }
            }
        }
        Ok(first)
    }

    /// Reads the blocks of `out` from the device; `out` begins `offset` bytes into `range`.
    pub(crate) fn read_below(&self, range: LbaRange, out: &mut [u8], offset: usize) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        self.device.read(Lba(range.first.0 + (offset / self.block_bytes()) as u64), out)
    }
}
