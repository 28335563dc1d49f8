//! A write-back cache as Flashcache is one: sets of blocks, metadata in blocks of its own that are
//! rewritten with each change.
//!
//! A set's lock is held for short. While bytes of a slot move, the slot is *busy*: whoever wants it
//! waits, as in Flashcache. Cleaning goes on beside the requests, in steps that somebody else
//! calls; a request cleans only if its set has nothing else left.

use super::wait_a_little;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tidegate_media::sync::{AtomicU64, Mutex, Ordering};
use tidegate_media::{Backing, Lba, Region, Result, Run};

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Blocks in a set.
const SET: usize = 512;

/// Neighbours on the disk that share a set, 256 KiB of them (Flashcache's `DEFAULT_DISK_ASSOC`).
const NEIGHBOURS: u64 = 64;

/// Dirty blocks that a set may have before the oldest are cleaned: a fifth.
const DIRTY_MAX: usize = SET / 5;

/// Blocks cleaned together.
const CLEANED_TOGETHER: usize = 2;

/// Bytes that describe a block, and how many descriptions a block of metadata has.
const ENTRY: usize = 16;
const ENTRIES: usize = BLOCK / ENTRY;

/// Between two looks at a busy block.
const LOOK_AGAIN_NS: u64 = 5000;

/// The state of a dirty block, as stored.
const DIRTY: u32 = 1;

/// What is left out of a cache, to see what it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ablations {
    /// Metadata are not written.
    pub metadata: bool,
    /// Blocks are stored without being flushed, and without a fence.
    pub flushes: bool,
}

/// The cache: a region, a disk, and what is in memory of both.
pub struct FlashCache<R> {
    region: R,
    disk: Arc<dyn Backing>,
    sets: Vec<Mutex<Set>>,
    /// Sets with more dirty blocks than they may have.
    to_clean: Mutex<VecDeque<usize>>,
    ablations: Ablations,
    /// Time, counted in uses; numbers of slots come before it.
    now: AtomicU64,
    cleaned: AtomicU64,
    writes: AtomicU64,
    write_hits: AtomicU64,
}

/// A set: where its blocks are, and their order of use. A busy slot is in neither order.
#[derive(Default)]
struct Set {
    places: HashMap<u64, usize>,
    slots: Vec<Slot>,
    clean: BTreeMap<u64, usize>,
    dirty: BTreeMap<u64, usize>,
    waits_for_cleaning: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    lba: u64,
    used: u64,
    dirty: bool,
    busy: bool,
}

/// What a request found.
enum Found {
    /// Its block, whose slot is now busy.
    Cached(usize),
    /// A slot for it, busy too.
    Room(usize),
    /// Its block, busy with another.
    Busy,
    /// Nothing but dirty and busy blocks.
    Full,
}

impl<R: Region> FlashCache<R> {
    /// What a cache of `blocks` takes of a region.
    pub fn bytes_for(blocks: u32) -> u64 {
        let blocks = u64::from(blocks);
        (blocks.div_ceil(ENTRIES as u64) + blocks) * BLOCK as u64
    }

    /// An empty cache of `blocks`, whole sets.
    pub fn new(region: R, disk: Arc<dyn Backing>, blocks: u32, ablations: Ablations) -> FlashCache<R> {
        let sets = (0..blocks as usize / SET).map(|_| Mutex::new(Set::default())).collect();
        let [cleaned, writes, write_hits] = [0; 3].map(AtomicU64::new);
        let now = AtomicU64::new(SET as u64);
        FlashCache { region, disk, sets, to_clean: Mutex::default(), ablations, now, cleaned, writes, write_hits }
    }

    /// The memory.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// Blocks written to the disk so far.
    pub fn cleaned(&self) -> u64 {
        self.cleaned.load(Ordering::Relaxed)
    }

    /// Writes so far, and those of them that found their block cached.
    pub fn writes(&self) -> (u64, u64) {
        (self.writes.load(Ordering::Relaxed), self.write_hits.load(Ordering::Relaxed))
    }

