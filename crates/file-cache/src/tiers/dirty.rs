//! Unsynced writes leave DRAM by age, in steps behind the program's back.
//!
//! A file that has a record gets a commit, as by a sync. So does one whose bytes below would be
//! overwritten, as a power cut may tear what is written below without a sync. What lengthens a file
//! without a record, and long writes to it, are written below without a sync: before the file gets
//! its record it is synced there, so its first sync covers these bytes. A program that writes much
//! and never syncs waits for no disk thereby, as long as the page cache below takes it.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::Lane;
use crate::sync::finding_room::WithoutRoom;
use crate::tiers::dram::{Written, bytes_in, first_runs, may_tear_before};
use crate::tiers::write_back::WriteBackStep;
use std::ops::Range;
use tidegate_media::Region;

impl<R: Region> FileCache<R> {
    /// Tells the time, in any unit: it dates the writes from now on.
    pub fn tick(&self, now: u64) {
        self.lane().now = now;
    }

    /// Has about `budget_bytes` of one file leave DRAM: of the one that has waited longest, if it
    /// has unsynced writes that are older than `older_than`. Says how many bytes are left in DRAM,
    /// of any age. After an error the bytes are in DRAM still, and count as written now.
    pub fn write_dirty_step(&self, budget_bytes: u64, older_than: u64) -> Result<WriteBackStep, FileError> {
        let mut bytes = 0;
        let oldest = self.lane().pin_oldest_dirty(older_than)?;
        if let Some(file) = oldest {
            let write = |without| self.exclusively(file, || self.write_dirty(file, budget_bytes, without));
            let written = self.finding_room(write);
            if written.is_err() {
                self.lane().date_unsynced(file)?;
            }
            self.unpin(file)?;
            bytes = written?.unwrap_or(0);
        }
        Ok(WriteBackStep { bytes, left_bytes: self.lane().dirty_bytes(), left_cut: 0 })
    }

    /// `None`: it has to wait for room.
    fn write_dirty(&self, file: FileId, budget_bytes: u64, without: WithoutRoom) -> Result<Option<u64>, FileError> {
        if self.may_pass_below(file)? {
            return self.pass_below(file, budget_bytes).map(Some);
        }
        self.ensure_record(file)?;
        // One write, or some that overlap.
        let budget_bytes = if without == WithoutRoom::InParts { 1 } else { budget_bytes };
        let (bytes, without) = {
            let mut lane = self.lane();
            let (ranges, bytes) = first_of(&lane.file(file)?.written, budget_bytes);
            if lane.commit_unsynced(file, &ranges)? {
                return Ok(Some(bytes));
            }
            (bytes, lane.for_unsynced(file, without)?)
        };
        match without {
            WithoutRoom::Wait | WithoutRoom::InParts => Ok(None),
            WithoutRoom::Below => self.commit_below(file, None).map(|_| Some(bytes)),
        }
    }

    /// Has about `budget_bytes` of a file without a record leave DRAM for the file below, without a
    /// sync, and says how many did.
    pub(crate) fn pass_below(&self, file: FileId, budget_bytes: u64) -> Result<u64, FileError> {
        let (ranges, bytes, backing) = {
            let mut lane = self.lane();
            lane.touch(file)?;
            let cached = lane.file(file)?;
            let (ranges, bytes) = first_of(&cached.written, budget_bytes);
            (ranges, bytes, cached.backing()?.clone())
        };
        self.cut_below(file)?;
        for range in &ranges {
            let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("it is in DRAM")];
            self.lane().overlay_unsynced(file, range.start, &mut bytes)?;
            backing.write(range.start, &bytes)?;
        }
        let mut lane = self.lane();
        lane.file_mut(file)?.dropped += 1;
        lane.counters.bytes_passed_below += bytes;
        lane.clear_unsynced(file, &ranges)?;
        Ok(bytes)
    }

    /// Whether unsynced writes of a file may go below without a sync: it has no record, and none of
    /// those that have to be whole lies where the file below has bytes.
    pub(crate) fn may_pass_below(&self, file: FileId) -> Result<bool, FileError> {
        if self.lane().file(file)?.record.is_some() {
            return Ok(false);
        }
        let (backing, _) = self.known_below(file)?;
        let end = backing.status()?.len;
        Ok(may_tear_before(&self.lane().file(file)?.written, end))
    }
}

/// The first runs of about `budget_bytes` bytes, and how many bytes they have.
fn first_of(written: &Written, budget_bytes: u64) -> (Vec<Range<u64>>, u64) {
    let ranges = first_runs(written, budget_bytes);
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    (ranges, bytes)
}

impl<R: Region> Lane<R> {
    /// How unsynced writes leave DRAM if the pool has no room: what a power cut may tear waits for
    /// none.
    pub(crate) fn for_unsynced(&self, file: FileId, without: WithoutRoom) -> Result<WithoutRoom, FileError> {
        let may_tear = may_tear_before(&self.file(file)?.written, u64::MAX);
        Ok(if may_tear { WithoutRoom::Below } else { without })
    }

    /// Lets a file wait as if its unsynced writes were made now.
    fn date_unsynced(&mut self, file: FileId) -> Result<(), FileError> {
        self.file_mut(file)?.dirty_since = self.now;
        Ok(())
    }

    /// The file whose unsynced writes have waited longest. It keeps its number.
    fn pin_oldest_dirty(&mut self, older_than: u64) -> Result<Option<FileId>, FileError> {
        let dirty = |(number, file): (u32, &Option<Box<File>>)| {
            let file = file.as_deref().filter(|file| !file.is_detached() && bytes_in(&file.written) > 0)?;
            (file.dirty_since < older_than).then_some((file.dirty_since, FileId(number)))
        };
        let Some((_, file)) = (0..).zip(&self.files).filter_map(dirty).min() else { return Ok(None) };
        self.file_mut(file)?.pins += 1;
        Ok(Some(file))
    }
}
