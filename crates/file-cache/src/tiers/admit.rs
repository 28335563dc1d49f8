//! Reads that are admitted: bytes of the file below become clean entries, behind the program's
//! back. Which reads deserve it is the caller's decision.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::tiers::write_back::WRITE_BYTES_MAX;
use std::ops::Range;
use tidegate_layout::file_cache::{between, in_pieces};
use tidegate_media::Region;

impl<R: Region> FileCache<R> {
    /// Makes clean entries of what only the file below has of a range, as far as there is room, and
    /// says of how many bytes. For a thread in the background: it reads below, and a file without
    /// a record is synced there first, as a clean entry says that its bytes are durable below.
    pub fn admit(&self, file: FileId, range: Range<u64>) -> Result<u64, FileError> {
        self.gated(file, || {
            if self.lane().file(file)?.passed {
                return Ok(0);
            }
            self.ensure_record(file)?;
            let missing = self.lane().missing(file, &range)?;
            missing.into_iter().try_fold(0, |admitted, range| Ok(admitted + self.admit_range(file, range)?))
        })
    }

    /// The gate is held: nothing but the lane's own commits happens meanwhile.
    fn admit_range(&self, file: FileId, range: Range<u64>) -> Result<u64, FileError> {
        let backing = self.lane().file(file)?.backing()?.clone();
        let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("at most a write's")];
        if backing.read(range.start, &mut bytes)? < bytes.len() {
            return Ok(0);
        }
        let mut lane = self.lane();
        // What was written meanwhile is newer.
        if lane.missing(file, &range)? != [range.clone()] || !lane.store_clean_entries(file, &range, &bytes)? {
            return Ok(0);
        }
        lane.counters.bytes_admitted += range.end - range.start;
        Ok(range.end - range.start)
    }
}

impl<R: Region> Lane<R> {
    /// The parts of a range that only the file below has, durably, in pieces; none if the lane may
    /// have changed it since it was synced.
    fn missing(&self, file: FileId, range: &Range<u64>) -> Result<Vec<Range<u64>>, FileError> {
        let cached = self.file(file)?;
        let Some(record) = cached.record.filter(|record| record.stamp != 0 && !cached.changed_below) else {
            return Ok(Vec::new());
        };
        let range = range.start..range.end.min(record.size).min(cached.size);
        Ok(in_pieces(between(&range, &cached.parts_here(&range)), WRITE_BYTES_MAX))
    }
}