    /// What was written last.
    pub fn read(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        let set = self.set_of(lba);
        match self.find(set, lba)? {
            Found::Cached(slot) => {
                let done = self.region.read(self.data_at(set, slot), out);
                self.used(set, slot, |was_dirty| was_dirty);
                Ok(done?)
            }
            Found::Room(slot) => {
                let done = self.disk.read(Lba(lba), out).and_then(|()| self.store(self.data_at(set, slot), out));
                match done {
                    Ok(()) => self.used(set, slot, |_| false),
                    Err(_) => self.sets[set].lock().forget(slot),
                }
                done
            }
            Found::Busy | Found::Full => unreachable!("waited for"),
        }
    }

    /// Durable on return.
    pub fn write(&self, lba: u64, data: &[u8]) -> Result<()> {
        let set = self.set_of(lba);
        let found = self.find(set, lba)?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        let (Found::Cached(slot) | Found::Room(slot)) = found else { unreachable!("waited for") };
        if matches!(found, Found::Cached(_)) {
            self.write_hits.fetch_add(1, Ordering::Relaxed);
        }
        let done = self.store(self.data_at(set, slot), data);
        self.used(set, slot, |_| true);
        done?;
        self.store_metadata(set, slot / ENTRIES)?;
        self.ask_for_cleaning(set);
        Ok(())
    }

    /// Cleans a little of a set that has more dirty blocks than it may have. False if there is
    /// none.
    pub fn clean_step(&self) -> Result<bool> {
        let Some(set) = self.to_clean.lock().pop_front() else { return Ok(false) };
        self.sets[set].lock().waits_for_cleaning = false;
        self.clean_oldest(set)?;
        self.ask_for_cleaning(set);
        Ok(true)
    }

    fn ask_for_cleaning(&self, set: usize) {
        let mut locked = self.sets[set].lock();
        if locked.dirty.len() > DIRTY_MAX && !locked.waits_for_cleaning {
            locked.waits_for_cleaning = true;
            drop(locked);
            self.to_clean.lock().push_back(set);
        }
    }

    /// The slot of `lba`, or one for it, when it is nobody else's.
    fn find(&self, set: usize, lba: u64) -> Result<Found> {
        loop {
            let found = self.sets[set].lock().take(lba);
            match found {
                Found::Cached(_) | Found::Room(_) => return Ok(found),
                Found::Full if self.clean_oldest(set)? > 0 => {}
                Found::Full | Found::Busy => wait_a_little(LOOK_AGAIN_NS),
            }
        }
    }

    /// Writes the dirty blocks of `set` that were used longest ago to the disk, and notes it. Says
    /// how many.
    fn clean_oldest(&self, set: usize) -> Result<usize> {
        let oldest = self.sets[set].lock().oldest_dirty();
        let written = self.write_to_disk(set, &oldest);
        let mut changed = [false; SET / ENTRIES];
        let mut locked = self.sets[set].lock();
        for (slot, before) in &oldest {
            locked.settle(*slot, before.used, written.is_err());
            changed[slot / ENTRIES] = true;
        }
        drop(locked);
        written?;
        self.cleaned.fetch_add(oldest.len() as u64, Ordering::Relaxed);
        let mut parts = (0..changed.len()).filter(|part| changed[*part]);
        parts.try_for_each(|part| self.store_metadata(set, part))?;
        Ok(oldest.len())
    }

    fn write_to_disk(&self, set: usize, slots: &[(usize, Slot)]) -> Result<()> {
        let mut blocks = vec![[0; BLOCK]; slots.len()];
        for ((slot, _), block) in slots.iter().zip(&mut blocks) {
            self.region.read(self.data_at(set, *slot), block)?;
        }
        let runs = slots.iter().zip(&blocks).map(|((_, slot), block)| Run { at: Lba(slot.lba), data: block });
        self.disk.write_runs(&runs.collect::<Vec<_>>()).into_iter().collect()
    }

