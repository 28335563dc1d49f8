//! Leases that are found when the lane is opened.

use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::lease::Lease;
use crate::region_io::Medium;
use std::collections::BTreeMap;
use std::ops::Range;
use tidegate_layout::file_cache::{
    LEASE_CLASS, LeaseElement, LeaseHead, LeaseMark, LeasePlan, NOT_CLOSED, TrustedLease, UNITS_PER_CHUNK,
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
    /// Takes over what was written by leases, which are revoked. Their logs and blocks wait to be
    /// released, or are free at once.
    pub(crate) fn take_over_leases(&mut self, found: &[FoundLease], ended: EndOf) -> Result<(), FileError> {
        for found in found {
            let FoundLease { slot, lease: TrustedLease { unit, class, file, .. }, .. } = *found;
            let (plan, (adopted, there)) = (found.plan(&self.medium), found.progress(&self.medium)?);
            self.slots.take_this(slot);
            let number = self.load_word(plan.lease_at())?;
            let lease =
                Lease { plan, unit, class, file: FileId(file), number, given: 0, adopted, lent: BTreeMap::new() };
            self.leases.insert(slot, lease);
            // Blocks that are to be adopted come first: they find entries.
            self.lend_again(slot, adopted..there.min(adopted + u64::from(plan.elements)))?;
        }
        for found in found {
            if ended == EndOf::Process {
                self.lend_all_again(found.slot)?;
            }
            if found.has_file && found.lease.mark != LeaseMark::Closed {
                self.close_log(found.slot)?;
            }
            if ended == EndOf::Machine {
                self.release(found.slot)?;
            }
        }
        Ok(())
    }

    /// Whoever had the lease may go on to any block that an element names.
    fn lend_all_again(&mut self, slot: u32) -> Result<(), FileError> {
        let elements = self.leases.get(&slot).map_or(0, |lease| u64::from(lease.plan.elements));
        self.lend_again(slot, 0..elements)
    }

    /// Sets the blocks apart that these elements name, if they are free.
    fn lend_again(&mut self, slot: u32, elements: Range<u64>) -> Result<(), FileError> {
        for number in elements {
            let Some(lease) = self.leases.get_mut(&slot) else { return Ok(()) };
            let mut raw = LeaseElement::new_zeroed();
            let read = self.medium.region.read(lease.plan.element_at(number), raw.as_mut_bytes());
            read.map_err(Error::from)?;
            let unit = raw.unit.get();
            let is_block = unit.is_multiple_of(LEASE_CLASS.units()) && unit / UNITS_PER_CHUNK < self.medium.plan.chunks;
            if !is_block || !self.blocks.take_this(unit, LEASE_CLASS) {
                continue;
            }
            match self.slots.take_free() {
                Some(entry) => {
                    lease.lent.insert(unit, entry);
                }
                None => self.blocks.give(unit, LEASE_CLASS),
            }
        }
        Ok(())
    }
}
