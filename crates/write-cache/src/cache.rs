//! The device: reads, writes and flushes through the slots.

use crate::counters::Counters;
use crate::drain::Doorbell;
use crate::free_set::{Chain, FreeSet};
use crate::options::{CreateError, Options};
use crate::set::{Linked, Links, Position, Queue, Set};
use crate::slots::Slots;
use crate::tally::Tally;
use std::sync::Arc;
use tidegate_layout::write_cache::{CacheHead, SlotPlan};
use tidegate_media::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use tidegate_media::{
    BlockDevice, Durability, Error, Extent, ExtentKind, Flushes, Geometry, Lba, LbaRange, Poison, Region, Result,
    prefetch_for_store,
};
use zerocopy::IntoBytes;

/// Slots for each set: with more sets queues are shorter, and each costs a cache line.
const SLOTS_PER_SET: u32 = 32;

/// A block device behind a transit cache. See the crate's preamble.
pub struct WriteCache<R> {
    pub(crate) slots: Slots<R>,
    pub(crate) device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    options: Options,
    pub(crate) sets: Box<[Set]>,
    /// A bit for each set: whether its queue holds a slot. Changed under the queue's lock.
    used: Box<[AtomicU64]>,
    pub(crate) links: Links,
    free: FreeSet,
    withheld: Withheld,
    /// Whether whoever drains sleeps and wants the doorbell rung.
    pub(crate) asleep: AtomicBool,
    doorbell: Mutex<Option<Box<dyn Doorbell>>>,
    /// Nanoseconds, for whoever wants stalls timed.
    clock: Mutex<Option<fn() -> u64>>,
    /// Without eager eviction: whether it is time to evict.
    draining: AtomicBool,
    /// Whether blocks go past the cache although slots are free.
    turned_away: AtomicBool,
    flushes: Flushes,
    pub(crate) tally: Tally,
}

/// Slots kept out of use, so that what is in use can be drained in time.
#[repr(align(128))]
struct Withheld {
    slots: Mutex<Chain>,
    /// Slots still to be kept out of use, once they are free.
    wanted: AtomicU32,
    limit: AtomicU32,
}

impl<R: Region> WriteCache<R> {
    /// A cache in front of `device`, with its slots in `region`, whose contents are given up: what an earlier process left there has
    /// been [completed](crate::complete). The region may be larger than the slots.
    pub fn create(region: R, device: Arc<dyn BlockDevice>, options: Options) -> Result<WriteCache<R>, CreateError> {
        let geometry = device.geometry();
        let plan = SlotPlan { slots: options.slots, block_size: geometry.block_size };
        if options.slots == 0 {
            return Err(CreateError::NoSlots);
        }
        if plan.bytes() > region.len() {
            return Err(CreateError::TooSmall { slots: options.slots, needed: plan.bytes(), len: region.len() });
        }
        let slots = Slots::new(region, plan, options.fill);
        let head = CacheHead::new(options.volume, geometry.block_size, geometry.blocks, options.slots);
        // First an earlier head stops to count: of two slots for one block, the newer might be cleared, and after a kill the older one
        // would be completed once more. Only a head that follows cleared slots counts again, and its first word makes it so. No fence stands
        // between these: only a kill can come between, and a processor finishes the stores before it in their order.
        slots.region().store_u64(0, 0);
        (0..options.slots).for_each(|slot| slots.lay_out(slot));
        let (first, rest) = head.as_bytes().split_first_chunk().expect("a head has a first word");
        slots.region().write(8, rest);
        slots.region().store_u64(0, u64::from_le_bytes(*first));
        slots.region().fence()?;
        Ok(WriteCache::over(slots, device, geometry, options))
    }

