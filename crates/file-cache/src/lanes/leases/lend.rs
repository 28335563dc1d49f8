//! How a file is lent.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::io::end_in_file;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::lease::{Lease, LeaseId};
use crate::tiers::nvm::FILE_OF_LOGS;
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
        let lent = self.finding_room(|without| {
            self.exclusively(file, || {
                self.refuse_mapped(file, 0)?;
                self.refresh(file)?;
                let bytes = room.end.saturating_sub(room.start);
                end_in_file(room.start, bytes)?;
                self.reserve(file, room.start, bytes)?;
                self.ensure_record(file)?;
                if self.sync_exclusively(file, without)?.is_none() {
                    return Ok(None);
                }
                // A sync that found no room has brought the file below, without a record.
                self.ensure_record(file)?;
                self.lane().lend(file, &room, log).map(Some)
            })
        });
        Ok(lent?.flatten())
    }

    /// Has another process share the lease of a file that goes on, if it may write `asked`.
    pub fn join(&self, file: FileId, asked: &Range<u64>, by: Sharer) -> Result<Option<LeaseGrant>, FileError> {
        self.lane().join(file, asked, by)
    }

    /// Reserves room for a lease of a file that goes on, which says so to whoever asks next.
    pub fn widen(&self, file: FileId, room: Range<u64>) -> Result<(), FileError> {
        self.while_busy(file, || {
            let bytes = room.end.saturating_sub(room.start);
            end_in_file(room.start, bytes)?;
            self.reserve(file, room.start, bytes)?;
            let mut lane = self.lane();
            let lease = lane.file(file)?.lease;
            if let Some(lease) = lease.and_then(|slot| lane.leases.get_mut(&slot)) {
                lease.room = [room.start, room.end];
            }
            Ok(())
        })
    }

    /// Takes over what was written by a lease, and lends new blocks for it, more than before.
    /// False: it has none, or was revoked.
    pub fn extend(&self, lease: LeaseId) -> Result<bool, FileError> {
        self.lane().extend(lease.0)
    }

    /// Does what [`FileCache::extend`] does before its process has to ask, in steps between which
    /// others have the lane. `None`: the lease was revoked.
    pub fn refill(&self, lease: LeaseId) -> Result<Option<LeaseStock>, FileError> {
        while self.lane().adopt_some(lease.0)? {}
        self.lane().refill(lease.0)
    }
}

/// Who asks for a lease that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharer {
    /// A process that has it, and needs more room.
    Holder,
    /// Another one.
    Another,
}

/// What a lease's process has used, and has left, when somebody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseStock {
    /// How many blocks its process has written since the lease began.
    pub written: u64,
    /// How many it may write before it has to ask for more.
    pub left: u64,
}

/// Elements that are taken over before others have the lane.
const STEP_ELEMENTS: u64 = 256;

impl<R: Region> Lane<R> {
    fn lend(
        &mut self,
        file: FileId,
        room: &Range<u64>,
        class: Class,
    ) -> Result<Option<(LeaseId, LeaseGrant)>, FileError> {
        let Some((slot, unit)) = self.take(class, FILE_OF_LOGS)? else { return Ok(None) };
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
        let (size, dropped) = (self.file(file)?.size, self.file(file)?.dropped);
        self.medium.region.stream(plan.at, LeaseHead::new(number, lent, size).as_bytes());
        self.medium.put_entry(slot, FileEntry::lease_words(&named, number))?;
        self.version = number;
        if let Some(lease) = self.leases.get_mut(&slot) {
            (lease.number, lease.room, lease.dropped_before) = (number, [room.start, room.end], dropped);
        }
        self.file_mut(file)?.lease = Some(slot);
        Ok(self.grant(file)?.map(|grant| (LeaseId(slot), grant)))
    }

