//! Draining: slots are written to the device below, oldest first in each set.

use crate::cache::WriteCache;
use crate::free_set::Chain;
use crate::set::Position;
use tidegate_media::sync::Ordering;
use tidegate_media::{Durability, Error, Lba, Region, Result};

/// Slots evicted from one set before the next one's turn.
const BURST: u32 = 8;

/// Slots freed together: one compare-and-swap gives them back.
const FREED_TOGETHER: u32 = 8;

/// What a call of [`WriteCache::drain_step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainStep {
    /// Blocks evicted.
    pub evicted: u32,
    /// Whether sets with blocks to evict were seen and left: by the budget, or because another
    /// thread drains them.
    pub more: bool,
}

impl<R: Region> WriteCache<R> {
    /// Evicts up to `budget` blocks, beginning at the set that `cursor` says, which is moved on.
    /// `scratch` holds one block.
    ///
    /// Any number of threads may drain at once. An error is remembered: every later call answers it
    /// too.
    pub fn drain_step(&self, budget: u32, cursor: &mut usize, scratch: &mut [u8]) -> Result<DrainStep> {
        self.check()?;
        let mut progress = DrainStep { evicted: 0, more: false };
        if !self.wants_draining() {
            return Ok(progress);
        }
        let mut freed = Chain::new();
        let sets = self.sets.len();
        let mut passed = 0;
        while passed < sets && progress.evicted < budget {
            let Some(skipped) = self.to_next_used(*cursor, sets - passed) else { break };
            let index = (*cursor + skipped) % sets;
            let burst = BURST.min(budget - progress.evicted);
            match self.sets[index].draining.try_lock() {
                Some(_alone) => progress.evicted += self.evict(index, None, burst, scratch, &mut freed)?,
                None => progress.more = true,
            }
            passed += skipped + 1;
            *cursor = (index + 1) % sets;
        }
        self.give_back(&mut freed);
        progress.more |= self.to_next_used(0, sets).is_some();
        if !progress.more {
            self.stop_draining();
        }
        Ok(progress)
    }

    /// Whether nothing is left to drain; from then on the doorbell is rung when there is. To be
    /// asked just before sleeping.
    pub fn may_sleep(&self) -> bool {
        // SeqCst on both sides: a writer marks its set and then looks here, this thread does it the
        // other way round, so one of the two sees the other.
        self.asleep.store(true, Ordering::SeqCst);
        let nothing = !self.wants_draining() || self.to_next_used(0, self.sets.len()).is_none();
        if !nothing {
            self.asleep.store(false, Ordering::SeqCst);
        }
        nothing
    }

    /// Whoever was told that it may sleep is awake by itself: the doorbell need not be rung.
    pub fn stay_awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Bytes in slots, not yet in the device.
    pub fn bytes_left(&self) -> u64 {
        self.slots_used() * u64::from(self.slots.plan().block_size)
    }

    /// Evicts set `index` up to the place `through`, waiting for whoever drains it now.
    pub(crate) fn evict_through(&self, index: usize, through: Position, scratch: &mut [u8]) -> Result<u32> {
        let _alone = self.sets[index].draining.lock();
        self.evict_alone(index, through, scratch)
    }

    /// Evicts set `index` up to the place `through`, for the thread that has the set's `draining`.
    pub(crate) fn evict_alone(&self, index: usize, through: Position, scratch: &mut [u8]) -> Result<u32> {
        let mut freed = Chain::new();
        let evicted = self.evict(index, Some(through), u32::MAX, scratch, &mut freed);
        self.give_back(&mut freed);
        evicted
    }

    /// Evicts up to `budget` slots of set `index`, none behind `through`. The caller holds the
    /// set's `draining`.
    fn evict(
        &self,
        index: usize,
        through: Option<Position>,
        budget: u32,
        scratch: &mut [u8],
        freed: &mut Chain,
    ) -> Result<u32> {
        let mut evicted = 0;
        let ended = loop {
            if evicted == budget {
                break Ok(evicted);
            }
            match self.evict_head(index, through, scratch, freed) {
                Ok(true) => evicted += 1,
                Ok(false) => break Ok(evicted),
                Err(error) => break Err(error),
            }
        };
        // What went well before a failure counts too.
        self.tally.evicted.fetch_add(u64::from(evicted), Ordering::Relaxed);
        ended
    }

    fn evict_head(
        &self,
        index: usize,
        through: Option<Position>,
        scratch: &mut [u8],
        freed: &mut Chain,
    ) -> Result<bool> {
        let queue = &self.sets[index].queue;
        let Some(slot) = queue.lock().begin_eviction(&self.links, through) else { return Ok(false) };
        if let Err(error) = self.write_back(slot, scratch) {
            queue.lock().abandon_eviction();
            self.give_back(freed);
            return Err(self.fail(error));
        }
        let mut queue = queue.lock();
        // Before anybody can find that the block is not cached and write past the cache: a kill
        // must not find this version after that. Readers who found the slot before see that its
        // version is gone, and look again.
        self.slots.clear(slot);
        if queue.end_eviction(&self.links) {
            self.mark_empty(index);
        }
        drop(queue);
        freed.add(&self.links, slot);
        if freed.len() == FREED_TOGETHER {
            self.give_back(freed);
        }
        Ok(true)
    }

    /// Writes the block of a slot that only this thread may free to the device.
    fn write_back(&self, slot: u32, scratch: &mut [u8]) -> Result<(), Error> {
        let lba = self.slots.lba(slot)?;
        self.slots.copy_out(slot, scratch)?;
        self.device.write(Lba(lba), scratch, Durability::Volatile)
    }
}
