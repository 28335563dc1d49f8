//! Leases: another process writes a file without asking.
//!
//! A process that has a lease streams bytes to blocks that were lent to it, and says in a *lease
//! log* where they belong. It stores to these blocks, to its line of the log's head and to elements
//! of the log, and to nothing else; everything that it says is checked before the lane rests on it.
//! Several processes may have one lease: they take turns.
//! [`LeasedFile`](tidegate_leased_file::LeasedFile) is its side.
//!
//! # Who stores what
//!
//! | words | by | what |
//! | --- | --- | --- |
//! | the log's entry | the lane | how many elements were taken over, or: closed |
//! | `lease` | the lane | the lease goes on |
//! | `lent`, `closed` | the lane | how many elements have a block; how many count |
//! | `lending`, `dropped`, `taken` | the lane | what processes find no more in log and blocks |
//! | `writer` | the process | it has its turn to write, or gives it back |
//! | a block, its element, **fence**, `size`, `visible` | the process | a write |
//! | `committed`, flush, **fence** | the process | a sync of what any process wrote |
//!
//! # How a write becomes the lane's
//!
//! The lane *adopts* visible elements: it checks each, and commits entries that name the blocks
//! where they lie. No byte is copied, but those of short writes that follow each other
//! (`gather.rs`). Each entry is a version of its own, so a later one has the bytes of an earlier
//! one. The commit says in the log's entry how many elements were taken over: none is taken over
//! twice, and none is left out.
//!
//! # How a lease ends
//!
//! Reads for the process that has the lease, questions about the file's length and time, and
//! write-back adopt what is visible, and the lease goes on. Any other operation on the file
//! *revokes* the lease first:
//!
//! 1. `lease` becomes 0. A sequentially consistent **fence**.
//! 2. `visible` is read, and stored in `closed`: so many elements count.
//! 3. They are adopted; then the entry says that the log is closed, **fence**.
//!
//! The process stores `visible`, and looks at `lease` after a sequentially consistent fence of its
//! own. If it finds its number, step 2 comes later and sees the write. If it does not, `closed`
//! tells whether the write counts. So nobody waits for a process that sleeps, is stopped or is
//! dead, and no write is done twice or not at all.
//!
//! A process that sleeps may wake up and go on with a block that it was lent. So the log and the
//! blocks that were not adopted stay as they are until the lease is *released*: the process says
//! that it has left, or is dead.
//!
//! # Which blocks are lent
//!
//! Those of whole chunks (`chunks.rs`), for each of which an entry says so, durably, before the
//! first block is lent. Until the release nobody but the lease gets a block there, also after a
//! kill of the process that had the lane open. So a process that stores to whatever it ever was
//! lent spoils its own file only. A log is trusted to name blocks of its lease's chunks, and no
//! others.
//!
//! # When the lane is opened
//!
//! After a power loss committed elements count, and nobody has a lease any more. After a kill of
//! the process that had the lane open, visible ones count, all leases are revoked, and logs and
//! chunks wait to be released.

mod adopt;
mod chunks;
pub(crate) mod found;
mod gather;
pub(crate) mod lease_room;
pub(crate) mod lend;

use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::lease::{Lease, LeaseId, LentBlock};
use std::ops::Range;
use tidegate_layout::file_cache::{LEASE_CLASS, MappedRun};
use tidegate_media::Region;

impl<R: Region> FileCache<R> {
    /// Every lease that was not released yet.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.lane().leases.keys().copied().map(LeaseId).collect()
    }

    /// The lease of a file that goes on, if it has one.
    pub fn lease_of(&self, file: FileId) -> Option<LeaseId> {
        self.lane().file(file).ok()?.lease.map(LeaseId)
    }

    /// The lease of this number, as its process knows it, if it is one of this file and was not
    /// released; it may be revoked. One that an earlier process revoked is not found.
    pub fn lease_numbered(&self, file: FileId, number: u64) -> Option<LeaseId> {
        let lane = self.lane();
        let is_meant = |lease: &Lease| lease.file == file && lease.number == number && number != 0;
        lane.leases.iter().find(|(_, lease)| is_meant(lease)).map(|(slot, _)| LeaseId(*slot))
    }

    /// Whether a lease was revoked, or is released.
    pub fn is_revoked(&self, lease: LeaseId) -> bool {
        let lane = self.lane();
        let file = lane.leases.get(&lease.0).and_then(|lease| lane.file(lease.file).ok());
        file.is_none_or(|file| file.lease != Some(lease.0))
    }

    /// Where in the pool's memory the log of a lease lies that was not released: whoever has the
    /// lease, or had it and does not know yet, has that mapped.
    pub fn log_of(&self, lease: LeaseId) -> Option<Range<u64>> {
        let lane = self.lane();
        let Lease { plan, class, .. } = lane.leases.get(&lease.0)?;
        Some(plan.at..plan.at + class.bytes())
    }

    /// Takes over what was written so far by a file's lease, if it has one; the lease goes on. What
    /// its process wrote is durable then. A process that broke the rules of its log loses its
    /// lease.
    pub fn adopt(&self, file: FileId) -> Result<(), FileError> {
        self.lane().adopt(file)
    }

    /// Ends the lease of a file, if it has one. What its process wrote is the lane's then.
    pub fn revoke(&self, file: FileId) -> Result<(), FileError> {
        self.lane().revoke(file)
    }

    /// Takes over what was written by a file's lease, and says where blocks of 4096 bytes lie in
    /// the pool's memory that begin in a range. They do until the log says that something was
    /// written there, or dropped. Without a lease, nowhere.
    pub fn locate(&self, file: FileId, range: &Range<u64>) -> Result<Vec<MappedRun>, FileError> {
        let mut lane = self.lane();
        lane.adopt(file)?;
        lane.located(file, range)
    }

    /// Ends a lease whose process has left the blocks that it was lent, or is dead.
    pub fn release(&self, lease: LeaseId) -> Result<(), FileError> {
        self.lane().release(lease.0)
    }
}

