//! The cache itself: creation, slots in and out of use, and figures.

use crate::counters::Counters;
use crate::free_set::{Chain, FreeSet};
use crate::options::{CreateError, Options};
use crate::set::{Links, Set};
use crate::slots::Slots;
use crate::tally::Tally;
use std::sync::Arc;
use tidegate_layout::write_cache::{CacheHead, SlotPlan};
use tidegate_media::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use tidegate_media::{BlockDevice, Error, Flushes, Geometry, Region, Result};
use zerocopy::IntoBytes;

/// Slots for each set: with more sets queues are shorter, and each costs a cache line.
const SLOTS_PER_SET: u32 = 32;

/// Wakes whoever drains. Called at most once between two calls of [`WriteCache::may_sleep`].
pub trait Doorbell: Send + Sync {
    /// There is something to drain.
    fn ring(&self);
}

/// A block device behind a transit cache. See the crate's preamble.
pub struct WriteCache<R> {
    pub(crate) slots: Slots<R>,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) options: Options,
    pub(crate) sets: Box<[Set]>,
    /// A bit for each set: whether its queue holds a slot. Changed under the queue's lock.
    pub(crate) used: Box<[AtomicU64]>,
    pub(crate) links: Links,
    pub(crate) free: FreeSet,
    withheld: Withheld,
    /// Whether whoever drains sleeps and wants the doorbell rung.
    pub(crate) asleep: AtomicBool,
    doorbell: Mutex<Option<Box<dyn Doorbell>>>,
    /// Nanoseconds, for whoever wants stalls timed.
    pub(crate) clock: Mutex<Option<fn() -> u64>>,
    /// Without eager eviction: whether it is time to evict.
    pub(crate) draining: AtomicBool,
    /// Whether blocks go past the cache although slots are free.
    turned_away: AtomicBool,
    pub(crate) flushes: Flushes,
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
    /// A cache in front of `device`, with its slots in `region`, whose contents are given up: what
    /// an earlier process left there has been [completed](crate::complete). The region may be
    /// larger than the slots.
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
        // First an earlier head stops to count: of two slots for one block, the newer might be
        // cleared, and after a kill the older one would be completed once more. Only a head that
        // follows cleared slots counts again, and its first word makes it so. No fence stands
        // between these: only a kill can come between, and a processor finishes the stores before
        // it in their order.
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

    /// Who is to be woken when there is something to drain after [`WriteCache::may_sleep`] said
    /// that there is not.
    pub fn set_doorbell(&self, doorbell: Box<dyn Doorbell>) {
        *self.doorbell.lock() = Some(doorbell);
    }

    /// A clock that only grows, in nanoseconds: from now on stalls are timed by it.
    pub fn set_clock(&self, now_ns: fn() -> u64) {
        *self.clock.lock() = Some(now_ns);
    }

    /// From now on at most `limit` slots are in use, and at least one: the rest is drained and kept
    /// free. So a flush finds no more.
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

    /// From now on writes go past the cache, as if no slot were free; without bypass this changes
    /// nothing. For the time in which draining would take the cores from the writers.
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
    pub(crate) fn borrow_withheld(&self) -> Option<u32> {
        let mut held = self.withheld.slots.lock();
        let slot = held.pop(&self.links)?;
        let wanted = self.withheld.wanted.load(Ordering::Relaxed);
        self.withheld.wanted.store(wanted + 1, Ordering::Relaxed);
        Some(slot)
    }

    pub(crate) fn index_of(&self, lba: u64) -> usize {
        // The golden ratio spreads neighbours; the upper half of the product is the well mixed one.
        let mixed = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(mixed).expect("32 bits") & (self.sets.len() - 1)
    }

    /// Whether set `index` holds a slot.
    pub(crate) fn is_used(&self, index: usize) -> bool {
        // Acquire pairs with the marking of a write that completed before.
        self.used[index / 64].load(Ordering::Acquire) & 1 << (index % 64) != 0
    }

    /// How many sets from `from` on are empty before one that is not, if there is one among the
    /// next `among`.
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
    pub(crate) fn mark_used(&self, index: usize) {
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

    pub(crate) fn ring_if_asleep(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(doorbell) = &*self.doorbell.lock()
        {
            self.tally.wake_ups.fetch_add(1, Ordering::Relaxed);
            doorbell.ring();
        }
    }

    pub(crate) fn scratch(&self) -> Box<[u8]> {
        vec![0; self.geometry.block_size as usize].into()
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry.block_size as usize
    }
}
