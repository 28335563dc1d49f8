//! Appends that fit into the last block of their file.

use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::slots::Slot;
use crate::sync::Source;
use std::ops::Range;
use tidegate_media::Region;

impl<R: Region> Lane<R> {
    /// The last block of the file, if the bytes of `range` belong and fit behind those in it.
    pub(super) fn tail_for(&self, file: FileId, range: &Range<u64>) -> Result<Option<u32>, FileError> {
        let cached = self.file(file)?;
        let (Some(record), Some(tail)) = (cached.record, cached.tail) else { return Ok(None) };
        let Slot { extent, version, .. } = self.slots.used(tail);
        let follows = range.start == extent.end() && range.start == record.size && version > record.version;
        let fits = || range.end - extent.offset <= extent.class.bytes();
        Ok((follows && fits()).then_some(tail))
    }

    /// Puts bytes behind those in the last block of the file: data, fence, one word, fence.
    pub(super) fn lengthen(
        &mut self,
        file: FileId,
        tail: u32,
        range: &Range<u64>,
        source: Source<'_>,
    ) -> Result<(), FileError> {
        let Slot { extent, version, .. } = self.slots.used(tail);
        self.stream(file, &extent, range, source)?;
        self.medium.fence()?;
        let length = u32::try_from(range.end - extent.offset).expect("a block is small");
        self.medium.store_state(tail, version, length);
        self.medium.flush_entry(tail);
        self.medium.fence()?;
        self.slots.lengthen(tail, length - extent.length);
        let cached = self.file_mut(file)?;
        let losses = cached.newest.put(range.clone(), tail);
        debug_assert!(losses.is_empty(), "nothing lies behind a file's end");
        cached.record.as_mut().expect("a file with entries has one").size = range.end;
        Ok(())
    }
}