impl<R: Region> Lane<R> {
    /// Gives back a lease's log and blocks.
    fn release(&mut self, slot: u32) -> Result<(), FileError> {
        let Some(lease) = self.leases.get(&slot) else { return Ok(()) };
        if self.file(lease.file).is_ok_and(|file| file.lease == Some(slot)) {
            self.revoke(lease.file)?;
        }
        self.take_back(slot)
    }

    /// The log, the chunks and the entries of a lease are everybody's, durably.
    fn take_back(&mut self, slot: u32) -> Result<(), FileError> {
        let Some(lease) = self.leases.get(&slot) else { return Ok(()) };
        let file = lease.file;
        self.free_entries(lease.chunks.iter().chain([&slot]))?;
        let Some(Lease { unit, class, chunks, lent, .. }) = self.leases.remove(&slot) else { return Ok(()) };
        for LentBlock { unit, entry } in lent {
            self.blocks.give(unit, LEASE_CLASS);
            self.slots.give_back(entry);
        }
        self.blocks.give(unit, class);
        let returned = self.blocks.lent().of(slot).to_vec();
        self.blocks.end_lease(slot);
        self.place_returned(file, &returned);
        self.short_of_room = None;
        chunks.into_iter().chain([slot]).for_each(|entry| self.slots.give_back(entry));
        Ok(())
    }

    /// Bytes of a file leave their blocks, for the file below or for other blocks. Processes that
    /// read them there find so before anybody gets the blocks.
    pub(crate) fn note_dropped(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        cached.dropped += 1;
        let (dropped, lease) = (cached.dropped, cached.lease);
        if let Some(lease) = lease.and_then(|slot| self.leases.get(&slot)) {
            self.medium.region.store_u64(lease.plan.dropped_at(), dropped - lease.dropped_before);
            self.medium.fence()?;
        }
        Ok(())
    }

    /// Where blocks lie that begin in a range and have the newest bytes of a leased file: its whole
    /// pages, and what was written in such a length across pages.
    fn located(&self, file: FileId, range: &Range<u64>) -> Result<Vec<MappedRun>, FileError> {
        let cached = self.file(file)?;
        if cached.lease.is_none() {
            return Ok(Vec::new());
        }
        let block = LEASE_CLASS.bytes();
        let blocks = |(part, slot): (Range<u64>, u32)| {
            let (extent, page) = (self.slots.used(slot).extent, part.start.next_multiple_of(block));
            let pages = (part.end / block * block).checked_sub(page).filter(|bytes| *bytes > 0);
            let across = (part.end - part.start >= block).then_some((part.start, block));
            let (at, bytes) = pages.map(|bytes| (page, bytes)).or(across)?;
            let pool_at = self.medium.plan.block_at(extent.unit) + (at - extent.offset);
            let is_newest = range.contains(&at) && cached.unsynced_bytes(at..at + bytes) == 0;
            is_newest.then_some(MappedRun { at, pool_at, bytes })
        };
        let behind = range.start..range.end.saturating_add(block - 1);
        Ok(MappedRun::joined(cached.newest.within(behind).into_iter().filter_map(blocks)))
    }

    /// Has entries say that they are free, durably.
    pub(crate) fn free_entries<'a>(&self, entries: impl Iterator<Item = &'a u32>) -> Result<(), FileError> {
        for entry in entries {
            // Not older than any element of the ring.
            self.medium.store_state(*entry, self.version, 0);
            self.medium.flush_entry(*entry);
        }
        Ok(self.medium.fence()?)
    }
}
