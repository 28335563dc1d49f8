//! Writes: into a slot, or past the cache to the device.

use crate::cache::WriteCache;
use crate::free_set::Chain;
use crate::set::{Linked, Position, Queue};
use tidegate_media::sync::{MutexGuard, Ordering};
use tidegate_media::{Durability, Lba, LbaRange, Poison, Region, Result, prefetch_for_store};

impl<R: Region> WriteCache<R> {
    pub(crate) fn write_block(&self, lba: u64, data: &[u8]) -> Result<()> {
        let slot = if self.turns_away() { None } else { self.free.pop(&self.links) };
        match slot {
            Some(slot) => self.write_cached(slot, lba, data),
            None if self.options.bypass => {
                self.out_of_slots();
                self.write_without_slot(lba, data)
            }
            None => {
                let slot = self.await_slot()?;
                self.write_cached(slot, lba, data)
            }
        }
    }

    /// Conditional bypass. A block that would have to wait for an eviction goes into a slot that
    /// was kept out of use; the next one that comes free is kept in its stead.
    fn write_without_slot(&self, lba: u64, data: &[u8]) -> Result<()> {
        if !self.turns_away()
            && self.would_wait(lba)?
            && let Some(slot) = self.borrow_withheld()
        {
            return self.write_cached(slot, lba, data);
        }
        self.tally.count_bypassed();
        self.write_past(lba, data, Durability::Volatile)
    }

    /// Whether a write past the cache has to wait for an eviction now: of an older version of its
    /// block, or of whatever somebody is evicting from the same set. Asleep it would wait for
    /// longer than that takes.
    fn would_wait(&self, lba: u64) -> Result<bool> {
        let index = self.index_of(lba);
        if !self.is_used(index) {
            return Ok(false);
        }
        if self.sets[index].draining.try_lock().is_none() {
            return Ok(true);
        }
        Ok(self.last_within(index, LbaRange { first: Lba(lba), blocks: 1 })?.is_some())
    }

    fn write_cached(&self, slot: u32, lba: u64, data: &[u8]) -> Result<()> {
        let index = self.index_of(lba);
        // Whoever drains had these lines last. They come while the block is copied.
        prefetch_for_store(&self.sets[index]);
        prefetch_for_store(&self.used[index / 64]);
        self.links.prefetch_for_store(slot);
        if let Err(sealed) = self.slots.fill(slot, lba, data) {
            // The slot is given up with its memory.
            return Err(self.fail(sealed.into()));
        }
        let mut queue = self.sets[index].queue.lock();
        let old = self.newest(&queue, lba)?;
        let version = queue.next_version(self.sets.len() as u64);
        self.slots.publish(slot, version);
        match queue.link(&self.links, slot, old) {
            Linked::First => {
                self.mark_used(index);
                drop(queue);
                if self.wants_draining() {
                    self.ring_if_asleep();
                }
            }
            Linked::Behind => {}
            Linked::InPlaceOf(old) => {
                // Before the new one can be evicted and cleared: a kill must never find the old one
                // alone.
                self.slots.clear(old);
                drop(queue);
                self.tally.replaced.fetch_add(1, Ordering::Relaxed);
                let mut freed = Chain::new();
                freed.add(&self.links, old);
                self.give_back(&mut freed);
            }
        }
        Ok(())
    }

    /// The free set is empty: without eager eviction this is when it begins.
    fn out_of_slots(&self) {
        if !self.wants_draining() {
            self.draining.store(true, Ordering::SeqCst);
            self.ring_if_asleep();
        }
    }

    /// Evicts until a slot is free: without bypass, writers wait like this.
    fn await_slot(&self) -> Result<u32> {
        self.stalled(|| self.evict_for_slot())
    }

    /// Does what a request cannot go on without, and counts it.
    fn stalled<T>(&self, work: impl FnOnce() -> T) -> T {
        self.tally.stalled.fetch_add(1, Ordering::Relaxed);
        let clock = *self.clock.lock();
        let Some(now_ns) = clock else { return work() };
        let began = now_ns();
        let done = work();
        self.tally.stalled_ns.fetch_add(now_ns().saturating_sub(began), Ordering::Relaxed);
        done
    }