    /// The lease of a file that goes on, as a process gets it.
    fn grant(&self, file: FileId) -> Result<Option<LeaseGrant>, FileError> {
        let cached = self.file(file)?;
        let lease = cached.lease.and_then(|slot| self.leases.get(&slot));
        let grant = |lease: &Lease| LeaseGrant {
            lease: lease.number,
            log: lease.plan,
            blocks_at: self.medium.plan.block_at(0),
            size: cached.size,
            room: lease.room,
        };
        Ok(lease.map(grant))
    }

    fn join(&mut self, file: FileId, asked: &Range<u64>, by: Sharer) -> Result<Option<LeaseGrant>, FileError> {
        self.adopt(file)?;
        let grant = self
            .grant(file)?
            .filter(|grant| asked.is_empty() || grant.room[0] <= asked.start && asked.end <= grant.room[1]);
        let lease = self.file(file)?.lease.filter(|_| grant.is_some());
        if let Some(lease) = lease.and_then(|slot| self.leases.get_mut(&slot)) {
            lease.is_common |= by == Sharer::Another;
        }
        Ok(grant)
    }

    /// Names blocks in the next elements, as many as the lease's window has room for. Says how many
    /// elements were given a block by now.
    fn lend_blocks(&mut self, slot: u32) -> Result<u64, FileError> {
        let Some(lease) = self.leases.get(&slot) else { return Ok(0) };
        let (plan, first, until) = (lease.plan, lease.given(), lease.adopted + lease.window());
        let wanted = usize::try_from(until.saturating_sub(first)).unwrap_or(usize::MAX);
        if wanted == 0 {
            return Ok(first);
        }
        let blocks = self.blocks_for_lease(slot, wanted)?;
        self.medium.region.store_u64(plan.lending_at(), first + blocks.len() as u64);
        // Whoever finds a place or a block given away finds that it may be.
        self.medium.fence()?;
        let Some(lease) = self.leases.get_mut(&slot) else { return Ok(first) };
        for (number, block) in (first..).zip(blocks) {
            lease.lent.push_back(block);
            self.medium.region.stream(plan.element_at(number), LeaseElement::lent(block.unit, number).as_bytes());
        }
        Ok(lease.given())
    }

    /// The file of a lease that goes on.
    fn leased_file(&self, slot: u32) -> Option<FileId> {
        let file = self.leases.get(&slot)?.file;
        self.file(file).ok().filter(|file| file.lease == Some(slot)).map(|_| file)
    }

    /// Takes over some of what was written by a lease. Says whether there is more.
    fn adopt_some(&mut self, slot: u32) -> Result<bool, FileError> {
        self.leased_file(slot).map_or(Ok(false), |file| self.adopt_at_most(file, STEP_ELEMENTS))
    }

    fn extend(&mut self, slot: u32) -> Result<bool, FileError> {
        let Some(file) = self.leased_file(slot) else { return Ok(false) };
        self.adopt(file)?;
        self.widen(slot);
        // Some were lent perhaps since its process asked.
        Ok(self.refill(slot)?.is_some_and(|stock| stock.left > 0))
    }

    /// The process came to the end of its blocks: it gets twice as many, as far as its log has
    /// room.
    fn widen(&mut self, slot: u32) {
        if let Some(lease) = self.leases.get_mut(&slot) {
            lease.window = lease.window.saturating_mul(2).min(u64::from(lease.plan.elements));
        }
    }

    /// Lends new blocks for a lease. `None`: it was revoked, perhaps because others need room.
    fn refill(&mut self, slot: u32) -> Result<Option<LeaseStock>, FileError> {
        let Some(file) = self.leased_file(slot) else { return Ok(None) };
        if self.is_to_yield(slot) {
            self.revoke(file)?;
            return Ok(None);
        }
        let lent = self.lend_blocks(slot)?;
        // Others see what was streamed.
        self.medium.fence()?;
        let Some(Lease { plan, .. }) = self.leases.get(&slot) else { return Ok(None) };
        self.medium.region.store_u64(plan.lent_at(), lent);
        let written = self.load_word(plan.visible_at())?;
        Ok(Some(LeaseStock { written, left: lent.saturating_sub(written) }))
    }
}
