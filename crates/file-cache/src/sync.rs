//! Syncs and synchronous writes: one atomic commit each.

mod append;
mod commit;
pub(crate) mod finding_room;
pub(crate) mod group;
pub(crate) mod group_bytes;

use crate::below::Refused;
use crate::cache::{FileCache, Synced};
use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::sync::commit::Placed;
use crate::sync::finding_room::WithoutRoom;
use crate::sync::group::GroupWrite;
use crate::tiers::dram::{first_runs, runs};
use std::ops::Range;
use tidegate_media::Region;

/// The kernel's errno where there is no room.
const ENOSPC: i32 = 28;

/// Where bytes come from that are to be committed.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// From the blocks of unsynced writes.
    Unsynced,
    /// From a synchronous write at offset `at`.
    Given { at: u64, data: &'a [u8] },
    /// From a group of writes.
    Group(&'a [GroupWrite<'a>]),
}

/// Where bytes are to go in the pool.
enum Destination {
    /// Behind the last bytes of this entry.
    Behind(u32),
    /// Into fresh blocks.
    Fresh(Vec<Placed>),
}

impl<R: Region> FileCache<R> {
    /// Makes everything durable that was written to the file before, in one atomic commit.
    pub fn sync(&self, file: FileId) -> Result<Synced, FileError> {
        let mut lane = self.ready(file)?;
        if !lane.file(file)?.mapped.is_empty() {
            drop(lane);
            self.sync_mapped_of(file)?;
            lane = self.ready(file)?;
        }
        if lane.commit_all_unsynced(file)? {
            return Ok(Synced::Atomically);
        }
        drop(lane);
        let synced = self.finding_room(|without| self.exclusively(file, || self.sync_exclusively(file, without)))?;
        Ok(synced.unwrap_or(Synced::Below))
    }

    /// A sync that goes below, for the file's first record, or one for want of room here. `None`:
    /// it has to wait for that.
    pub(crate) fn sync_exclusively(&self, file: FileId, without: WithoutRoom) -> Result<Option<Synced>, FileError> {
        let (nothing, backing) = {
            let lane = self.lane();
            let cached = lane.file(file)?;
            (cached.written.is_empty() && cached.record.is_none(), cached.backing()?.clone())
        };
        if nothing {
            // What the kernel's path did, and a length that no record has.
            backing.sync_with_times()?;
            return Ok(Some(Synced::Below));
        }
        self.ensure_record(file)?;
        let owes = self.lane().file(file)?.owes_sync_below;
        if owes {
            // The mark that a write-back beside this has seen is not the file's any more.
            self.lane().touch(file)?;
            backing.sync_with_times()?;
            self.lane().file_mut(file)?.owes_sync_below = false;
        }
        if self.lane().commit_all_unsynced(file)? {
            return Ok(Some(if owes { Synced::Below } else { Synced::Atomically }));
        }
        match without {
            // Room for so many elements is not to be had by write-back.
            WithoutRoom::Wait if self.lane().outgrows_a_commit(file)? => self.sync_in_parts(file),
            WithoutRoom::Wait => Ok(None),
            WithoutRoom::InParts => self.sync_in_parts(file),
            WithoutRoom::Below => self.commit_below(file, None).map(Some),
        }
    }

    /// Commits one write after the other, or those that overlap; `None` if one finds no room.
    fn sync_in_parts(&self, file: FileId) -> Result<Option<Synced>, FileError> {
        let mut lane = self.lane();
        loop {
            let ranges = first_runs(&lane.file(file)?.written, 1);
            if ranges.is_empty() {
                lane.counters.below += 1;
                return Ok(Some(Synced::Below));
            }
            if !lane.commit_unsynced(file, &ranges)? {
                return Ok(None);
            }
        }
    }

    /// Writes `data` durably. Unsynced bytes of the same range are overwritten too, so that they
    /// stay the newest. `None`: nothing is written, for want of room.
    pub(crate) fn write_synced(
        &self,
        file: FileId,
        (at, data): (u64, &[u8]),
        without: WithoutRoom,
    ) -> Result<Option<Synced>, FileError> {
        self.ensure_record(file)?;
        if self.lane().commit_given(file, at, data)? {
            return Ok(Some(Synced::Atomically));
        }
        if without != WithoutRoom::Below {
            return Ok(None);
        }
        // If the file below refuses, the bytes are unsynced ones, and the next sync tries again.
        let unsynced = self.lane().write_unsynced(file, at, data)?;
        let rest = (unsynced < data.len()).then(|| (at + unsynced as u64, &data[unsynced..]));
        self.commit_below(file, rest).map(Some)
    }

