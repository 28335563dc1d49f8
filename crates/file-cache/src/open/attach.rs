//! A detached file gets its file below.

use crate::below::{BackingFile, BackingStatus, FileIdentity};
use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::{Attachment, File, FileId};
use crate::lanes::lane::Lane;
use crate::tiers::dram::{bytes_in, end_of, touching};
use std::sync::Arc;
use tidegate_media::Region;

/// A file that an earlier process left, and for which no file below was found yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// Its number.
    pub file: FileId,
    /// Which file it was.
    pub identity: FileIdentity,
    /// Where it was when it was cached.
    pub path_hint: Vec<u8>,
    /// Bytes that only the cache has.
    pub bytes: u64,
}

impl<R: Region> FileCache<R> {
    /// Every file that an earlier process left, and for which no file below was found yet.
    pub fn detached(&self) -> Vec<Detached> {
        let lane = self.lane();
        let detached = |(number, file): (u32, &Option<Box<File>>)| {
            let file = file.as_deref().filter(|file| file.is_detached() && !file.is_resting())?;
            let bytes = lane.bytes_of(file);
            Some(Detached { file: FileId(number), identity: file.identity, path_hint: file.hint.clone(), bytes })
        };
        (0..).zip(&lane.files).filter_map(detached).collect()
    }

    /// Gives a detached file its file below, which is the same file and was not changed by others.
    /// What only the cache has is written back from now on. After an error the file is detached
    /// still.
    pub fn attach(&self, file: FileId, backing: Arc<dyn BackingFile>) -> Result<(), FileError> {
        self.exclusively(file, || {
            let (cut_to, stamp) = {
                let lane = self.lane();
                let cached = lane.file(file)?;
                // Another thread was faster.
                let Attachment::Detached { cut_to } = cached.below else { return Ok(()) };
                if backing.identity() != cached.identity {
                    return Err(FileError::Replaced);
                }
                (cut_to, cached.stamp())
            };
            let BackingStatus { len, stamp: now, .. } = backing.status()?;
            if stamp.is_some_and(|stamp| !now.has_contents_of(stamp)) {
                let mut lane = self.lane();
                if !lane.file(file)?.lacks_only_its_time() {
                    return Err(FileError::Changed);
                }
                // It got that time already, or was changed by others.
                lane.forget_contents(file)?;
                lane.forget_modified(file)?;
            }
            self.lane().takes_length_from_below(file, len)?;
            if stamp != Some(now) {
                self.lane().drop_clean(file)?;
            }
            self.bind(file, backing, cut_to).or_else(|error| self.detach(file, cut_to, error))
        })
    }

    /// Writes all that the cache has of a detached file to `into`, durably, and forgets the file:
    /// for one that is missing, or was changed by others. What the cache does not have is zeroes
    /// there. After an error the file is detached still.
    pub fn salvage(&self, file: FileId, into: Arc<dyn BackingFile>) -> Result<(), FileError> {
        self.exclusively(file, || {
            let Attachment::Detached { cut_to } = self.lane().file(file)?.below else {
                return Err(FileError::Attached);
            };
            self.lane().is_displaced(file)?;
            let salvaged = self.bind(file, into, cut_to).and_then(|()| self.drain_exclusively(file, None));
            salvaged.or_else(|error| self.detach(file, cut_to, error))
        })
    }

    /// Forgets all that the cache has of a file and the file below has not: for one that was
    /// removed, or is not wanted any more. One that is open is read from below from now on.
    pub fn discard(&self, file: FileId) -> Result<(), FileError> {
        self.exclusively(file, || {
            self.refuse_mapped(file, 0)?;
            let mut lane = self.lane();
            lane.forget_contents(file)?;
            let discarded = lane.file_mut(file)?;
            let mut written = std::mem::take(&mut discarded.written);
            discarded.recast += 1;
            discarded.passed = true;
            lane.unsynced.clear(&mut written);
            lane.forget_modified(file)
        })
    }

    /// Uses `backing` for a detached file, and does what a process had begun when it ended: cuts of
    /// the file.
    fn bind(&self, file: FileId, backing: Arc<dyn BackingFile>, cut_to: u64) -> Result<(), FileError> {
        let len = backing.status()?.len;
        let (size, reached) = {
            let mut lane = self.lane();
            let cached = lane.file_mut(file)?;
            cached.below = Attachment::Attached(backing.clone());
            cached.changed_below = cached.record.is_some_and(|record| record.stamp == 0);
            // A killed process may have punched a hole that was never synced. Of a file that is
            // known by a mark, it changed nothing but the room.
            let was_changed = cached.stamp().is_none();
            cached.owes_sync_below = cached.changed_below && was_changed;
            let durable = cached.record.map_or(len, |record| record.size);
            let (size, reached) = (cached.size, durable.max(end_of(&cached.written)));
            let cuts = cached.record.is_some() && len > cut_to;
            // A killed process may have cut it to that length, and not synced it.
            cached.cut_below = (cuts || cached.owes_sync_below).then_some(cut_to);
            if cuts {
                cached.uncut = Some(cut_to);
                lane.touch(file)?;
            }
            (size, reached)
        };
        let mut cut = self.cut_below(file);
        if size != reached && cut.is_ok() {
            cut = self.cut_again(file, size, reached);
        }
        match cut {
            // As when a cut is refused at any other time: it is tried again.
            Err(FileError::Below(_)) => self.lane().cut_here(file, size.min(reached), len),
            cut => cut,
        }
    }

    /// Cuts a file at `size` that a killed process was lengthening, up to `reached`, or cutting.
    fn cut_again(&self, file: FileId, size: u64, reached: u64) -> Result<(), FileError> {
        let mut lane = self.lane();
        let cached = lane.file_mut(file)?;
        let durable = cached.record.map_or(u64::MAX, |record| record.size);
        let written_up_to_it = touching(&cached.written, size.saturating_sub(1)..size).next().is_some();
        if size < reached && (durable == size || durable < size && written_up_to_it) {
            // A record of this length would be durable before the unsynced bytes that end there.
            return lane.cut_unsynced(file, size);
        }
        cached.size = reached;
        drop(lane);
        self.truncate_exclusively(file, size)
    }

    /// The file below could not be used after all. A cut that was committed meanwhile counts.
    fn detach(&self, file: FileId, cut_to: u64, error: FileError) -> Result<(), FileError> {
        let mut lane = self.lane();
        let cached = lane.file_mut(file)?;
        let cut_to = cached.record.map_or(cut_to, |record| record.size.min(cut_to));
        cached.below = Attachment::Detached { cut_to };
        Err(error)
    }
}

impl<R: Region> Lane<R> {
    /// A file of which nothing but a time is here, or nothing, has the length that it has below.
    fn takes_length_from_below(&mut self, file: FileId, len: u64) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        if cached.record.is_none() && cached.is_below() {
            cached.size = len;
        }
        Ok(())
    }

    /// Bytes that only the cache has of a file.
    fn bytes_of(&self, file: &File) -> u64 {
        let entries = self.slots.of(file.out_of_sync).map(|(_, slot)| slot.newest);
        entries.sum::<u64>() + bytes_in(&file.written)
    }
}