    fn over(slots: Slots<R>, device: Arc<dyn BlockDevice>, geometry: Geometry, options: Options) -> WriteCache<R> {
        let sets = u64::from(options.slots / SLOTS_PER_SET).next_power_of_two();
        let (links, free) = (Links::new(options.slots), FreeSet::new());
        let mut all = Chain::new();
        (0..options.slots).rev().for_each(|slot| all.add(&links, slot));
        free.push(&links, &mut all);
        WriteCache {
            slots,
            device,
            geometry: Geometry { volatile_cache: true, atomic_blocks: geometry.atomic_blocks.min(1), ..geometry },
            options,
            sets: (0..sets).map(Set::new).collect(),
            used: (0..sets.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            links,
            free,
            withheld: Withheld {
                slots: Mutex::new(Chain::new()),
                wanted: AtomicU32::new(0),
                limit: AtomicU32::new(options.slots),
            },
            asleep: AtomicBool::new(false),
            doorbell: Mutex::new(None),
            clock: Mutex::new(None),
            draining: AtomicBool::new(options.eager),
            turned_away: AtomicBool::new(false),
            flushes: Flushes::default(),
            tally: Tally::default(),
        }
    }

    /// Who is to be woken when there is something to drain after [`WriteCache::may_sleep`] said that there is not.
    pub fn set_doorbell(&self, doorbell: Box<dyn Doorbell>) {
        *self.doorbell.lock() = Some(doorbell);
    }

    /// A clock that only grows, in nanoseconds: from now on stalls are timed by it.
    pub fn set_clock(&self, now_ns: fn() -> u64) {
        *self.clock.lock() = Some(now_ns);
    }

    /// From now on at most `limit` slots are in use, and at least one: the rest is drained and kept free. So a flush finds no more.
    pub fn limit_slots(&self, limit: u32) {
        let limit = limit.clamp(1, self.options.slots);
        let mut held = self.withheld.slots.lock();
        self.withheld.limit.store(limit, Ordering::Relaxed);
        let target = self.options.slots - limit;
        while held.len() > target
            && let Some(slot) = held.pop(&self.links)
        {
            let mut one = Chain::new();
            one.add(&self.links, slot);
            self.free.push(&self.links, &mut one);
        }
        while held.len() < target
            && let Some(slot) = self.free.pop(&self.links)
        {
            held.add(&self.links, slot);
        }
        self.withheld.wanted.store(target - held.len(), Ordering::Relaxed);
    }

    /// From now on writes go past the cache, as if no slot were free; without bypass this changes nothing. For the time in which draining
    /// would take the cores from the writers.
    pub fn turn_away(&self) {
        self.turned_away.store(self.options.bypass, Ordering::Relaxed);
    }

    /// From now on writes go into slots again.
    pub fn take_in(&self) {
        self.turned_away.store(false, Ordering::Relaxed);
    }

    /// Whether writes go past the cache by [`WriteCache::turn_away`].
    pub fn turns_away(&self) -> bool {
        // Relaxed: a writer that learns it late does what it would have done before.
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Slots there are, in use or not.
    pub fn slots(&self) -> u32 {
        self.options.slots
    }

    /// What the cache did so far.
    pub fn counters(&self) -> Counters {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut all = Counters {
            replaced: get(&self.tally.replaced),
            bypassed: self.tally.bypassed(),
            forced: get(&self.tally.forced),
            evicted: get(&self.tally.evicted),
            stalled: get(&self.tally.stalled),
            stalled_ns: get(&self.tally.stalled_ns),
            wake_ups: get(&self.tally.wake_ups),
            flushes: get(&self.tally.flushes),
            slots_limit: u64::from(self.withheld.limit.load(Ordering::Relaxed)),
            ..Counters::default()
        };
        for set in &self.sets {
            let queue = set.queue.lock();
            all.cached += queue.cached;
            all.read_hits += queue.read_hits;
            all.slots_used += queue.slots(&self.links).count() as u64;
        }
        all
    }

    /// Bytes of metadata for each slot: its header, its link, and its share of the sets.
    pub fn metadata_per_slot(&self) -> f64 {
        let shared = size_of_val(&*self.sets) + size_of_val(&*self.used);
        let each = size_of::<tidegate_layout::write_cache::SlotHead>() + Links::BYTES_EACH;
        each as f64 + shared as f64 / f64::from(self.options.slots)
    }

    pub(crate) fn slots_used(&self) -> u64 {
        self.sets.iter().map(|set| set.queue.lock().slots(&self.links).count() as u64).sum()
    }

    /// The failure that sealed the cache, if one did.
    pub(crate) fn check(&self) -> Result<()> {
        self.flushes.check()
    }

    /// Remembers the first failure and answers `error`.
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.flushes.fail(error)
    }

    /// Puts slots back into use.
    pub(crate) fn give_back(&self, freed: &mut Chain) {
        if self.withheld.wanted.load(Ordering::Relaxed) > 0 {
            self.withhold(freed);
        }
        self.free.push(&self.links, freed);
    }

    fn withhold(&self, freed: &mut Chain) {
        let mut held = self.withheld.slots.lock();
        let mut wanted = self.withheld.wanted.load(Ordering::Relaxed);
        while wanted > 0
            && let Some(slot) = freed.pop(&self.links)
        {
            held.add(&self.links, slot);
            wanted -= 1;
        }
        self.withheld.wanted.store(wanted, Ordering::Relaxed);
    }

    /// A slot that was kept out of use; the next one that comes free is kept instead.
    fn borrow_withheld(&self) -> Option<u32> {
        let mut held = self.withheld.slots.lock();
        let slot = held.pop(&self.links)?;
        let wanted = self.withheld.wanted.load(Ordering::Relaxed);
        self.withheld.wanted.store(wanted + 1, Ordering::Relaxed);
        Some(slot)
    }

    fn index_of(&self, lba: u64) -> usize {
        // The golden ratio spreads neighbours; the upper half of the product is the well mixed one.
        let mixed = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(mixed).expect("32 bits") & (self.sets.len() - 1)
    }

    /// Whether set `index` holds a slot.
    fn is_used(&self, index: usize) -> bool {
        // Acquire pairs with the marking of a write that completed before.
        self.used[index / 64].load(Ordering::Acquire) & 1 << (index % 64) != 0
    }

    /// How many sets from `from` on are empty before one that is not, if there is one among the next `among`.
    pub(crate) fn to_next_used(&self, from: usize, among: usize) -> Option<usize> {
        let mut skipped = 0;
        while skipped < among {
            let index = (from + skipped) % self.sets.len();
            let word = self.used[index / 64].load(Ordering::SeqCst) >> (index % 64);
            if word != 0 {
                let skipped = skipped + word.trailing_zeros() as usize;
                return (skipped < among).then_some(skipped);
            }
            skipped += (64 - index % 64).min(self.sets.len() - index);
        }
        None
    }

    /// Set `index` has become empty. The caller holds its queue.
    pub(crate) fn mark_empty(&self, index: usize) {
        self.used[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Release);
    }

    /// Set `index` is empty no more. The caller holds its queue.
    fn mark_used(&self, index: usize) {
        // SeqCst: see `may_sleep`.
        self.used[index / 64].fetch_or(1 << (index % 64), Ordering::SeqCst);
    }

    pub(crate) fn wants_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// All is drained: without eager eviction, nothing more is until the free set is empty again.
    pub(crate) fn stop_draining(&self) {
        if !self.options.eager {
            self.draining.store(false, Ordering::Relaxed);
        }
    }

    fn ring_if_asleep(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(doorbell) = &*self.doorbell.lock()
        {
            self.tally.wake_ups.fetch_add(1, Ordering::Relaxed);
            doorbell.ring();
        }
    }

    fn write_block(&self, lba: u64, data: &[u8]) -> Result<()> {
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

    /// Conditional bypass. A block that would have to wait for an eviction goes into a slot that was kept out of use; the next one that
    /// comes free is kept in its stead.
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

    /// Whether a write past the cache has to wait for an eviction now: of an older version of its block, or of whatever somebody is
    /// evicting from the same set. Asleep it would wait for longer than that takes.
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
                // Before the new one can be evicted and cleared: a kill must never find the old one alone.
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
            // Each time: another thread may have found everything drained since, and ended the draining.
            self.out_of_slots();
            let progress = self.drain_step(1, &mut cursor, &mut scratch)?;
            if progress.evicted == 0 {
                tidegate_media::sync::yield_now();
            }
        }
    }

