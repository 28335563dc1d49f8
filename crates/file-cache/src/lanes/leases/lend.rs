//! How a file is lent.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::io::end_in_file;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::lease::{Lease, LeaseId};
use std::ops::Range;
use tidegate_layout::file_cache::{
    Class, FileEntry, LeaseElement, LeaseGrant, LeaseHead, LeaseMark, LeasePlan, TrustedLease, VERSION_MAX,
};
use tidegate_media::Region;
use zerocopy::IntoBytes;

impl<R: Region> FileCache<R> {
    /// Lends a file: see [`FilePool::lend`]. The pool says already that files may be lent.
    ///
    /// [`FilePool::lend`]: crate::pool::FilePool::lend
    pub(crate) fn lend(
        &self,
        file: FileId,
        room: Range<u64>,
        log: Class,
    ) -> Result<Option<(LeaseId, LeaseGrant)>, FileError> {
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
        let Some((slot, unit)) = self.take(class)? else { return Ok(None) };
        let plan = LeasePlan::of(self.medium.plan.block_at(unit), class);
        let named = TrustedLease { file: file.0, unit, class, mark: LeaseMark::open(0) };
        self.leases.insert(slot, Lease::new(plan, &named, 0));
        let lent = self.lend_blocks(slot)?;
        if lent == 0 {
            self.take_back(slot)?;
            return Ok(None);
        }
        if self.version == VERSION_MAX {
            return Err(FileError::Worn);
        }
        let number = self.version + 1;
        let head = LeaseHead::new(number, lent);
        self.medium.region.stream(plan.at, head.as_bytes());
        self.medium.put_entry(slot, FileEntry::lease_words(&named, number))?;
        self.version = number;
        if let Some(lease) = self.leases.get_mut(&slot) {
            lease.number = number;
        }
        let cached = self.file_mut(file)?;
        cached.lease = Some(slot);
        let (size, room) = (cached.size, [room.start, room.end]);
        let grant = LeaseGrant { lease: number, log: plan, blocks_at: self.medium.plan.block_at(0), size, room };
        Ok(Some((LeaseId(slot), grant)))
    }

    /// Names blocks in the next elements, as many as have a place and there is room for. Says how
    /// many elements were given a block by now.
    fn lend_blocks(&mut self, slot: u32) -> Result<u64, FileError> {
        let Some(Lease { plan, given, adopted, .. }) = self.leases.get(&slot) else { return Ok(0) };
        let (plan, first, until) = (*plan, *given, *adopted + u64::from(plan.elements));
        let wanted = usize::try_from(until.saturating_sub(first)).unwrap_or(usize::MAX);
        let blocks = self.blocks_for_lease(slot, wanted)?;
        let Some(lease) = self.leases.get_mut(&slot) else { return Ok(first) };
        for (number, (unit, entry)) in (first..).zip(blocks) {
            lease.lent.insert(unit, entry);
            lease.given = number + 1;
            self.medium.region.stream(plan.element_at(number), LeaseElement::lent(unit, number).as_bytes());
        }
        Ok(lease.given)
    }

    fn extend(&mut self, slot: u32) -> Result<bool, FileError> {
        let Some(Lease { plan, file, given, .. }) = self.leases.get(&slot) else { return Ok(false) };
        let (plan, file, before) = (*plan, *file, *given);
        if self.file(file).is_ok_and(|file| file.lease == Some(slot)) {
            self.adopt(file)?;
        }
        if self.file(file).map_or(true, |file| file.lease != Some(slot)) {
            return Ok(false);
        }
        let lent = self.lend_blocks(slot)?;
        // Others see what was streamed.
        self.medium.fence()?;
        self.medium.region.store_u64(plan.lent_at(), lent);
        Ok(lent > before)
    }
}
