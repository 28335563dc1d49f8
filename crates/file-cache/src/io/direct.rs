//! Writes that go around the cache where the cache has nothing (`O_DIRECT`).
//!
//! The bytes of a direct write are of two kinds:
//!
//! 1. *The cache has a copy*, unsynced or in entries, or the file below does not reach so far. They
//!    are written like any other unsynced bytes.
//! 2. *Only the file below has the bytes.* They are written there at once, and are durable after a
//!    sync below, which the file's next sync makes before its commit ([`File::owes_sync_below`]).
//!
//! So a power cut before the next sync leaves old bytes, new ones, or a mixture of both, and so
//! does a cut in that sync. A read takes each byte from where it is, as ever.
//!
//! [`File::owes_sync_below`]: crate::lanes::file::File

use crate::cache::FileCache;
use crate::error::FileError;
use crate::io::end_in_file;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::sync::finding_room::WithoutRoom;
use std::ops::Range;
use tidegate_layout::file_cache::{between, united};
use tidegate_media::Region;

impl<R: Region> FileCache<R> {
    /// Writes bytes at offset `at`, below at once where the cache has none of the range. Durable
    /// with the next sync. Says how many bytes were written below.
    pub fn write_direct(&self, file: FileId, at: u64, data: &[u8]) -> Result<u64, FileError> {
        let end = end_in_file(at, data.len() as u64)?;
        self.exclusively(file, || {
            self.refresh(file)?;
            self.cut_below(file)?;
            let backing = self.lane().file(file)?.backing()?.clone();
            let len = backing.status()?.len;
            let cached = self.lane().cached_in(file, &(at..end), len)?;
            let of = |range: &Range<u64>| {
                let [from, until] = [range.start, range.end].map(|place| usize::try_from(place - at));
                &data[from.unwrap_or(usize::MAX)..until.unwrap_or(usize::MAX)]
            };
            let uncached = between(&(at..end), &cached);
            if !uncached.is_empty() {
                self.begin_change(file)?;
            }
            for range in &uncached {
                backing.write(range.start, of(range))?;
            }
            for range in &cached {
                self.reserve(file, range.start, range.end - range.start)?;
                self.around_mapped(file, (range.start, of(range)), |part| {
                    self.write_as_room_allows(file, part, WithoutRoom::Below)
                })?;
            }
            let below = uncached.iter().map(|range| range.end - range.start).sum();
            let mut lane = self.lane();
            lane.counters.bytes_written_direct += below;
            lane.has_written(file, end)?;
            Ok(below)
        })
    }
}

impl<R: Region> Lane<R> {
    /// The parts of a range that the cache has, or that the file below, which has `len` bytes, does
    /// not reach: ascending, none touching the next.
    fn cached_in(&self, file: FileId, range: &Range<u64>, len: u64) -> Result<Vec<Range<u64>>, FileError> {
        let cached = self.file(file)?;
        let reached = cached.record.map_or(len, |record| record.size.min(len)).min(cached.size);
        let mut parts = cached.parts_here(range);
        let behind = range.start.max(reached)..range.end;
        parts.extend((!behind.is_empty()).then_some(behind));
        Ok(united(parts))
    }
}
