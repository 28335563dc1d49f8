//! Destaging by a writer that finds no room.

use crate::cache::DiskCache;
use crate::destage::step::DestageStep;
use tidegate_media::sync::yield_now;
use tidegate_media::{Error, Region, Result};

/// Dirty blocks that a writer without room destages at a time.
const HELP_BLOCKS: u32 = 64;

impl<R: Region> DiskCache<R> {
    /// Destages for want of room, one writer at a time. Fails with the disk's error if everything
    /// dirty was tried and nothing went.
    pub(crate) fn help(&self, wanted: usize) -> Result<()> {
        let mut sweep = self.destager.helping.lock();
        if self.table.free_list.free_blocks() >= wanted {
            return Ok(());
        }
        self.tally.helps.add(1);
        let blocks = HELP_BLOCKS.max(u32::try_from(wanted).unwrap_or(u32::MAX));
        let mut refused: Option<Error> = None;
        let mut has_room_after = |progress: DestageStep| {
            let failed = progress.failed.into_iter().map(|(_, error)| error).next();
            refused = progress.flush_failed.or(failed).or(refused.take());
            progress.cleaned > 0 || self.table.free_list.free_blocks() >= wanted
        };
        if self.step_beside(blocks).is_some_and(&mut has_room_after) {
            return Ok(());
        }
        // The first sweep may have begun, and left out, what became dirty since.
        for _sweep in 0..2 {
            loop {
                let progress = self.step_of(&mut sweep, blocks);
                let more = progress.more;
                if has_room_after(progress) {
                    return Ok(());
                }
                if !more {
                    break;
                }
            }
        }
        match refused {
            Some(error) => Err(error),
            None => {
                // Other writers or drainers hold what is missing, and are not done yet. Or it was
                // lost with a fence that failed.
                self.medium.fence()?;
                yield_now();
                Ok(())
            }
        }
    }
}
