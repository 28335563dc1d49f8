//! The right to change one file, which is kept while the file below is waited for.
//!
//! The lane's lock is held for steps in memory only. An operation that goes below takes the file's
//! *gate* first, and takes the lane's lock for each step between its accesses below. Two kinds of
//! operations take the gate:
//!
//! - an *exclusive* one, as a truncation: the file is *busy*, and operations that change it wait
//!   for the gate;
//! - write-back: operations go on that change no more than the cache.
//!
//! An exclusive operation ends the file's lease. Write-back and reads for the process that has the
//! lease do not: to the lane that process is one more writer, whose writes come with adoption.
//!
//! A lane keeps a file that has a *pin* although it is closed and written back, so its number is
//! not given to another one meanwhile. Order of locks: one gate, then the lane; a thread that holds
//! a gate waits for no other gate.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use std::sync::Arc;
use tidegate_media::Region;
use tidegate_media::sync::{Mutex, MutexGuard};

impl<R: Region> FileCache<R> {
    /// The lane, while no exclusive operation on the file is under way. Nobody has a lease of it
    /// then.
    pub(crate) fn ready(&self, file: FileId) -> Result<MutexGuard<'_, Lane<R>>, FileError> {
        loop {
            let mut lane = self.lane();
            let cached = lane.file(file)?;
            if !cached.busy {
                lane.revoke(file)?;
                return Ok(lane);
            }
            let gate = cached.gate.clone();
            drop(lane);
            drop(gate.lock());
        }
    }

    /// Has `act` change the file, as nothing else does meanwhile, nor a process that had a lease.
    pub(crate) fn exclusively<T>(
        &self,
        file: FileId,
        act: impl FnOnce() -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.while_busy(file, || {
            self.lane().revoke(file)?;
            act()
        })
    }

    /// Has `act` look at the file while nobody changes it but a process with a lease.
    pub(crate) fn while_busy<T>(
        &self,
        file: FileId,
        act: impl FnOnce() -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.gated(file, || {
            self.lane().file_mut(file)?.busy = true;
            let done = act();
            self.lane().file_mut(file)?.busy = false;
            done
        })
    }

    /// Has `act` change the file below, as nothing else does meanwhile. A lease goes on.
    pub(crate) fn gated<T>(&self, file: FileId, act: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
        let gate = self.pin(file)?;
        let entered = gate.lock();
        let done = act();
        drop(entered);
        self.unpin(file)?;
        done
    }

    /// The file keeps its number.
    pub(crate) fn pin(&self, file: FileId) -> Result<Arc<Mutex<()>>, FileError> {
        let mut lane = self.lane();
        let cached = lane.file_mut(file)?;
        cached.pins += 1;
        Ok(cached.gate.clone())
    }

    /// The opposite of [`FileCache::pin`].
    pub(crate) fn unpin(&self, file: FileId) -> Result<(), FileError> {
        let mut lane = self.lane();
        lane.file_mut(file)?.pins -= 1;
        lane.forget_if_done(file)
    }
}
