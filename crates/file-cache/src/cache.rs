//! The cache as its users have it: one lane of a pool, and the files in it.

use crate::below::{BackingFile, BackingStatus, FileIdentity, Refused};
use crate::counters::Counters;
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::Lane;
use crate::lanes::records::words_of;
use std::sync::Arc;
use tidegate_layout::file_cache::{PATH_HINT_BYTES_MAX, VolatileFile};
use tidegate_media::Region;
use tidegate_media::sync::{Mutex, MutexGuard};

/// When a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// When its bytes are in DRAM that outlives the process: an ordinary write.
    Asynchronous,
    /// When its bytes, all of them or none, are in persistent memory: `O_SYNC`, `O_DSYNC`,
    /// `RWF_DSYNC`.
    Synchronous,
}

/// How a sync ended. Everything is durable in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// In persistent memory: a cut in the middle leaves all of it or nothing of it.
    Atomically,
    /// In the file below, for want of room in the pool or because of a hole: a cut in the middle
    /// may leave some of it.
    Below,
}

/// How full a lane is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// In DRAM and nowhere else.
    pub dirty: u64,
    /// In entries that are newer than the file below.
    pub out_of_sync: u64,
    /// Bytes of the pool's blocks, used or not.
    pub pool: u64,
    /// Bytes of the blocks in DRAM, used or not.
    pub dram: u64,
    /// Bytes of those in use: a block that is filled in part counts as a whole.
    pub dram_used: u64,
}

impl Occupancy {
    pub(crate) fn plus(self, other: Occupancy) -> Occupancy {
        Occupancy {
            dirty: self.dirty + other.dirty,
            out_of_sync: self.out_of_sync + other.out_of_sync,
            pool: self.pool + other.pool,
            dram: self.dram + other.dram,
            dram_used: self.dram_used + other.dram_used,
        }
    }
}

/// One lane of a pool, with its files.
pub struct FileCache<R> {
    pub(crate) lane: Mutex<Lane<R>>,
    /// Held by whoever writes back. Taken before the lane.
    pub(crate) sweep: Mutex<()>,
}

impl<R: Region> FileCache<R> {
    /// Caches a file. `path_hint` is where recovery looks first. A file that is here already (the
    /// same identity) keeps its number, and has to be closed as often as it was opened. One that is
    /// detached is attached first.
    pub fn open_file(&self, backing: Arc<dyn BackingFile>, path_hint: &[u8]) -> Result<FileId, FileError> {
        if path_hint.len() > PATH_HINT_BYTES_MAX {
            return Err(FileError::PathTooLong(path_hint.len()));
        }
        let status = backing.status()?;
        let file = self.lane().open_file(&backing, path_hint, status)?;
        let detached = self.lane().file(file)?.is_detached();
        if detached && let Err(error) = self.attach(file, backing) {
            self.close(file)?;
            return Err(error);
        }
        Ok(file)
    }

    /// Whether the file is open, or not all below yet.
    pub(crate) fn has(&self, identity: FileIdentity) -> bool {
        self.lane().by_identity.contains_key(&identity)
    }

    /// The opposite of [`FileCache::open_file`]. What is not below yet stays here: unsynced writes
    /// until the file is synced or drained, synced ones until they are written back. The last close
    /// ends the file's lease.
    pub fn close(&self, file: FileId) -> Result<(), FileError> {
        let mut lane = self.lane();
        let closed = lane.file_mut(file)?;
        closed.opens = closed.opens.saturating_sub(1);
        if closed.opens == 0 {
            lane.revoke(file)?;
        }
        lane.forget_if_done(file)
    }

    /// Closes a file that is open once, if everything of it is below and the lane can forget it, or
    /// have it rest. `settle` changes anything but the contents of the file below, such as its
    /// times or its room. Says whether it is closed; otherwise nothing has changed here.
    pub fn close_if_done(&self, file: FileId, settle: impl FnOnce() -> Result<(), Refused>) -> Result<bool, FileError> {
        let is_used = |cached: &File| cached.opens > 1 || cached.pins > 0 || !cached.is_done();
        let (backing, modified, owes_time) = {
            let mut lane = self.lane();
            if lane.file(file)?.opens <= 1 {
                lane.revoke(file)?;
            }
            let cached = lane.file(file)?;
            if is_used(cached) {
                return Ok(false);
            }
            (cached.backing()?.clone(), cached.modified, cached.record.is_some_and(|record| record.modified != 0))
        };
        let before = backing.status()?;
        let settled = settle().and_then(|()| {
            let after = backing.status()?;
            if !owes_time && after.stamp.has_contents_of(before.stamp) {
                return Ok(after);
            }
            // The time was promised and the record says it no more, or it is another one now, by
            // which the record is to know the file.
            backing.sync()?;
            backing.status()
        });
        let after = match settled {
            Ok(after) => after,
            Err(refused) => {
                // Nobody knows what a power cut leaves of it.
                self.lane().touch(file)?;
                return Err(refused.into());
            }
        };
        let mut lane = self.lane();
        if is_used(lane.file(file)?) {
            return Ok(false);
        }
        lane.restamp(file, before.stamp, after.stamp)?;
        lane.modified_is_below(file, modified)?;
        lane.file_mut(file)?.opens = 0;
        lane.forget_if_done(file)?;
        Ok(true)
    }

    /// Every file that is open, or not all below yet.
    pub fn files(&self) -> Vec<(FileId, FileIdentity)> {
        let lane = self.lane();
        let files = (0..).zip(&lane.files);
        let known = |(number, file): (u32, &Option<Box<File>>)| {
            Some((FileId(number), file.as_deref().filter(|file| !file.is_resting())?.identity))
        };
        files.filter_map(known).collect()
    }

    /// Whether the file below lacks, or may lose, what the lane has of an open file.
    pub(crate) fn lacks(&self, file: FileId) -> bool {
        self.lane().file(file).is_ok_and(|cached| !cached.is_done())
    }

    /// How full the lane is.
    pub fn fill(&self) -> Occupancy {
        let lane = self.lane();
        Occupancy {
            dirty: lane.dirty_bytes(),
            out_of_sync: lane.out_of_sync_bytes(),
            pool: lane.medium.plan.data_bytes(),
            dram: lane.unsynced.bytes(),
            dram_used: lane.unsynced.bytes_used(),
        }
    }

    /// What was done since the lane was opened.
    pub fn counters(&self) -> Counters {
        self.lane().counters
    }

    pub(crate) fn lane(&self) -> MutexGuard<'_, Lane<R>> {
        self.lane.lock()
    }
}

impl<R: Region> Lane<R> {
    fn open_file(
        &mut self,
        backing: &Arc<dyn BackingFile>,
        hint: &[u8],
        status: BackingStatus,
    ) -> Result<FileId, FileError> {
        let identity = backing.identity();
        if let Some(known) = self.by_identity.get(&identity).copied() {
            if self.file(known)?.is_resting() {
                self.wake(known, backing, hint, status)?;
            } else {
                self.doubt_clean(known, status)?;
            }
            self.file_mut(known)?.opens += 1;
            return Ok(known);
        }
        if self.free_files.is_empty() {
            self.forget_a_resting_file()?;
        }
        let file = self.free_files.pop().ok_or(FileError::TooManyFiles)?;
        self.unsynced.begin_file(file.0, &VolatileFile::new(words_of(identity), hint, status.len));
        self.add_file(file, File::new(backing.clone(), hint, status.len));
        Ok(file)
    }
}

impl<R> FileCache<R> {
    /// The region.
    pub fn into_region(self) -> R {
        self.lane.into_inner().medium.region
    }
}
