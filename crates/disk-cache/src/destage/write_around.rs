//! Writes around the cache.
//!
//! The stripes of all blocks stay locked until the disk has confirmed a flush: no thread destages
//! an older content of such a block, takes one in, or commits a newer one meanwhile. A read that is
//! under way learns from the stripe that its bytes from the disk may be old. Blocks that the disk
//! refuses, or does not flush, are committed to the cache after all: otherwise the content that a
//! power cut leaves would be unknown. That happens under the same locks, into blocks taken before
//! them: were the locks given up in between, a read could see such a write, then a newer one, and
//! then the first again. In a cache that has no room because all of it is dirty, the write fails
//! with the disk's error. The disk's content of such a block is *in doubt*: a power cut may take it
//! back. Until a write of it succeeds it is not taken in, or the cache could show it after the cut,
//! and the disk the content before.

use crate::cache::DiskCache;
use crate::commit::{Locked, Write};
use tidegate_media::{Region, Result, Run};

impl<R: Region> DiskCache<R> {
    /// Writes those of `writes` that are not cached to the disk, and flushes it. Returns the
    /// others, still to be written.
    ///
    /// Nothing is put in place together: the disk's promises hold.
    pub(crate) fn write_around<'a>(&self, writes: &[Write<'a>]) -> Result<Vec<Write<'a>>> {
        let mut room = self.reserve_if_easy(writes.len())?;
        let answer = self.write_around_or_into(&mut room, writes);
        self.table.free_list.give_blocks(room.into_iter());
        answer
    }

    /// Writes around the cache, and commits the blocks that the disk fails to keep into blocks of
    /// `room`, which loses them.
    fn write_around_or_into<'a>(&self, room: &mut Vec<u32>, writes: &[Write<'a>]) -> Result<Vec<Write<'a>>> {
        let failures = self.flush_failures();
        let mut locked = Locked::new(self, writes.iter().map(|(lba, _)| *lba));
        let (cached, past): (Vec<Write<'a>>, Vec<Write<'a>>) =
            writes.iter().partition(|(lba, _)| locked.stripe(self, *lba).get(*lba).is_some());
        if past.is_empty() {
            return Ok(cached);
        }
        // Were a block given up and its entry not durably free, for the memory lost that store, its
        // old content would come back.
        self.medium.fence()?;
        for (lba, _) in &past {
            locked.stripe(self, *lba).changed();
        }
        let runs: Vec<Run<'_>> = past.iter().map(|(lba, data)| Run { at: self.on_disk(*lba), data }).collect();
        let written = self.write_to_disk(&runs).into_iter().collect::<Result<()>>();
        match written.and_then(|()| self.flush_disk_since(failures)) {
            Ok(()) => {
                self.committer.wrote_around(past.iter().map(|(lba, _)| *lba));
                past.iter().for_each(|(lba, _)| self.destager.settle_doubt(*lba));
            }
            Err(failed) if room.len() < past.len() => {
                past.iter().for_each(|(lba, _)| self.destager.doubt(*lba));
                return Err(failed);
            }
            Err(_) => {
                let blocks = room.split_off(room.len() - past.len());
                self.stream_all(past.iter().copied(), &blocks);
                self.place(&past, &blocks, locked)?;
            }
        }
        Ok(cached)
    }
}
