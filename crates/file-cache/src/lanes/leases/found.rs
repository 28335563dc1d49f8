//! Leases that are found when the lane is opened.

use crate::error::FileError;
use crate::lanes::lane::Lane;
use crate::lanes::lease::{Lease, LentBlock};
use crate::lanes::slots::Slot;
use crate::region_io::Medium;
use std::collections::BTreeSet;
use tidegate_layout::file_cache::{
    LEASE_CLASS, LeaseElement, LeaseHead, LeaseMark, LeasePlan, LentChunk, NOT_CLOSED, TrustedLease, UNITS_PER_CHUNK,
};
use tidegate_media::{Error, Region, Result};
use zerocopy::{FromZeros, IntoBytes};

/// A lease log that an earlier process left.
pub(crate) struct FoundLease {
    /// The entry that names it.
    pub(crate) slot: u32,
    pub(crate) lease: TrustedLease,
    /// Whether its file has a record.
    pub(crate) has_file: bool,
}

/// A chunk that was lent.
pub(crate) struct FoundChunk {
    /// The entry that says so.
    pub(crate) slot: u32,
    pub(crate) lent: LentChunk,
}

/// What ended the process that had the lane open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOf {
    /// The machine, or memory that outlives a process is gone for another reason: nobody has a
    /// lease.
    Machine,
    /// The process alone: others may have leases.
    Process,
}

impl FoundLease {
    fn plan<R: Region>(&self, medium: &Medium<R>) -> LeasePlan {
        LeasePlan::of(medium.plan.block_at(self.lease.unit), self.lease.class)
    }

    /// Before anything else is done after a power loss: nothing is visible but what is committed.
    pub(crate) fn take_back<R: Region>(&self, medium: &Medium<R>) -> Result<()> {
        let plan = self.plan(medium);
        let committed = medium.region.load_u64(plan.committed_at())?;
        medium.region.store_u64(plan.lease_at(), 0);
        medium.region.store_u64(plan.closed_at(), NOT_CLOSED);
        medium.region.store_u64(plan.visible_at(), committed);
        Ok(())
    }

    /// How many elements were taken over, and how many are there. A head that its process spoilt
    /// has none that was not.
    fn progress<R: Region>(&self, medium: &Medium<R>) -> Result<(u64, u64)> {
        let plan = self.plan(medium);
        let mut head = LeaseHead::new_zeroed();
        medium.region.read(plan.at, head.as_mut_bytes())?;
        let closed = head.closed.get();
        let there = if closed == NOT_CLOSED { head.visible.get() } else { closed };
        let adopted = self.lease.mark.adopted(there, plan.elements);
        Ok(adopted.filter(|_| self.has_file).map_or((there, there), |adopted| (adopted, there)))
    }
}

impl<R: Region> Lane<R> {
    /// Takes over what was written by leases, which are revoked. Their logs and chunks wait to be
    /// released, or are free at once.
    pub(crate) fn take_over_leases(
        &mut self,
        found: &[FoundLease],
        chunks: &[FoundChunk],
        ended: EndOf,
    ) -> Result<(), FileError> {
        for FoundLease { slot, lease, .. } in found {
            let plan = LeasePlan::of(self.medium.plan.block_at(lease.unit), lease.class);
            let number = self.load_word(plan.lease_at())?;
            self.slots.take_this(*slot);
            self.leases.insert(*slot, Lease::new(plan, lease, number));
            // First of all: what a process writes behind what is looked at here would be lost.
            if lease.mark != LeaseMark::Closed {
                self.stop(&plan)?;
            }
        }
        self.lend_chunks_again(chunks)?;
        for found in found {
            let (adopted, there) = found.progress(&self.medium)?;
            if let Some(lease) = self.leases.get_mut(&found.slot) {
                lease.adopted = adopted;
            }
            self.lend_again(found.slot, adopted, there)?;
        }
        for found in found {
            if found.has_file && found.lease.mark != LeaseMark::Closed {
                self.close_log(found.slot)?;
            }
            if ended == EndOf::Machine {
                self.release(found.slot)?;
            }
        }
        Ok(())
    }

    /// The chunks of leases are their own again. Whoever was about to lend or to release one may
    /// have left it without a log, or have used it by now for blocks of another class: its entry is
    /// freed.
    fn lend_chunks_again(&mut self, chunks: &[FoundChunk]) -> Result<(), FileError> {
        if chunks.is_empty() {
            return Ok(());
        }
        let mut others: BTreeSet<u32> = self.leases.values().map(|lease| lease.unit / UNITS_PER_CHUNK).collect();
        let is_other = |(_, slot): &(u32, Slot)| slot.extent.class != LEASE_CLASS;
        others.extend(self.slots.in_use().filter(is_other).map(|(_, slot)| slot.extent.unit / UNITS_PER_CHUNK));
        let mut orphans = Vec::new();
        for FoundChunk { slot, lent } in chunks {
            let lease = self.leases.get_mut(&lent.log).filter(|lease| lease.file.0 == lent.file);
            match lease.filter(|_| !others.contains(&lent.chunk)) {
                Some(lease) if self.blocks.lend_chunk_again(lent.log, lent.chunk) => {
                    self.slots.take_this(*slot);
                    lease.chunks.push(*slot);
                }
                _ => orphans.push(*slot),
            }
        }
        self.free_entries(orphans.iter())
    }

    fn element(&self, plan: &LeasePlan, number: u64) -> Result<LeaseElement, FileError> {
        let mut raw = LeaseElement::new_zeroed();
        self.medium.region.read(plan.element_at(number), raw.as_mut_bytes()).map_err(Error::from)?;
        Ok(raw)
    }

    /// Finds entries for the blocks that are to be adopted from `adopted` on, as far as they are
    /// free ones of the lease's chunks.
    fn lend_again(&mut self, slot: u32, adopted: u64, there: u64) -> Result<(), FileError> {
        let Some(lease) = self.leases.get(&slot) else { return Ok(()) };
        let plan = lease.plan;
        for number in adopted..there.min(adopted.saturating_add(u64::from(plan.elements))) {
            let block = self.element(&plan, number)?.block(&self.medium.plan);
            let own = block.filter(|unit| self.blocks.lent().lease_of(unit / UNITS_PER_CHUNK) == Some(slot));
            // Those behind it would not be adopted.
            let Some(unit) = own.filter(|unit| self.blocks.take_this(*unit, LEASE_CLASS)) else { break };
            match (self.slots.take_free(), self.leases.get_mut(&slot)) {
                (Some(entry), Some(lease)) => lease.lent.push_back(LentBlock { unit, entry }),
                _ => {
                    self.blocks.give(unit, LEASE_CLASS);
                    break;
                }
            }
        }
        Ok(())
    }
}
