//! A write-back cache as Flashcache is one: sets of blocks, metadata in blocks of its own that are
//! rewritten with each change.
//!
//! What it does when a set is full, and what it cleans, is as in Flashcache's source with its
//! defaults (`flashcache_main.c`, `flashcache_conf.c`):
//!
//! 1. A new block takes the place of the next clean one in the order of slots (`FLASHCACHE_FIFO`,
//!    the hand `set_fifo_next`), however lately that was used.
//! 2. A set with more dirty blocks than it may have is cleaned in the order of slots too
//!    (`set_clean_next`), two blocks at a time. Their dirty neighbours on the disk go with them
//!    (`flashcache_merge_writes`).
//! 3. A request that finds neither its block nor a clean one goes past the cache
//!    (`flashcache_start_uncached_io`). What a file system submits together is on its way to the
//!    disk together; neighbours are one request, as Linux's block layer merges them.
//!
//! A set's lock is held for short. While bytes of a slot move, the slot is *busy*: whoever wants it
//! waits, as in Flashcache. Cleaning goes on beside the requests, in steps that somebody else
//! calls. No block is written by two at once, which a file system sees to.

use super::wait_a_little;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tidegate_media::sync::{AtomicU64, Mutex, Ordering};
use tidegate_media::{Backing, Lba, Region, Result, Run};

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Blocks in a set.
const SET: usize = 512;

/// Neighbours on the disk that share a set, 256 KiB of them (Flashcache's `DEFAULT_DISK_ASSOC`).
const NEIGHBOURS: u64 = 64;

/// Dirty blocks that a set may have before some are cleaned: a fifth.
const DIRTY_MAX: usize = SET / 5;

/// Blocks chosen to be cleaned together.
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
    /// Blocks written to the disk.
    written: AtomicU64,
    writes: AtomicU64,
    write_hits: AtomicU64,
}

