//! Appends that fit into the last block of their file.

use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::{Lane, Slot};
use crate::sync::Source;
use std::ops::Range;
use tidegate_media::Region;

impl<R: Region> Lane<R> {
    /// Puts bytes behind those in the last block of the file: data, fence, one word, fence. False
    /// if they do not belong or fit there.
    pub(super) fn lengthen_tail(
        &mut self,
        file: FileId,
        range: &Range<u64>,
        source: Source<'_>,
    ) -> Result<bool, FileError> {
        let cached = self.file(file)?;
        let record = cached.record.expect("made before a commit");
        let Some(tail) = cached.tail else { return Ok(false) };
        let Slot { extent, version, .. } = self.slots[tail as usize].expect("a tail is in use");
        let follows = range.start == extent.end() && range.start == record.size && version > record.version;
        if !follows || range.end - extent.offset > extent.class.bytes() {
            return Ok(false);
        }
        self.stream(file, &extent, range, source)?;
        self.medium.fence()?;
        let length = u32::try_from(range.end - extent.offset).expect("a block is small");
        self.medium.store_state(tail, version, length);
        self.medium.flush_entry(tail);
        self.medium.fence()?;
        let slot = self.slots[tail as usize].as_mut().expect("a tail is in use");
        slot.extent.length = length;
        slot.newest += range.end - range.start;
        let cached = self.file_mut(file)?;
        let losses = cached.newest.put(range.clone(), tail);
        debug_assert!(losses.is_empty(), "nothing lies behind a file's end");
        cached.record.as_mut().expect("as above").size = range.end;
        Ok(true)
    }
}
