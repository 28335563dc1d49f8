//! A write-back cache as Flashcache is one: sets of blocks, metadata in blocks of its own that are rewritten with each change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidegate_media::{BlockDevice, Durability, Lba, Region, Result};

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Blocks in a set.
const SET: usize = 512;

/// Dirty blocks that a set may have before the oldest are cleaned: a fifth.
const DIRTY_MAX: usize = SET / 5;

/// Blocks cleaned together.
const CLEANED_TOGETHER: usize = 2;

/// Bytes that describe a block, and how many descriptions a block of metadata has.
const ENTRY: usize = 16;
const ENTRIES: usize = BLOCK / ENTRY;

/// The state of a dirty block, as stored.
const DIRTY: u32 = 1;

/// The cache: a region, a disk, and what is in memory of both.
pub(super) struct FlashCache<R> {
    region: R,
    disk: Arc<dyn BlockDevice>,
    sets: Vec<Set>,
    /// Time, counted in uses.
    now: u64,
    cleaned: u64,
}

/// A set: where its blocks are, and their order of use.
#[derive(Default)]
struct Set {
    places: HashMap<u64, usize>,
    slots: Vec<Slot>,
    clean: BTreeMap<u64, usize>,
    dirty: BTreeMap<u64, usize>,
}

#[derive(Clone, Copy)]
struct Slot {
    lba: u64,
    used: u64,
    dirty: bool,
}

impl<R: Region> FlashCache<R> {
    /// What a cache of `blocks` takes of a region.
    pub(super) fn bytes_for(blocks: u32) -> u64 {
        let blocks = u64::from(blocks);
        (blocks.div_ceil(ENTRIES as u64) + blocks) * BLOCK as u64
    }

    /// An empty cache of `blocks`, whole sets.
    pub(super) fn new(region: R, disk: Arc<dyn BlockDevice>, blocks: u32) -> FlashCache<R> {
        let sets = (0..blocks as usize / SET).map(|_| Set::default()).collect();
        FlashCache { region, disk, sets, now: 0, cleaned: 0 }
    }

    pub(super) fn region(&self) -> &R {
        &self.region
    }

    /// Blocks written to the disk so far.
    pub(super) fn cleaned(&self) -> u64 {
        self.cleaned
    }

    pub(super) fn read(&mut self, lba: u64, out: &mut [u8]) -> Result<()> {
        let set = self.set_of(lba);
        if let Some(slot) = self.sets[set].places.get(&lba).copied() {
            self.region.read(self.data_at(set, slot), out)?;
            let dirty = self.sets[set].slots[slot].dirty;
            self.put(set, slot, lba, dirty);
            return Ok(());
        }
        self.disk.read(Lba(lba), out)?;
        let slot = self.room(set)?;
        self.store(self.data_at(set, slot), out)?;
        self.put(set, slot, lba, false);
        Ok(())
    }

    /// Durable on return.
    pub(super) fn write(&mut self, lba: u64, data: &[u8]) -> Result<()> {
        let set = self.set_of(lba);
        let slot = match self.sets[set].places.get(&lba) {
            Some(slot) => *slot,
            None => self.room(set)?,
        };
        self.store(self.data_at(set, slot), data)?;
        self.put(set, slot, lba, true);
        self.store_metadata(set, slot / ENTRIES)?;
        while self.sets[set].dirty.len() > DIRTY_MAX {
            self.clean_oldest(set)?;
        }
        Ok(())
    }

    /// A place in `set` that holds nothing, or held the clean block that was used longest ago.
    fn room(&mut self, set: usize) -> Result<usize> {
        if self.sets[set].clean.is_empty() && self.sets[set].slots.len() == SET {
            self.clean_oldest(set)?;
        }
        let set = &mut self.sets[set];
        if set.slots.len() < SET {
            set.slots.push(Slot { lba: u64::MAX, used: u64::MAX, dirty: false });
            return Ok(set.slots.len() - 1);
        }
        let (_, slot) = set.clean.pop_first().expect("a full set has a clean block, or one was just cleaned");
        set.places.remove(&set.slots[slot].lba);
        Ok(slot)
    }

    /// Writes the dirty blocks of `set` that were used longest ago to the disk, and notes it.
    fn clean_oldest(&mut self, set: usize) -> Result<()> {
        let mut changed = [false; SET / ENTRIES];
        for _ in 0..CLEANED_TOGETHER {
            let Some((used, slot)) = self.sets[set].dirty.pop_first() else { break };
            let mut block = [0; BLOCK];
            self.region.read(self.data_at(set, slot), &mut block)?;
            self.disk.write(Lba(self.sets[set].slots[slot].lba), &block, Durability::Volatile)?;
            self.sets[set].slots[slot].dirty = false;
            self.sets[set].clean.insert(used, slot);
            self.cleaned += 1;
            changed[slot / ENTRIES] = true;
        }
        self.disk.flush()?;
        (0..changed.len()).filter(|part| changed[*part]).try_for_each(|part| self.store_metadata(set, part))
    }

    /// `slot` holds `lba` and was used just now.
    fn put(&mut self, set: usize, slot: usize, lba: u64, dirty: bool) {
        self.now += 1;
        let (now, set) = (self.now, &mut self.sets[set]);
        let before = std::mem::replace(&mut set.slots[slot], Slot { lba, used: now, dirty });
        if before.dirty {
            set.dirty.remove(&before.used)
        } else {
            set.clean.remove(&before.used)
        };
        if dirty {
            set.dirty.insert(now, slot)
        } else {
            set.clean.insert(now, slot)
        };
        set.places.insert(lba, slot);
    }

    /// Writes a block of metadata of `set`: the first half of its slots, or the second.
    fn store_metadata(&self, set: usize, part: usize) -> Result<()> {
        let mut block = [0; BLOCK];
        let slots = self.sets[set].slots.iter().skip(part * ENTRIES);
        for (entry, slot) in block.chunks_exact_mut(ENTRY).zip(slots) {
            entry[..8].copy_from_slice(&slot.lba.to_le_bytes());
            entry[8..12].copy_from_slice(&(if slot.dirty { DIRTY } else { 0 }).to_le_bytes());
        }
        self.store(((set * SET / ENTRIES + part) * BLOCK) as u64, &block)
    }

    /// What a write to a block device in persistent memory does.
    fn store(&self, at: u64, block: &[u8]) -> Result<()> {
        self.region.stream(at, block);
        Ok(self.region.fence()?)
    }

    fn data_at(&self, set: usize, slot: usize) -> u64 {
        let metadata = self.sets.len() * SET / ENTRIES;
        ((metadata + set * SET + slot) * BLOCK) as u64
    }

    /// Neighbours on the disk share a set.
    fn set_of(&self, lba: u64) -> usize {
        usize::try_from(lba).expect("a disk in memory") / SET % self.sets.len()
    }
}