    /// `slot` was used just now, and is nobody's; whether it is dirty follows from whether it was.
    fn used(&self, set: usize, slot: usize, dirty: impl FnOnce(bool) -> bool) {
        let now = self.now.fetch_add(1, Ordering::Relaxed);
        let mut locked = self.sets[set].lock();
        let dirty = dirty(locked.slots[slot].dirty);
        locked.settle(slot, now, dirty);
    }

    /// Writes a block of metadata of `set`: the first half of its slots, or the second.
    fn store_metadata(&self, set: usize, part: usize) -> Result<()> {
        if self.ablations.metadata {
            return Ok(());
        }
        let mut block = [0; BLOCK];
        let locked = self.sets[set].lock();
        for (entry, slot) in block.chunks_exact_mut(ENTRY).zip(locked.slots.iter().skip(part * ENTRIES)) {
            entry[..8].copy_from_slice(&slot.lba.to_le_bytes());
            entry[8..12].copy_from_slice(&(if slot.dirty { DIRTY } else { 0 }).to_le_bytes());
        }
        drop(locked);
        self.store(((set * SET / ENTRIES + part) * BLOCK) as u64, &block)
    }

    /// What a write to a block device in persistent memory does.
    fn store(&self, at: u64, block: &[u8]) -> Result<()> {
        if self.ablations.flushes {
            self.region.write(at, block);
            return Ok(());
        }
        self.region.stream(at, block);
        Ok(self.region.fence()?)
    }

    fn data_at(&self, set: usize, slot: usize) -> u64 {
        let metadata = self.sets.len() * SET / ENTRIES;
        ((metadata + set * SET + slot) * BLOCK) as u64
    }

    /// Neighbours on the disk share a set, and the next ones have any other one.
    fn set_of(&self, lba: u64) -> usize {
        let mixed = (lba / NEIGHBOURS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(mixed).expect("32 bits") % self.sets.len()
    }
}

impl Set {
    /// Takes the slot of `lba`, or one that holds nothing, or the clean one that was used longest
    /// ago.
    fn take(&mut self, lba: u64) -> Found {
        match self.places.get(&lba).copied() {
            Some(slot) if self.slots[slot].busy => Found::Busy,
            Some(slot) => {
                self.occupy(slot);
                Found::Cached(slot)
            }
            None => self.room(lba).map_or(Found::Full, Found::Room),
        }
    }

    fn room(&mut self, lba: u64) -> Option<usize> {
        let slot = if self.slots.len() < SET {
            self.slots.push(Slot { lba, used: 0, dirty: false, busy: true });
            self.slots.len() - 1
        } else {
            self.clean.pop_first()?.1
        };
        self.places.remove(&self.slots[slot].lba);
        self.slots[slot] = Slot { lba, used: 0, dirty: false, busy: true };
        self.places.insert(lba, slot);
        Some(slot)
    }

    fn oldest_dirty(&mut self) -> Vec<(usize, Slot)> {
        let slots: Vec<usize> = self.dirty.values().take(CLEANED_TOGETHER).copied().collect();
        let before: Vec<(usize, Slot)> = slots.into_iter().map(|slot| (slot, self.slots[slot])).collect();
        before.iter().for_each(|(slot, _)| self.occupy(*slot));
        before
    }

    fn occupy(&mut self, slot: usize) {
        let Slot { used, dirty, .. } = self.slots[slot];
        if dirty {
            self.dirty.remove(&used)
        } else {
            self.clean.remove(&used)
        };
        self.slots[slot].busy = true;
    }

    /// `slot` is no longer busy.
    fn settle(&mut self, slot: usize, used: u64, dirty: bool) {
        let before = self.slots[slot];
        self.slots[slot] = Slot { used, dirty, busy: false, ..before };
        if dirty {
            self.dirty.insert(used, slot)
        } else {
            self.clean.insert(used, slot)
        };
    }

    /// `slot` was to be filled, and was not: nobody finds it until it is taken for another block.
    fn forget(&mut self, slot: usize) {
        let lba = std::mem::replace(&mut self.slots[slot].lba, u64::MAX);
        self.places.remove(&lba);
        self.settle(slot, slot as u64, false);
    }
}