    /// Writes blocks straight to the device, after what the cache holds of them.
    fn write_past(&self, lba: u64, data: &[u8], durability: Durability) -> Result<()> {
        let blocks = data.len() as u64 / u64::from(self.geometry.block_size);
        let range = LbaRange { first: Lba(lba), blocks };
        self.durably(durability, |durability| self.past_cache(range, || self.device.write(Lba(lba), data, durability)))
    }

    /// Does `act` with what is asked of it. On a device that has a volatile cache, a write with FUA is a plain one and a flush: if it cannot be made
    /// durable, what was evicted of the same blocks before may be lost with it, and of flushes alone everybody learns whether one failed.
    fn durably(&self, durability: Durability, act: impl FnOnce(Durability) -> Result<()>) -> Result<()> {
        if durability == Durability::Volatile || !self.device.geometry().volatile_cache {
            return act(durability);
        }
        act(Durability::Volatile)?;
        self.flush_device()
    }

    fn flush_device(&self) -> Result<()> {
        self.flushes.cover(|| self.device.flush())
    }

    /// Evicts every slot that holds a block of `range` now, and does `act`. No slot of their sets is evicted meanwhile: one that is
    /// written at the same time would be read, replaced in the device by `act`, and vanish.
    fn past_cache(&self, range: LbaRange, act: impl FnOnce() -> Result<()>) -> Result<()> {
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

    /// Evicts every slot of set `index` that holds a block of `range` now. The caller holds the set's `draining`.
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

    /// The newest slot of `queue` that holds block `lba`.
    fn newest(&self, queue: &Queue, lba: u64) -> Result<Option<u32>, Poison> {
        let mut newest = None;
        for slot in queue.slots(&self.links) {
            if self.slots.lba(slot)? == lba {
                newest = Some(slot);
            }
        }
        Ok(newest)
    }

    /// Copies block `lba` out of its slot, if it is in one.
    fn read_cached(&self, lba: u64, out: &mut [u8]) -> Result<bool, Poison> {
        let index = self.index_of(lba);
        while self.is_used(index) {
            let mut queue = self.sets[index].queue.lock();
            let Some(slot) = self.newest(&queue, lba)? else { break };
            let version = self.slots.version(slot)?;
            queue.read_hits += 1;
            drop(queue);
            self.slots.copy_out(slot, out)?;
            // The load is not moved before the copy: `copy_out` ends with a routine that the compiler does not see into, and
            // loads of one thread stay in order (on processors where they do not, the fence keeps them so).
            tidegate_media::sync::fence(Ordering::Acquire);
            // A linked slot shows `FREE` if the memory lost the store of its version. Every fill fails from then
            // on, so no other block comes into the slot while this one is copied.
            if self.slots.version(slot)? == version {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scratch(&self) -> Box<[u8]> {
        vec![0; self.geometry.block_size as usize].into()
    }

    fn block_bytes(&self) -> usize {
        self.geometry.block_size as usize
    }

    /// The lowest block of `range` that a slot holds.
    fn first_cached(&self, range: LbaRange) -> Result<Option<u64>, Poison> {
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
}

impl<R: Region> BlockDevice for WriteCache<R> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let range = self.geometry.range(at, out.len())?;
        let size = self.block_bytes();
        // Blocks that no slot holds are read together.
        let mut missing = 0;
        for (index, lba) in range.iter().enumerate() {
            let start = index * size;
            if self.read_cached(lba.0, &mut out[start..start + size])? {
                self.read_below(range, &mut out[missing..start], missing)?;
                missing = start + size;
            }
        }
        self.read_below(range, &mut out[missing..], missing)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let range = self.geometry.range(at, data.len())?;
        self.check()?;
        if durability == Durability::Fua {
            self.tally.forced.fetch_add(range.blocks, Ordering::Relaxed);
            return self.write_past(at.0, data, durability);
        }
        range
            .iter()
            .zip(data.chunks_exact(self.block_bytes()))
            .try_for_each(|(lba, block)| self.write_block(lba.0, block))
    }

    fn flush(&self) -> Result<()> {
        self.check()?;
        self.tally.flushes.fetch_add(1, Ordering::Relaxed);
        let mut scratch = self.scratch();
        for index in 0..self.sets.len() {
            if self.is_used(index) {
                let last = self.sets[index].queue.lock().last(&self.links);
                if let Some(through) = last {
                    self.evict_through(index, through, &mut scratch)?;
                }
            }
        }
        self.flush_device()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        let range = self.geometry.within(range)?;
        self.check()?;
        self.past_cache(range, || self.device.discard(range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        let range = self.geometry.within(range)?;
        self.check()?;
        self.durably(durability, |durability| self.past_cache(range, || self.device.write_zeroes(range, durability)))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        let below = self.device.extent(range)?;
        if below.kind == ExtentKind::Data {
            return Ok(below);
        }
        let hole = LbaRange { blocks: below.blocks, ..range };
        Ok(match self.first_cached(hole)? {
            Some(first) if first == range.first.0 => Extent { blocks: 1, kind: ExtentKind::Data },
            Some(first) => Extent { blocks: first - range.first.0, kind: ExtentKind::Hole },
            None => below,
        })
    }
}

impl<R: Region> WriteCache<R> {
    /// Reads the blocks of `out` from the device; `out` begins `offset` bytes into `range`.
    fn read_below(&self, range: LbaRange, out: &mut [u8], offset: usize) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        self.device.read(Lba(range.first.0 + (offset / self.block_bytes()) as u64), out)
    }
}
