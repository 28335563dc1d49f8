//! Groups of writes to a file: one commit of all of them, or nothing.
//!
//! Whoever gathers a group has its bytes until then, so neither the file nor its unsynced writes
//! know of it. The commit is made in this order:
//!
//! 1. Reserve room below for every write.
//! 2. Sync the file. So no unsynced write lies where the group goes, and a kill finds nothing of it
//!    in DRAM.
//! 3. Commit all writes of the group like one sync.
//!
//! A group never goes below instead, as a file below is not changed atomically. If the pool has no
//! room, older entries are written back first; if that is not enough, nothing of the group is
//! written.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::io::end_in_file;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::sync::Source;
use crate::sync::finding_room::WithoutRoom;
use std::ops::Range;
use tidegate_media::Region;

/// Bytes of a group that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct GroupWrite<'a> {
    /// Offset of the first byte.
    pub at: u64,
    /// The bytes.
    pub data: &'a [u8],
}

impl GroupWrite<'_> {
    fn range(&self) -> Range<u64> {
        self.at..self.at + self.data.len() as u64
    }
}

impl<R: Region> FileCache<R> {
    /// Makes `writes` durable, all of them or none: their offsets are ascending, and a gap lies
    /// between each and the next. What was written to the file before is durable too.
    pub fn write_group(&self, file: FileId, writes: &[GroupWrite<'_>]) -> Result<(), FileError> {
        let written = self
            .finding_room(|without| self.exclusively(file, || self.write_group_exclusively(file, writes, without)))?;
        written.ok_or(FileError::NoRoomForGroup)
    }

    /// `None`: the pool has no room for the group.
    fn write_group_exclusively(
        &self,
        file: FileId,
        writes: &[GroupWrite<'_>],
        without: WithoutRoom,
    ) -> Result<Option<()>, FileError> {
        self.refuse_mapped(file, 0)?;
        self.refresh(file)?;
        for GroupWrite { at, data } in writes {
            end_in_file(*at, data.len() as u64)?;
            self.reserve(file, *at, data.len() as u64)?;
        }
        if self.sync_exclusively(file, without)?.is_none() {
            return Ok(None);
        }
        self.ensure_record(file)?;
        Ok(self.lane().commit_group(file, writes)?.then_some(()))
    }
}

impl<R: Region> Lane<R> {
    fn commit_group(&mut self, file: FileId, writes: &[GroupWrite<'_>]) -> Result<bool, FileError> {
        debug_assert!(self.file(file)?.written.is_empty(), "the file was synced");
        let ranges: Vec<_> = writes.iter().map(GroupWrite::range).collect();
        let Some(end) = ranges.last().map(|range| range.end) else { return Ok(true) };
        let Some(room) = self.room_for(file, &ranges)? else { return Ok(false) };
        if end > self.file(file)?.size {
            self.unsynced.grows_to(file.0, end);
        }
        self.commit(file, &ranges, &room, Source::Group(writes))?;
        self.has_written(file, end)?;
        Ok(true)
    }
}

/// The bytes of a range, which lies in one of the writes.
pub(super) fn bytes_of<'a>(writes: &[GroupWrite<'a>], range: &Range<u64>) -> &'a [u8] {
    let index = writes.partition_point(|write| write.at <= range.start) - 1;
    let GroupWrite { at, data } = writes[index];
    let [from, until] = [range.start, range.end].map(|place| usize::try_from(place - at).expect("inside the data"));
    &data[from..until]
}
