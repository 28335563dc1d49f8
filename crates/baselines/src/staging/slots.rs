//! The slots of a staging cache: which block each holds, and its bytes.
//!
//! 1. A slot's lock is held while its bytes are copied in or out, and while they are written to the
//!    device.
//! 2. Order of locks: a slot, then a part of the table, then the list of free slots. A look into
//!    the table that ends in a slot's lock lets go of the part first, and looks at the slot again
//!    under its lock.
//! 3. A slot is in the table exactly while it holds a block, but for the moment under its lock in
//!    which that changes.
//! 4. What happens to a slot is told to the rule under the slot's lock, so the rule learns of it in
//!    the order in which it happened.

use super::Rule;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_media::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use tidegate_media::{BlockDevice, Durability, Lba, Region, Result};

/// Parts of the table from block to slot, each with its lock.
const PARTS: usize = 64;

thread_local! {
    /// A block on its way from a slot to the device.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SlotState {
    lba: Option<u64>,
    /// The device does not have it yet.
    dirty: bool,
}

/// How an attempt to fill a slot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// This slot holds the block now.
    Slot(Slot),
    /// Another writer was faster; its slot can be rewritten.
    AnotherHasIt,
    /// No slot is free.
    NoneFree,
}

/// All slots, the table, and the device below.
pub struct Slots {
    device: Arc<dyn BlockDevice>,
    block_size: usize,
    data: Arc<dyn Region>,
    /// Where the first slot lies in it.
    base: u64,
    held: Box<[Mutex<SlotState>]>,
    /// A bit for each slot whose block the device does not have; changed under the slot's lock.
    dirty: Box<[AtomicU64]>,
    table: Box<[Mutex<HashMap<u64, Slot>>]>,
    free: Mutex<Vec<Slot>>,
    used: AtomicU32,
}

impl Slots {
    /// Slots whose bytes lie in `data`, from `base` on.
    pub(super) fn new(
        data: Arc<dyn Region>,
        base: u64,
        device: Arc<dyn BlockDevice>,
        slots: u32,
    ) -> anyhow::Result<Slots> {
        let block_size = device.geometry().block_size;
        let end = base + u64::from(slots) * u64::from(block_size);
        anyhow::ensure!(data.len() >= end, "{slots} slots end at {end}, and the memory has {} bytes", data.len());
        // Every page is there before the first request, as in a cache that is allocated when it is
        // set up.
        (0..slots).for_each(|slot| data.write(base + u64::from(slot) * u64::from(block_size), &[1]));
        Ok(Slots {
            device,
            block_size: block_size as usize,
            data,
            base,
            held: (0..slots).map(|_| Mutex::default()).collect(),
            dirty: (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            table: (0..PARTS).map(|_| Mutex::default()).collect(),
            free: Mutex::new((0..slots).rev().map(Slot).collect()),
            used: AtomicU32::new(0),
        })
    }

    /// The device below.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Every slot.
    pub fn all(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..u32::try_from(self.held.len()).expect("made of a u32")).map(Slot)
    }

