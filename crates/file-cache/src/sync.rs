//! Syncs and synchronous writes: one atomic commit each.

mod append;
mod commit;

use crate::cache::{FileCache, Synced};
use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::tiers::dram::runs;
use std::ops::Range;
use tidegate_media::Region;

/// Where bytes come from that are to be committed.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// From the blocks of unsynced writes.
    Unsynced,
    /// From a synchronous write at offset `at`.
    Given { at: u64, data: &'a [u8] },
}

impl<R: Region> FileCache<R> {
    /// Makes everything durable that was written to the file before, in one atomic commit.
    pub fn sync(&self, file: FileId) -> Result<Synced, FileError> {
        self.lane().sync(file)
    }
}

impl<R: Region> Lane<R> {
    pub(crate) fn sync(&mut self, file: FileId) -> Result<Synced, FileError> {
        let cached = self.file(file)?;
        let ranges = runs(&cached.written);
        if ranges.is_empty() {
            return match cached.record {
                Some(_) => Ok(Synced::Atomically),
                // What the kernel's path did, and a length that no record has.
                None => Ok(cached.backing()?.sync().map(|()| Synced::Below)?),
            };
        }
        self.ensure_record(file)?;
        let synced = self.commit(file, &ranges, Source::Unsynced)?;
        if synced == Synced::Atomically {
            let mut written = std::mem::take(&mut self.file_mut(file)?.written);
            self.unsynced.clear(&mut written);
        }
        Ok(synced)
    }

    /// Writes `data` durably. Unsynced bytes of the same range are overwritten too, so that they
    /// stay the newest.
    pub(crate) fn write_synced(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<Synced, FileError> {
        self.ensure_record(file)?;
        self.unsynced.overwrite(&self.file(file)?.written, at, data);
        let end = at + data.len() as u64;
        if end > self.file(file)?.size {
            self.unsynced.grows_to(file.0, end);
        }
        self.commit(file, std::slice::from_ref(&(at..end)), Source::Given { at, data })
    }

    /// Commits ranges of a file.
    fn commit(&mut self, file: FileId, ranges: &[Range<u64>], source: Source<'_>) -> Result<Synced, FileError> {
        let bytes = ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let lengthened = match ranges {
            [one] => self.lengthen_tail(file, one, source)?,
            _ => false,
        };
        if !lengthened {
            let Some(placed) = self.place(file, ranges)? else { return self.commit_below(file, source) };
            self.commit_placed(file, &placed, source)?;
        }
        self.counters.commits += 1;
        self.counters.lengthened += u64::from(lengthened);
        self.counters.bytes_committed += bytes;
        Ok(Synced::Atomically)
    }

    /// No room in the pool: the file is brought below, with what was to be committed.
    fn commit_below(&mut self, file: FileId, source: Source<'_>) -> Result<Synced, FileError> {
        let given = match source {
            Source::Unsynced => None,
            Source::Given { at, data } => Some((at, data)),
        };
        self.drain(file, given)?;
        self.counters.below += 1;
        Ok(Synced::Below)
    }
}
