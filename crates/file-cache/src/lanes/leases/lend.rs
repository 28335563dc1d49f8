//! How a file is lent.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::io::end_in_file;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::lease::{Lease, LeaseId};
use std::collections::BTreeMap;
use std::ops::Range;
use tidegate_layout::file_cache::{
    Class, LEASE_CLASS, LeaseElement, LeaseGrant, LeaseHead, LeaseMark, LeasePlan, TrustedLease, VERSION_MAX,
};
use tidegate_media::Region;
use zerocopy::IntoBytes;

impl<R: Region> FileCache<R> {
    /// Lends a file: whoever has the lease may write within `room`, where the file below reserves
    /// room, without asking. The log has blocks of class `log`, which says how many writes fit
    /// between two [extensions](FileCache::extend). The file's unsynced writes are synced first. As
    /// before a write, the caller has [noted](FileCache::note_modified) when the file is changed.
    /// `None`: the pool has no room for that.
    pub fn lend(&self, file: FileId, room: Range<u64>, log: Class) -> Result<Option<(LeaseId, LeaseGrant)>, FileError> {
        self.exclusively(file, || {
            self.refresh(file)?;
            let bytes = room.end.saturating_sub(room.start);
            end_in_file(room.start, bytes)?;
            self.reserve(file, room.start, bytes)?;
            self.ensure_record(file)?;
            self.sync_exclusively(file)?;
            // A sync that found no room has brought the file below, without a record.
            self.ensure_record(file)?;
            self.lane().lend(file, &room, log)
        })
    }

    /// Takes over what was written by a lease, and lends new blocks for it. False: there are none,
    /// or the lease was revoked.
    pub fn extend(&self, lease: LeaseId) -> Result<bool, FileError> {
        self.lane().extend(lease.0)
    }
}

impl<R: Region> Lane<R> {
    fn lend(
        &mut self,
        file: FileId,
        room: &Range<u64>,
        class: Class,
    ) -> Result<Option<(LeaseId, LeaseGrant)>, FileError> {
        if self.version == VERSION_MAX {
            return Err(FileError::Worn);
        }
        let Some((slot, unit)) = self.take(class)? else { return Ok(None) };
        let plan = LeasePlan::of(self.medium.plan.block_at(unit), class);
        let number = self.version + 1;
        let mut lease = Lease { plan, unit, class, file, number, given: 0, adopted: 0, lent: BTreeMap::new() };
        self.lend_blocks(&mut lease)?;
        let lent = lease.given;
        if lent == 0 {
            self.blocks.give(unit, class);
            self.slots.give_back(slot);
            return Ok(None);
        }
        let head = LeaseHead::new(number, lent);
        self.medium.region.stream(plan.at, head.as_bytes());
        let named = TrustedLease { file: file.0, unit, class, mark: LeaseMark::open(0) };
        self.medium.put_lease(slot, &named, number)?;
        self.version = number;
        self.leases.insert(slot, lease);
        let cached = self.file_mut(file)?;
        cached.lease = Some(slot);
        let (size, room) = (cached.size, [room.start, room.end]);
        let grant = LeaseGrant { lease: number, log: plan, blocks_at: self.medium.plan.block_at(0), size, room };
        Ok(Some((LeaseId(slot), grant)))
    }

    /// Names blocks in the next elements, as many as have a place and there is room for.
    fn lend_blocks(&mut self, lease: &mut Lease) -> Result<(), FileError> {
        while lease.given < lease.adopted + u64::from(lease.plan.elements) {
            let Some((slot, unit)) = self.take(LEASE_CLASS)? else { return Ok(()) };
            lease.lent.insert(unit, slot);
            let element = LeaseElement::lent(unit, lease.given);
            self.medium.region.stream(lease.plan.element_at(lease.given), element.as_bytes());
            lease.given += 1;
        }
        Ok(())
    }

    fn extend(&mut self, slot: u32) -> Result<bool, FileError> {
        let Some(Lease { plan, file, given, .. }) = self.leases.get(&slot) else { return Ok(false) };
        let (plan, file, before) = (*plan, *file, *given);
        if self.file(file)?.lease == Some(slot) {
            self.adopt(file)?;
        }
        if self.file(file)?.lease != Some(slot) {
            return Ok(false);
        }
        let Some(mut lease) = self.leases.remove(&slot) else { return Ok(false) };
        let named = self.lend_blocks(&mut lease);
        let lent = lease.given;
        self.leases.insert(slot, lease);
        named?;
        // Others see what was streamed.
        self.medium.fence()?;
        self.medium.region.store_u64(plan.lent_at(), lent);
        Ok(lent > before)
    }
}
