//! Slots in a region: headers and blocks.

use crate::options::Fill;
use tidegate_layout::write_cache::{SlotHead, SlotPlan};
use tidegate_media::{Poison, Region, Sealed};

/// The version of a slot that holds nothing.
pub(crate) const FREE: u64 = 0;

/// The slots of a cache in their memory.
#[derive(Debug)]
pub(crate) struct Slots<R> {
    region: R,
    plan: SlotPlan,
    fill: Fill,
}

impl<R: Region> Slots<R> {
    pub(crate) fn new(region: R, plan: SlotPlan, fill: Fill) -> Slots<R> {
        Slots { region, plan, fill }
    }

    pub(crate) fn region(&self) -> &R {
        &self.region
    }

    pub(crate) fn plan(&self) -> SlotPlan {
        self.plan
    }

    /// Empties a slot in memory that may never have been used. The system gives such memory when it
    /// is touched first, many pages at a time: that took 6 ms of the first write.
    pub(crate) fn lay_out(&self, slot: u32) {
        self.clear(slot);
        self.region.write(self.plan.block_at(slot), &[0; 8]);
    }

    /// Puts a block into a free slot. Nobody else sees the slot before [`Slots::publish`].
    pub(crate) fn fill(&self, slot: u32, lba: u64, data: &[u8]) -> Result<(), Sealed> {
        self.region.store_u64(self.plan.head_at(slot), lba);
        match self.fill {
            Fill::Copy => self.region.write(self.plan.block_at(slot), data),
            Fill::Stream => self.region.stream(self.plan.block_at(slot), data),
        }
        // Streamed bytes are visible from here on, before the version that `publish` stores; and a
        // lost store is noticed.
        self.region.fence()
    }

    /// The slot holds its block as `version` from now on, for readers and after a kill.
    pub(crate) fn publish(&self, slot: u32, version: u64) {
        self.region.store_u64(self.plan.head_at(slot) + SlotHead::VERSION_AT, version);
    }

    /// The slot holds nothing any more.
    pub(crate) fn clear(&self, slot: u32) {
        self.publish(slot, FREE);
    }

    /// The block of a slot that is linked.
    #[track_caller]
    pub(crate) fn lba(&self, slot: u32) -> Result<u64, Poison> {
        self.region.load_u64(self.plan.head_at(slot))
    }

    #[track_caller]
    pub(crate) fn version(&self, slot: u32) -> Result<u64, Poison> {
        self.region.load_u64(self.plan.head_at(slot) + SlotHead::VERSION_AT)
    }

    /// Copies the block out; whether it is whole, the version tells afterwards.
    pub(crate) fn copy_out(&self, slot: u32, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(self.plan.block_at(slot), out)
    }
}
