//! The rivals of transit: write caches that *stage*. They keep what was written until they must let
//! go of it.
//!
//! All are one mechanism, [`Staging`], under four rules ([`Rule`]) of what to let go of and when:
//!
//! | rule | described in | lets go of |
//! | --- | --- | --- |
//! | [`Pmbd`] | Caiti § 3, § 5.1 | a whole buffer, by a writer, when no slot of it is free |
//! | [`Pmbd70`] | Chen et al. (PMBD); Caiti § 5.1 | a buffer, by the syncer, when 70 % are used |
//! | [`Lru`] | Caiti § 3, § 5.1 | the block used longest ago, by a writer, when no slot is free |
//! | [`Coa`] | Sun et al. (Co-Active); Caiti § 5.1 | cold dirty blocks, while the device is idle |
//!
//! PMBD's two divide the cache into [`Buffers`], each of which is a cache for its part of the
//! device; the others have one. The syncer is a thread of its own. [`Coa`] lets go of clean blocks
//! first when no slot is free.
//!
//! They stand on any [`BlockDevice`], as the transit cache does, and get the same care: the same
//! copy routine, the same locks, a table of 64 parts, and no lock held during a copy but that of
//! the block's own slot.
//!
//! What the sources leave open, and what was chosen: a read that misses is not cached (so for all
//! of them, as in Caiti); a write with FUA goes through to the device and leaves its slot clean; a
//! flush writes what is dirty back and keeps it cached as clean, except that PMBD's two, whose
//! sources drain buffers, free what they write back. Each rule says the rest.

mod buffers;
mod coa;
mod list;
mod lru;
mod pmbd;
mod slots;

pub use buffers::Buffers;
pub use coa::Coa;
pub use lru::Lru;
pub use pmbd::{Pmbd, Pmbd70};
pub use slots::{Slot, Slots};

use slots::Filled;
use std::sync::Arc;
use tidegate_media::{
    BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, MappedRegion, Region, Result,
};

/// What tells the staging caches apart. It is told of what happens to a slot under that slot's
/// lock, so it asks the slots for nothing then, and holds no lock of its own when it does.
pub trait Rule: Send + Sync {
    /// A rule for a cache of `slots` slots.
    fn new(slots: u32) -> Self
    where
        Self: Sized;

    /// A request of somebody else's begins.
    fn begin(&self) {}

    /// It has ended, well or not.
    fn end(&self) {}

    /// `slot` was filled with `lba`, for the first time or again, and is dirty.
    fn written(&self, _slot: Slot, _lba: u64) {}

    /// `slot` was read.
    fn read(&self, _slot: Slot) {}

    /// The device has what `slot` holds.
    fn cleaned(&self, _slot: Slot) {}

    /// `slot` holds nothing any more.
    fn freed(&self, _slot: Slot) {}

    /// No slot was free a moment ago: sees to it that one is when the caller looks again, unless
    /// another writer takes it first.
    fn make_room(&self, slots: &Slots) -> Result<()>;

    /// A step of the thread beside the cache; true: it is to look again at once.
    fn background_step(&self, _slots: &Slots) -> Result<bool> {
        Ok(false)
    }

    /// Whether a flush frees the slots that it writes back.
    fn flush_frees(&self) -> bool {
        false
    }

    /// Into how many buffers the cache is divided, each with this rule for itself.
    fn buffers() -> u32
    where
        Self: Sized,
    {
        1
    }

    /// Bytes of the rule's own lists.
    fn metadata_bytes(&self) -> usize {
        0
    }
}

/// What a writer that found no slot is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It begins to make room, or to wait for who does.
    Wanted,
    /// It goes on.
    Made,
}

/// Who is told of every writer that finds no slot, on the writer's thread.
pub type RoomListener = Arc<dyn Fn(Room) + Send + Sync>;

/// A staging cache over a device.
pub struct Staging<P> {
    slots: Slots,
    rule: P,
    told: Option<RoomListener>,
}

impl<P: Rule> Staging<P> {
    /// A cache of `slots` slots over `device`.
    pub fn new(device: Arc<dyn BlockDevice>, slots: u32) -> anyhow::Result<Staging<P>> {
        let bytes = u64::from(slots) * u64::from(device.geometry().block_size);
        Staging::over(Arc::new(MappedRegion::anonymous(bytes.max(1))?), device, slots)
    }

    /// A cache of `slots` slots over `device`, whose slots lie in `memory`.
    pub fn over(memory: Arc<dyn Region>, device: Arc<dyn BlockDevice>, slots: u32) -> anyhow::Result<Staging<P>> {
        Staging::over_part(memory, 0, device, slots)
    }