    /// Makes the record of a file that has none: at its first sync. Its creation and all that the
    /// kernel's path wrote get durable first.
    pub(crate) fn ensure_record(&self, file: FileId) -> Result<(), FileError> {
        if self.lane().file(file)?.record.is_some() {
            return Ok(());
        }
        let (backing, _) = self.known_below(file)?;
        self.cut_below(file)?;
        backing.sync_with_times()?;
        let status = backing.status()?;
        self.lane().make_record(file, status)
    }

    /// No room in the pool: the file is brought below, with what was to be committed.
    pub(crate) fn commit_below(&self, file: FileId, given: Option<(u64, &[u8])>) -> Result<Synced, FileError> {
        if !self.lane().file(file)?.mapped.is_empty() {
            // It cannot be brought below as a whole, and waits in DRAM.
            return Err(Refused { errno: ENOSPC }.into());
        }
        self.drain_exclusively(file, given)?;
        self.lane().counters.below += 1;
        Ok(Synced::Below)
    }
}

impl<R: Region> Lane<R> {
    /// Commits all unsynced writes of a file that has a record. False if the pool has no room, or
    /// something is to be done below first.
    fn commit_all_unsynced(&mut self, file: FileId) -> Result<bool, FileError> {
        let cached = self.file(file)?;
        if cached.record.is_none() || cached.owes_sync_below {
            return Ok(false);
        }
        let ranges = runs(&cached.written);
        if ranges.is_empty() {
            if self.begin_modified(file)? {
                self.medium.fence()?;
            }
            return Ok(true);
        }
        self.commit_unsynced(file, &ranges)
    }

    /// Whether a file has more unsynced writes, far from each other, than one commit takes.
    fn outgrows_a_commit(&self, file: FileId) -> Result<bool, FileError> {
        Ok(runs(&self.file(file)?.written).len() > self.medium.plan.commit_elements_max())
    }

    /// Commits some unsynced writes of a file that has a record. False if the pool has no room.
    pub(crate) fn commit_unsynced(&mut self, file: FileId, ranges: &[Range<u64>]) -> Result<bool, FileError> {
        let Some(room) = self.room_for(file, ranges)? else { return Ok(false) };
        self.commit(file, ranges, &room, Source::Unsynced)?;
        self.clear_unsynced(file, ranges)?;
        Ok(true)
    }

    /// Some unsynced writes are not here any more.
    pub(crate) fn clear_unsynced(&mut self, file: FileId, ranges: &[Range<u64>]) -> Result<(), FileError> {
        let mut written = std::mem::take(&mut self.file_mut(file)?.written);
        self.unsynced.clear_ranges(&mut written, ranges);
        self.file_mut(file)?.written = written;
        Ok(())
    }

    /// Commits a synchronous write to a file that has a record. False if the pool has no room.
    pub(crate) fn commit_given(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<bool, FileError> {
        let range = at..at + data.len() as u64;
        let ranges = std::slice::from_ref(&range);
        let Some(room) = self.room_for(file, ranges)? else { return Ok(false) };
        self.overwrite_unsynced(file, at, data)?;
        let committed = self.commit(file, ranges, &room, Source::Given { at, data });
        self.unsynced.end_write();
        committed.map(|_| true)
    }

    fn overwrite_unsynced(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<(), FileError> {
        let written = std::mem::take(&mut self.file_mut(file)?.written);
        self.unsynced.begin_overwrite(file.0, &written, at, data);
        self.unsynced.overwrite(&written, at, data);
        let cached = self.file_mut(file)?;
        cached.written = written;
        let end = at + data.len() as u64;
        if end > cached.size {
            self.unsynced.grows_to(file.0, end);
        }
        Ok(())
    }

    fn room_for(&mut self, file: FileId, ranges: &[Range<u64>]) -> Result<Option<Destination>, FileError> {
        if let [one] = ranges
            && let Some(tail) = self.tail_for(file, one)?
        {
            return Ok(Some(Destination::Behind(tail)));
        }
        Ok(self.place(file, ranges)?.map(Destination::Fresh))
    }

    /// Commits ranges of a file.
    fn commit(
        &mut self,
        file: FileId,
        ranges: &[Range<u64>],
        room: &Destination,
        source: Source<'_>,
    ) -> Result<(), FileError> {
        self.store_time(file)?;
        match (room, ranges) {
            (Destination::Behind(tail), [one]) => self.lengthen(file, *tail, one, source)?,
            (Destination::Behind(_), _) => return Ok(()),
            (Destination::Fresh(placed), _) => self.commit_placed(file, placed, source)?,
        }
        self.counters.commits += 1;
        self.counters.lengthened += u64::from(matches!(room, Destination::Behind(_)));
        self.counters.bytes_committed += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        Ok(())
    }
}