/// A set: where its blocks are, and which slots come next.
#[derive(Default)]
struct Set {
    places: HashMap<u64, usize>,
    slots: Vec<Slot>,
    /// Slots whose block is dirty.
    dirty: usize,
    /// The slot to look at first for a clean block to replace, and for a dirty one to clean.
    replaced_next: usize,
    cleaned_next: usize,
    waits_for_cleaning: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    lba: u64,
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
        let [written, writes, write_hits] = [0; 3].map(AtomicU64::new);
        FlashCache { region, disk, sets, to_clean: Mutex::default(), ablations, written, writes, write_hits }
    }

    /// The memory.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// Blocks written to the disk so far.
    pub fn disk_blocks(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Writes so far, and those of them that found their block cached.
    pub fn writes(&self) -> (u64, u64) {
        (self.writes.load(Ordering::Relaxed), self.write_hits.load(Ordering::Relaxed))
    }

    /// What was written last.
    pub fn read(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        let set = self.set_of(lba);
        match self.find(set, lba) {
            Found::Cached(slot) => {
                let done = self.region.read(self.data_at(set, slot), out);
                self.sets[set].lock().settle(slot, |was_dirty| was_dirty);
                Ok(done?)
            }
            Found::Room(slot) => {
                let done = self.disk.read(Lba(lba), out).and_then(|()| self.store(self.data_at(set, slot), out));
                let mut locked = self.sets[set].lock();
                match done {
                    Ok(()) => locked.settle(slot, |_| false),
                    Err(_) => locked.forget(slot),
                }
                done
            }
            Found::Full => self.disk.read(Lba(lba), out),
            Found::Busy => unreachable!("waited for"),
        }
    }

    /// Durable on return.
    pub fn write(&self, lba: u64, data: &[u8]) -> Result<()> {
        self.write_together(&[(lba, data)])
    }

    /// Writes blocks that are submitted together. Durable on return.
    pub fn write_together(&self, blocks: &[(u64, &[u8])]) -> Result<()> {
        let mut past = Vec::new();
        for (lba, data) in blocks {
            if !self.write_to_slot(*lba, data)? {
                past.push((*lba, *data));
            }
        }
        if past.is_empty() {
            return Ok(());
        }
        self.write_to_disk(&mut past)?;
        past.iter().for_each(|(lba, _)| self.forget_older(*lba));
        Ok(())
    }

    /// False if there is no slot for it.
    fn write_to_slot(&self, lba: u64, data: &[u8]) -> Result<bool> {
        let set = self.set_of(lba);
        let found = self.find(set, lba);
        self.writes.fetch_add(1, Ordering::Relaxed);
        let slot = match found {
            Found::Cached(slot) => {
                self.write_hits.fetch_add(1, Ordering::Relaxed);
                slot
            }
            Found::Room(slot) => slot,
            Found::Full => return Ok(false),
            Found::Busy => unreachable!("waited for"),
        };
        let done = self.store(self.data_at(set, slot), data);
        self.sets[set].lock().settle(slot, |_| true);
        done?;
        self.store_metadata(set, slot / ENTRIES)?;
        self.ask_for_cleaning(set);
        Ok(true)
    }

    /// Drops what a read brought into the cache while `lba` was written past it.
    fn forget_older(&self, lba: u64) {
        let set = self.set_of(lba);
        if let Some(slot) = self.cached(set, lba) {
            let mut locked = self.sets[set].lock();
            match locked.slots[slot].dirty {
                true => locked.settle(slot, |_| true),
                false => locked.forget(slot),
            }
        }
    }

    /// Cleans a little of a set that has more dirty blocks than it may have. False if there is
    /// none.
    pub fn clean_step(&self) -> Result<bool> {
        let Some(set) = self.to_clean.lock().pop_front() else { return Ok(false) };
        self.sets[set].lock().waits_for_cleaning = false;
        self.clean(set)?;
        self.ask_for_cleaning(set);
        Ok(true)
    }

    fn ask_for_cleaning(&self, set: usize) {
        let mut locked = self.sets[set].lock();
        if locked.dirty > DIRTY_MAX && !locked.waits_for_cleaning {
            locked.waits_for_cleaning = true;
            drop(locked);
            self.to_clean.lock().push_back(set);
        }
    }

    /// The slot of `lba`, or one for it, when it is nobody else's.
    fn find(&self, set: usize, lba: u64) -> Found {
        loop {
            match self.sets[set].lock().take(lba) {
                Found::Busy => {}
                found => return found,
            }
            wait_a_little(LOOK_AGAIN_NS);
        }
    }

    /// The slot that has `lba`, if there is one, when it is nobody else's.
    fn cached(&self, set: usize, lba: u64) -> Option<usize> {
        loop {
            let mut locked = self.sets[set].lock();
            let slot = locked.places.get(&lba).copied()?;
            if !locked.slots[slot].busy {
                locked.slots[slot].busy = true;
                return Some(slot);
            }
            drop(locked);
            wait_a_little(LOOK_AGAIN_NS);
        }
    }

    /// Writes dirty blocks of `set` to the disk, and notes it.
    fn clean(&self, set: usize) -> Result<()> {
        let chosen = self.sets[set].lock().next_dirty();
        let written = self.write_back(set, &chosen);
        let mut changed = [false; SET / ENTRIES];
        let mut locked = self.sets[set].lock();
        for (slot, _) in &chosen {
            locked.settle(*slot, |_| written.is_err());
            changed[slot / ENTRIES] = true;
        }
        drop(locked);
        written?;
        let mut parts = (0..changed.len()).filter(|part| changed[*part]);
        parts.try_for_each(|part| self.store_metadata(set, part))
    }

    fn write_back(&self, set: usize, slots: &[(usize, u64)]) -> Result<()> {
        let mut bytes = vec![[0; BLOCK]; slots.len()];
        for ((slot, _), block) in slots.iter().zip(&mut bytes) {
            self.region.read(self.data_at(set, *slot), block)?;
        }
        let mut blocks: Vec<(u64, &[u8])> = Vec::with_capacity(slots.len());
        blocks.extend(slots.iter().zip(&bytes).map(|((_, lba), block)| (*lba, &block[..])));
        self.write_to_disk(&mut blocks)
    }

    /// Writes `blocks` to the disk, all together, and neighbours as one.
    fn write_to_disk(&self, blocks: &mut [(u64, &[u8])]) -> Result<()> {
        blocks.sort_unstable_by_key(|(lba, _)| *lba);
        let neighbours = blocks.chunk_by(|(lba, _), (next, _)| lba + 1 == *next);
        let joined: Vec<(u64, Vec<u8>)> =
            neighbours.map(|run| (run[0].0, run.iter().flat_map(|(_, data)| data.iter().copied()).collect())).collect();
        let runs: Vec<Run<'_>> = joined.iter().map(|(lba, data)| Run { at: Lba(*lba), data }).collect();
        self.disk.write_runs(&runs).into_iter().collect::<Result<()>>()?;
        self.written.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        Ok(())
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
    /// Takes the slot of `lba`, or one that holds nothing, or the next clean one.
    fn take(&mut self, lba: u64) -> Found {
        match self.places.get(&lba).copied() {
            Some(slot) if self.slots[slot].busy => Found::Busy,
            Some(slot) => {
                self.slots[slot].busy = true;
                Found::Cached(slot)
            }
            None => self.room(lba).map_or(Found::Full, Found::Room),
        }
    }

    fn room(&mut self, lba: u64) -> Option<usize> {
        let taken = Slot { lba, dirty: false, busy: true };
        let slot = if self.slots.len() < SET {
            self.slots.push(taken);
            self.slots.len() - 1
        } else {
            let slot =
                self.from(self.replaced_next).find(|slot| !self.slots[*slot].dirty && !self.slots[*slot].busy)?;
            self.replaced_next = (slot + 1) % SET;
            self.places.remove(&self.slots[slot].lba);
            self.slots[slot] = taken;
            slot
        };
        self.places.insert(lba, slot);
        Some(slot)
    }

    /// Every slot, `first` first.
    fn from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.slots.len();
        (0..count).map(move |nth| (first + nth) % count)
    }

    /// Takes the next dirty slots, as many as there are too many, and those of their dirty
    /// neighbours on the disk; says their blocks too.
    fn next_dirty(&mut self) -> Vec<(usize, u64)> {
        let many = self.dirty.saturating_sub(DIRTY_MAX).min(CLEANED_TOGETHER);
        let dirty: Vec<usize> =
            self.from(self.cleaned_next).filter(|slot| self.slots[*slot].may_be_cleaned()).take(many).collect();
        if let Some(last) = dirty.last() {
            self.cleaned_next = (last + 1) % self.slots.len();
        }
        let mut chosen = Vec::new();
        for slot in dirty {
            let lba = self.slots[slot].lba;
            self.choose(lba, &mut chosen);
            (1..)
                .take_while(|far| lba.checked_sub(*far).is_some_and(|lba| self.choose(lba, &mut chosen)))
                .for_each(drop);
            (1..).take_while(|far| self.choose(lba + far, &mut chosen)).for_each(drop);
        }
        chosen
    }

    /// Takes the slot of `lba` if it may be cleaned.
    fn choose(&mut self, lba: u64, chosen: &mut Vec<(usize, u64)>) -> bool {
        let Some(slot) = self.places.get(&lba).copied() else { return false };
        let may = self.slots[slot].may_be_cleaned();
        if may {
            self.slots[slot].busy = true;
            chosen.push((slot, lba));
        }
        may
    }

    /// `slot` is no longer busy; whether it is dirty follows from whether it was.
    fn settle(&mut self, slot: usize, dirty: impl FnOnce(bool) -> bool) {
        let before = self.slots[slot];
        let dirty = dirty(before.dirty);
        self.dirty = self.dirty - usize::from(before.dirty) + usize::from(dirty);
        self.slots[slot] = Slot { dirty, busy: false, ..before };
    }

    /// `slot` is no longer busy, and nobody finds its block until the slot is taken for another.
    fn forget(&mut self, slot: usize) {
        let lba = std::mem::replace(&mut self.slots[slot].lba, u64::MAX);
        self.places.remove(&lba);
        self.settle(slot, |_| false);
    }
}

impl Slot {
    fn may_be_cleaned(self) -> bool {
        self.dirty && !self.busy
    }
}