    /// A cache of `slots` slots over `device`, whose slots lie in `memory` from `base` on.
    fn over_part(
        memory: Arc<dyn Region>,
        base: u64,
        device: Arc<dyn BlockDevice>,
        slots: u32,
    ) -> anyhow::Result<Staging<P>> {
        anyhow::ensure!(slots > 0, "a cache has at least one slot");
        Ok(Staging { slots: Slots::new(memory, base, device, slots)?, rule: P::new(slots), told: None })
    }

    /// Bytes beside the blocks that the cache has now.
    pub fn metadata_bytes(&self) -> usize {
        self.slots.metadata_bytes() + self.rule.metadata_bytes()
    }

    /// Has `told` told of writers that find no slot.
    pub fn tell(&mut self, told: RoomListener) {
        self.told = Some(told);
    }

    fn make_room(&self) -> Result<()> {
        let tell = |room| self.told.iter().for_each(|told| told(room));
        tell(Room::Wanted);
        let made = self.rule.make_room(&self.slots);
        tell(Room::Made);
        made
    }

    /// One step of the thread that the rule has beside the cache, if it has one; true: call again
    /// at once.
    pub fn background_step(&self) -> Result<bool> {
        self.rule.background_step(&self.slots)
    }

    /// Blocks that the cache holds, dirty or clean.
    pub fn cached(&self) -> u32 {
        self.slots.used()
    }

    /// Writes back everything that is dirty; it is durable once the device is flushed.
    fn write_back(&self) -> Result<()> {
        for slot in self.slots.dirty() {
            match self.rule.flush_frees() {
                true => self.slots.evict(&self.rule, slot)?,
                false => self.slots.clean(&self.rule, slot)?,
            };
        }
        Ok(())
    }

    /// A request from here until what is returned is dropped.
    fn request(&self) -> Request<'_> {
        self.rule.begin();
        Request(&self.rule)
    }

    fn write_block(&self, lba: u64, data: &[u8], durability: Durability) -> Result<()> {
        while self.slots.rewrite(&self.rule, lba, data, durability)?.is_none() {
            match self.slots.fill(&self.rule, lba, data, durability)? {
                Filled::Slot(_) => break,
                Filled::AnotherHasIt => {}
                Filled::NoneFree => self.make_room()?,
            }
        }
        Ok(())
    }

    fn read_block(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        match self.slots.read(&self.rule, lba, out)? {
            Some(_) => Ok(()),
            None => self.slots.device().read(Lba(lba), out),
        }
    }

    /// Drops what is cached of `range`: the device is about to be told something newer.
    fn forget(&self, range: LbaRange) {
        range.iter().for_each(|lba| self.slots.forget(&self.rule, lba.0));
    }
}

impl<P: Rule> BlockDevice for Staging<P> {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, ..self.slots.device().geometry() }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let _request = self.request();
        let geometry = self.geometry();
        let range = geometry.range(at, out.len())?;
        let blocks = out.chunks_exact_mut(geometry.block_size as usize);
        range.iter().zip(blocks).try_for_each(|(lba, block)| self.read_block(lba.0, block))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let _request = self.request();
        let geometry = self.geometry();
        let range = geometry.range(at, data.len())?;
        let blocks = data.chunks_exact(geometry.block_size as usize);
        range.iter().zip(blocks).try_for_each(|(lba, block)| self.write_block(lba.0, block, durability))
    }

    fn flush(&self) -> Result<()> {
        let _request = self.request();
        self.write_back()?;
        self.slots.device().flush()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        let _request = self.request();
        let range = self.geometry().within(range)?;
        self.forget(range);
        self.slots.device().discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        let _request = self.request();
        let range = self.geometry().within(range)?;
        self.forget(range);
        self.slots.device().write_zeroes(range, durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        let range = self.geometry().within(range)?;
        // A hole of the device may be dirty here.
        let cached = range.iter().take_while(|lba| self.slots.holds(lba.0)).count() as u64;
        if cached > 0 {
            return Ok(Extent { blocks: cached, kind: ExtentKind::Data });
        }
        let below = self.slots.device().extent(range)?;
        let uncached = range.iter().take_while(|lba| !self.slots.holds(lba.0)).count() as u64;
        Ok(Extent { blocks: below.blocks.min(uncached.max(1)), ..below })
    }
}

/// A request that is under way.
struct Request<'a>(&'a dyn Rule);

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests;
