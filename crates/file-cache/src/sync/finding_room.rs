//! Where a commit finds room when the pool has none.
//!
//! Older entries are written back, and the commit is tried again: it is one still. If nothing is
//! left to be written back, unsynced writes are committed one after the other. Each of them is
//! whole then, and the sync of all is not. Only if one alone finds no room, or the files below
//! refuse what has to be written back, is the file brought below, where a power cut may tear its
//! writes.
//!
//! Write-back waits for the gates of other files, so each try ends before it, and gives up its own.

use crate::cache::FileCache;
use crate::error::FileError;
use tidegate_media::Region;

/// How much is written back at a time to make room.
const STEP_BYTES: u64 = 4 << 20;

/// How a commit that finds no room is made instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutRoom {
    /// Not at all: the caller makes room and tries again.
    Wait,
    /// In several commits, of whole writes each. One that finds no room waits.
    InParts,
    /// In the file below.
    Below,
}

impl<R: Region> FileCache<R> {
    /// Has `act` try until the pool has room for it, at last without: `None` says that it found
    /// none. The caller holds no gate.
    pub(crate) fn finding_room<T>(
        &self,
        mut act: impl FnMut(WithoutRoom) -> Result<Option<T>, FileError>,
    ) -> Result<Option<T>, FileError> {
        for without in [WithoutRoom::Wait, WithoutRoom::InParts] {
            loop {
                if let Some(done) = act(without)? {
                    return Ok(Some(done));
                }
                // What refuses to be written back makes no room.
                if self.write_back_step(STEP_BYTES).map_or(0, |step| step.bytes) == 0 {
                    break;
                }
            }
        }
        act(WithoutRoom::Below)
    }
}
