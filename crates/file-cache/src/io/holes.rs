//! Room and holes of a file (`fallocate`), and where its data lies (`SEEK_DATA`, `SEEK_HOLE`).
//!
//! The bytes of a range that becomes zeroes are of two kinds:
//!
//! 1. *The file below has the newest copy.* The file below makes the change at once. Clean copies
//!    here are given up. The change is durable after a sync below, which the file's next sync makes
//!    before its commit ([`File::owes_sync_below`]).
//! 2. *The cache has a newer copy*, unsynced or in entries. Zeroes are written over it like any
//!    other unsynced bytes. Their room below was reserved, and stays.
//!
//! So a power cut before the next sync leaves old bytes, zeroes, or a mixture of both, as it does
//! with unsynced writes; a cut in that sync too.
//!
//! [`File::owes_sync_below`]: crate::lanes::file::File

use crate::below::{BackingFile, Fallocate, Sought};
use crate::cache::FileCache;
use crate::error::FileError;
use crate::io::end_in_file;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::sync::finding_room::WithoutRoom;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::between;
use tidegate_media::Region;

/// Zeroes are written over newer bytes in pieces of this size.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What happens to the length of a file whose room changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLength {
    /// It stays (`FALLOC_FL_KEEP_SIZE`).
    Keep,
    /// The file reaches the end of the range at least.
    Extend,
}

impl<R: Region> FileCache<R> {
    /// Changes the room of `len` bytes from `at` on, and their contents as `how` says. Durable with
    /// the next sync.
    pub fn fallocate(
        &self,
        file: FileId,
        at: u64,
        len: u64,
        how: Fallocate,
        length: FileLength,
    ) -> Result<(), FileError> {
        let end = end_in_file(at, len)?;
        self.exclusively(file, || {
            self.refresh(file)?;
            self.cut_below(file)?;
            match how {
                Fallocate::Reserve => self.begin_change(file)?.fallocate(at, len, how)?,
                Fallocate::Zero | Fallocate::Punch => self.zero(file, &(at..end), how)?,
            }
            let extends = length == FileLength::Extend && end > self.lane().file(file)?.size;
            if extends { self.truncate_exclusively(file, end) } else { Ok(()) }
        })
    }

    /// Where data or a hole begins at `at` or later; `None`: nowhere before the end of the file.
    /// What the cache has is data.
    pub fn seek(&self, file: FileId, at: u64, sought: Sought) -> Result<Option<u64>, FileError> {
        self.exclusively(file, || {
            self.refresh(file)?;
            self.seek_exclusively(file, at, sought)
        })
    }

    fn seek_exclusively(&self, file: FileId, mut at: u64, sought: Sought) -> Result<Option<u64>, FileError> {
        let lane = self.lane();
        let cached = lane.file(file)?;
        let (backing, size, ends_below) = (cached.backing()?.clone(), cached.size, cached.uncut.unwrap_or(u64::MAX));
        drop(lane);
        if at >= size {
            return Ok(None);
        }
        while at < size {
            let here = self.lane().file(file)?.first_here(at).filter(|here| here.start < size).unwrap_or(size..size);
            let below = at..here.start;
            let found = match sought {
                _ if below.is_empty() => None,
                Sought::Data => backing.seek(at, sought)?.filter(|data| below.contains(data) && *data < ends_below),
                Sought::Hole => Some(backing.seek(at, sought)?.unwrap_or(at).min(ends_below).max(at)),
            };
            match (found, sought) {
                (Some(found), _) if below.contains(&found) => return Ok(Some(found)),
                (_, Sought::Data) if here.start < size => return Ok(Some(here.start)),
                _ => at = here.end,
            }
        }
        Ok((sought == Sought::Hole).then_some(size))
    }

    /// Makes a range zeroes. Where the file below has the newest bytes, it does so as `how` says.
    fn zero(&self, file: FileId, range: &Range<u64>, how: Fallocate) -> Result<(), FileError> {
        let backing = self.begin_change(file)?;
        let newer = self.lane().newer_than_below_in(file, range)?;
        for gap in between(range, &newer) {
            // Before the change: a refused one may be made in part.
            self.lane().forget_clean(file, &gap)?;
            backing.fallocate(gap.start, gap.end - gap.start, how)?;
        }
        for part in newer {
            for at in part.clone().step_by(ZEROES.len()) {
                let len = usize::try_from(part.end - at).unwrap_or(usize::MAX).min(ZEROES.len());
                self.around_mapped(file, (at, &ZEROES[..len]), |part| {
                    self.write_as_room_allows(file, part, WithoutRoom::Below)
                })?;
            }
        }
        Ok(())
    }

    /// The file below, which a program is about to change.
    pub(crate) fn begin_change(&self, file: FileId) -> Result<Arc<dyn BackingFile>, FileError> {
        self.refuse_changed(file)?;
        let mut lane = self.lane();
        let backing = lane.file(file)?.backing()?.clone();
        lane.touch(file)?;
        lane.file_mut(file)?.owes_sync_below = true;
        Ok(backing)
    }
}

impl<R: Region> Lane<R> {
    /// The parts of a range that the file below does not have, ascending.
    fn newer_than_below_in(&self, file: FileId, range: &Range<u64>) -> Result<Vec<Range<u64>>, FileError> {
        let newer = self.newer_than_below(self.file(file)?).into_iter();
        let parts = newer.map(|part| part.start.max(range.start)..part.end.min(range.end));
        Ok(parts.filter(|part| !part.is_empty()).collect())
    }

    /// A range is about to change below: what is here of it is out of date then.
    fn forget_clean(&mut self, file: FileId, range: &Range<u64>) -> Result<(), FileError> {
        self.note_dropped(file)?;
        let cached = self.file_mut(file)?;
        cached.room.lose(range);
        let losses = cached.newest.remove(range.clone());
        self.lose(file, &losses)
    }
}
