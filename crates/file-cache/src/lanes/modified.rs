//! When a program changed a file's contents last, in the caller's words. The file below gets that
//! time with a sync only, and a write-back gives it another one before.
//!
//! The word is in two places:
//!
//! - In the memory that outlives the process, at once: it is what a kill leaves.
//! - In the record, flushed before the first fence of the commit that the change is part of: it is
//!   what a power cut leaves. A cut in that commit may leave it without the contents. It is 0 while
//!   the file below is known to have the time; what changes the file below next stores it again,
//!   with the fence that takes the stamp away.
//!
//! The caller has the file below set the time with each sync of it, and tells this word afterwards.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use tidegate_media::Region;

impl<R: Region> FileCache<R> {
    /// Notes when a program changed the file's contents, in a word that is not 0: durable with the
    /// next sync. Whoever syncs the file below from now on gives it this time.
    pub fn note_modified(&self, file: FileId, modified: u64) -> Result<(), FileError> {
        let mut lane = self.lane();
        lane.revoke(file)?;
        lane.take_mapped_time(file)?;
        lane.file_mut(file)?.modified = modified;
        lane.unsynced.set_modified(file.0, modified);
        Ok(())
    }

    /// When a program changed the file's contents, if the file below may say otherwise; or 0. A
    /// lease goes on.
    pub fn modified(&self, file: FileId) -> Result<u64, FileError> {
        let mut lane = self.lane();
        lane.adopt(file)?;
        lane.take_mapped_time(file)?;
        Ok(lane.file(file)?.modified)
    }
}

impl<R: Region> Lane<R> {
    /// Stores in the record what it lacks, durable with the next fence. Says whether that was
    /// anything.
    pub(crate) fn begin_modified(&mut self, file: FileId) -> Result<bool, FileError> {
        let cached = self.file(file)?;
        if cached.modified_below == cached.modified { Ok(false) } else { self.store_time(file) }
    }

    /// Stores the time in the record for a commit of bytes, durable with the next fence: recovery
    /// gives the file below another time when it brings them there, though it has this one now.
    /// Says whether the record lacked it.
    pub(crate) fn store_time(&mut self, file: FileId) -> Result<bool, FileError> {
        let cached = self.file_mut(file)?;
        let modified = cached.modified;
        match &mut cached.record {
            Some(record) if record.modified != modified => {
                record.modified = modified;
                self.medium.store_modified(file.0, modified);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The file below was synced with this time or a later one, and is stamped.
    pub(crate) fn modified_is_below(&mut self, file: FileId, modified: u64) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        if cached.modified != modified {
            return Ok(());
        }
        cached.modified_below = modified;
        if let Some(record) = &mut cached.record
            && record.modified != 0
        {
            record.modified = 0;
            self.medium.store_modified(file.0, 0);
        }
        Ok(())
    }

    /// The file below has the time, durably: nothing is said of it any more, durably.
    pub(crate) fn forget_modified(&mut self, file: FileId) -> Result<(), FileError> {
        self.unsynced.set_modified(file.0, 0);
        let cached = self.file_mut(file)?;
        (cached.modified, cached.modified_below) = (0, 0);
        if let Some(record) = &mut cached.record {
            record.modified = 0;
            self.medium.store_modified(file.0, 0);
            self.medium.fence()?;
        }
        Ok(())
    }
}