    fn evict_for_slot(&self) -> Result<u32> {
        let mut scratch = self.scratch();
        let mut cursor = 0;
        loop {
            if let Some(slot) = self.free.pop(&self.links) {
                return Ok(slot);
            }
            // Each time: another thread may have found everything drained since, and ended the
            // draining.
            self.out_of_slots();
            let progress = self.drain_step(1, &mut cursor, &mut scratch)?;
            if progress.evicted == 0 {
                tidegate_media::sync::yield_now();
            }
        }
    }

    /// Writes blocks straight to the device, after what the cache holds of them.
    pub(crate) fn write_past(&self, lba: u64, data: &[u8], durability: Durability) -> Result<()> {
        let blocks = data.len() as u64 / u64::from(self.geometry.block_size);
        let range = LbaRange { first: Lba(lba), blocks };
        self.durably(durability, |durability| self.past_cache(range, || self.device.write(Lba(lba), data, durability)))
    }

    /// Does `act` with what is asked of it. On a device that has a volatile cache, a write with FUA
    /// is a plain one and a flush: if it cannot be made durable, what was evicted of the same
    /// blocks before may be lost with it, and of flushes alone everybody learns whether one failed.
    pub(crate) fn durably(&self, durability: Durability, act: impl FnOnce(Durability) -> Result<()>) -> Result<()> {
        if durability == Durability::Volatile || !self.device.geometry().volatile_cache {
            return act(durability);
        }
        act(Durability::Volatile)?;
        self.flush_device()
    }

    pub(crate) fn flush_device(&self) -> Result<()> {
        self.flushes.cover(|| self.device.flush())
    }

    /// Evicts every slot that holds a block of `range` now, and does `act`. No slot of their sets
    /// is evicted meanwhile: one that is written at the same time would be read, replaced in the
    /// device by `act`, and vanish.
    pub(crate) fn past_cache(&self, range: LbaRange, act: impl FnOnce() -> Result<()>) -> Result<()> {
        if range.blocks == 1 {
            let index = self.index_of(range.first.0);
            let _alone = self.sets[index].draining.lock();
            self.evict_within(index, range)?;
            return act();
        }
        let sets = self.sets_of(range);
        // Ascending, as whoever holds several takes them.
        let _alone: Vec<MutexGuard<'_, ()>> = sets.iter().map(|index| self.sets[*index].draining.lock()).collect();
        sets.iter().try_for_each(|index| self.evict_within(*index, range))?;
        act()
    }

    /// The sets of the blocks of `range`, each once, ascending.
    fn sets_of(&self, range: LbaRange) -> Vec<usize> {
        if range.blocks >= self.sets.len() as u64 {
            return (0..self.sets.len()).collect();
        }
        let mut sets: Vec<usize> = range.iter().map(|lba| self.index_of(lba.0)).collect();
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    /// Evicts every slot of set `index` that holds a block of `range` now. The caller holds the
    /// set's `draining`.
    fn evict_within(&self, index: usize, range: LbaRange) -> Result<()> {
        if !self.is_used(index) {
            return Ok(());
        }
        let Some(through) = self.last_within(index, range)? else { return Ok(()) };
        self.stalled(|| self.evict_alone(index, through, &mut self.scratch()))?;
        Ok(())
    }

    /// The place of the last slot of set `index` that holds a block of `range`.
    fn last_within(&self, index: usize, range: LbaRange) -> Result<Option<Position>, Poison> {
        let queue = self.sets[index].queue.lock();
        let mut last = None;
        for slot in queue.slots(&self.links) {
            if (range.first.0..range.end()).contains(&self.slots.lba(slot)?) {
                last = Some(Queue::place(&self.links, slot));
            }
        }
        Ok(last)
    }
}