    /// Every slot whose block the device does not have. What is written while this runs may be in
    /// it or not.
    pub fn dirty(&self) -> impl Iterator<Item = Slot> {
        let bits_of = |(word, bits): (u32, &AtomicU64)| {
            // Acquire pairs with the Release of `mark`: a write that completed before is seen.
            let mut bits = bits.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(Slot(word * 64 + bit))
            })
        };
        (0..).zip(&self.dirty).flat_map(bits_of)
    }

    /// Whether a slot is free at this moment.
    pub fn has_free(&self) -> bool {
        !self.free.lock().is_empty()
    }

    /// Bytes beside the blocks: the state of each slot, the table, and the list of free slots.
    pub(super) fn metadata_bytes(&self) -> usize {
        let states = size_of_val(&*self.held) + size_of_val(&*self.dirty);
        // A table of the standard library has a byte beside each of its places, which are a power
        // of two of which seven of eight are used.
        let places = |part: &HashMap<u64, Slot>| (part.capacity() * 8 / 7).next_power_of_two();
        let table = |part: &Mutex<HashMap<u64, Slot>>| {
            size_of_val(part) + places(&part.lock()) * (size_of::<(u64, Slot)>() + 1)
        };
        let free = self.free.lock().capacity() * size_of::<Slot>();
        states + self.table.iter().map(table).sum::<usize>() + free
    }

    /// How many slots hold a block.
    pub fn used(&self) -> u32 {
        // Relaxed: a hint for the rules, and exact when nothing runs.
        self.used.load(Ordering::Relaxed)
    }

    /// Overwrites the block in the slot that holds it. None: no slot does.
    pub(super) fn rewrite(
        &self,
        rule: &dyn Rule,
        lba: u64,
        data: &[u8],
        durability: Durability,
    ) -> Result<Option<Slot>> {
        let Some((slot, mut held)) = self.find(lba) else { return Ok(None) };
        self.store(rule, slot, &mut held, lba, data, durability)?;
        Ok(Some(slot))
    }

    /// Puts a block that no slot holds into a free one.
    pub(super) fn fill(&self, rule: &dyn Rule, lba: u64, data: &[u8], durability: Durability) -> Result<Filled> {
        let Some(slot) = self.free.lock().pop() else { return Ok(Filled::NoneFree) };
        let mut held = self.held(slot).lock();
        {
            let mut part = self.part(lba).lock();
            if part.contains_key(&lba) {
                self.free.lock().push(slot);
                return Ok(Filled::AnotherHasIt);
            }
            part.insert(lba, slot);
        }
        self.used.fetch_add(1, Ordering::Relaxed);
        self.store(rule, slot, &mut held, lba, data, durability)?;
        Ok(Filled::Slot(slot))
    }

    /// Reads the block from the slot that holds it. None: no slot does.
    pub(super) fn read(&self, rule: &dyn Rule, lba: u64, out: &mut [u8]) -> Result<Option<Slot>> {
        let Some((slot, _held)) = self.find(lba) else { return Ok(None) };
        self.data.read(self.at(slot), out)?;
        rule.read(slot);
        Ok(Some(slot))
    }

    /// Whether a slot holds the block.
    pub(super) fn holds(&self, lba: u64) -> bool {
        self.part(lba).lock().contains_key(&lba)
    }

    /// Gives the slot that holds `lba` back without writing it to the device.
    pub(super) fn forget(&self, rule: &dyn Rule, lba: u64) {
        if let Some((slot, held)) = self.find(lba) {
            self.release(rule, slot, held, lba);
        }
    }

    /// Writes what `slot` holds to the device if that does not have it; true if it did.
    pub fn clean(&self, rule: &dyn Rule, slot: Slot) -> Result<bool> {
        self.write_back(rule, slot, &mut self.held(slot).lock())
    }

    /// Writes what `slot` holds to the device if that does not have it, and frees the slot; false
    /// if it was free already.
    pub fn evict(&self, rule: &dyn Rule, slot: Slot) -> Result<bool> {
        let mut held = self.held(slot).lock();
        let Some(lba) = held.lba else { return Ok(false) };
        self.write_back(rule, slot, &mut held)?;
        self.release(rule, slot, held, lba);
        Ok(true)
    }

    fn write_back(&self, rule: &dyn Rule, slot: Slot, held: &mut SlotState) -> Result<bool> {
        let (Some(lba), true) = (held.lba, held.dirty) else { return Ok(false) };
        // Taken out meanwhile: on virtual cores many threads share one of the system's, and others
        // go on while the device writes.
        let mut block = SCRATCH.take();
        block.resize(self.block_size, 0);
        self.data.read(self.at(slot), &mut block)?;
        self.device.write(Lba(lba), &block, Durability::Volatile)?;
        SCRATCH.set(block);
        self.mark(slot, held, false);
        rule.cleaned(slot);
        Ok(true)
    }

    /// Stores a block in its slot, and in the device too if it has to be durable at once.
    fn store(
        &self,
        rule: &dyn Rule,
        slot: Slot,
        held: &mut SlotState,
        lba: u64,
        data: &[u8],
        durability: Durability,
    ) -> Result<()> {
        self.data.write(self.at(slot), data);
        held.lba = Some(lba);
        self.mark(slot, held, true);
        rule.written(slot, lba);
        if durability == Durability::Fua {
            self.device.write(Lba(lba), data, Durability::Fua)?;
            self.mark(slot, held, false);
            rule.cleaned(slot);
        }
        Ok(())
    }

    /// As [`Slots::evict`], but the slot is free only by [`Slots::free`].
    pub fn evict_to_be_freed(&self, rule: &dyn Rule, slot: Slot) -> Result<bool> {
        let mut held = self.held(slot).lock();
        let Some(lba) = held.lba else { return Ok(false) };
        self.write_back(rule, slot, &mut held)?;
        self.drop_block(rule, slot, held, lba);
        Ok(true)
    }

    /// Frees slots that were evicted.
    pub fn free(&self, evicted: &[Slot]) {
        self.used.fetch_sub(u32::try_from(evicted.len()).expect("slots are counted so"), Ordering::Relaxed);
        self.free.lock().extend(evicted);
    }

    fn release(&self, rule: &dyn Rule, slot: Slot, held: MutexGuard<'_, SlotState>, lba: u64) {
        self.drop_block(rule, slot, held, lba);
        self.free(&[slot]);
    }

    /// `slot` holds nothing any more.
    fn drop_block(&self, rule: &dyn Rule, slot: Slot, mut held: MutexGuard<'_, SlotState>, lba: u64) {
        self.mark(slot, &mut held, false);
        held.lba = None;
        rule.freed(slot);
        self.part(lba).lock().remove(&lba);
    }

    fn mark(&self, slot: Slot, held: &mut SlotState, dirty: bool) {
        if held.dirty != dirty {
            held.dirty = dirty;
            let (word, bit) = (&self.dirty[slot.0 as usize / 64], 1 << (slot.0 % 64));
            match dirty {
                true => word.fetch_or(bit, Ordering::Release),
                false => word.fetch_and(!bit, Ordering::Release),
            };
        }
    }

    /// The slot that holds `lba`, locked.
    fn find(&self, lba: u64) -> Option<(Slot, MutexGuard<'_, SlotState>)> {
        loop {
            let slot = *self.part(lba).lock().get(&lba)?;
            let held = self.held(slot).lock();
            if held.lba == Some(lba) {
                return Some((slot, held));
            }
        }
    }

    fn at(&self, slot: Slot) -> u64 {
        self.base + u64::from(slot.0) * self.block_size as u64
    }

    fn held(&self, slot: Slot) -> &Mutex<SlotState> {
        &self.held[slot.0 as usize]
    }

    fn part(&self, lba: u64) -> &Mutex<HashMap<u64, Slot>> {
        let spread = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.table[spread as usize % PARTS]
    }
}
