//! Files of which programs have pages of the pool mapped: see `docs/decisions/0047`.
//!
//! A program that has a block mapped holds a lock on the block's place in the pool's file (see
//! `MappedRuns`): the kernel drops it with the last mapping, in whichever process that is. So these
//! locks say what is mapped. They are looked at once a second, and when a server takes a mount
//! over. A file counts as open as long as it is mapped.
//!
//! A program may have upgraded mappings of the kernel's pages, without knowing it: others that want
//! to use the file find it as if there were no direct mappings. So whoever opens the file has these
//! recalled.

use super::leases::follow_time;
use super::{OpenFile, OpenFiles, ServedFrom, errno_of, word_of_now};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, Result};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_layout::file_cache::{LEASE_CLASS, MappedRun};
use tidegate_media::MappedRuns;

/// How long whoever wants a file waits until a program has given back the mappings of it that it
/// upgraded. One that is stopped does not.
const RECALL_MAX: Duration = Duration::from_secs(1);

/// Every file that is mapped.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Held while pages come to be mapped, and while the locks are looked at.
    files: Mutex<Vec<Arc<OpenFile>>>,
    /// Mappings of the kernel's pages that programs upgraded, and those that came back; relaxed:
    /// they are read for people.
    pub(crate) upgraded: AtomicU64,
    pub(crate) recalled: AtomicU64,
    /// Taken by who waits for mappings to end, which is told by the condition.
    waits: Mutex<()>,
    ended: Condvar,
}

impl OpenFiles {
    /// Has whole pages of a file mapped, of which the kernel has no pages, and says where they lie
    /// in the pool, and where programs say when they stored to them.
    pub(crate) fn map(&self, file: &Arc<OpenFile>, range: Range<u64>) -> Result<(Vec<MappedRun>, Option<MappedRun>)> {
        let mut mapped = self.mappings.files.lock().unwrap_or_else(PoisonError::into_inner);
        self.names.commit()?;
        let state = file.read_state();
        let ServedFrom::Pool(number) = state.served_from else { return Err(Errno::OPNOTSUPP) };
        self.end_lease(file, &state)?;
        self.note_change(&state)?;
        let runs = self.pool.map(number, range, LEASE_CLASS).map_err(|error| errno_of(&error))?;
        let time_page = self.pool.time_page(number);
        drop(state);
        if !mapped.iter().any(|known| Arc::ptr_eq(known, file)) {
            self.count_open(file);
            mapped.push(Arc::clone(file));
        }
        Ok((runs, time_page))
    }

    /// Finds the files that were mapped when an earlier server died.
    pub(crate) fn find_mapped(&self) {
        let mut mapped = self.mappings.files.lock().unwrap_or_else(PoisonError::into_inner);
        for file in self.all() {
            if self.is_mapped_still(&file) {
                self.count_open(&file);
                file.lease.set_direct(true);
                // If it did not, it is waited for in vain, once.
                file.lease.set_upgraded(true);
                mapped.push(file);
            }
        }
    }

    /// Notes that a file is open once more than programs have it.
    fn count_open(&self, file: &OpenFile) {
        self.files().entry(file.identity).and_modify(|known| known.opens += 1);
    }

    /// Ends the mappings of pages that no program has mapped any more.
    pub(crate) fn end_mappings(&self, pool: BorrowedFd<'_>) {
        let mut mapped = self.mappings.files.lock().unwrap_or_else(PoisonError::into_inner);
        let before = mapped.len();
        mapped.retain(|file| {
            let is_mapped = self.still_mapped(file, pool).unwrap_or_else(|errno| {
                tracing::warn!("whether a file is mapped still is not known: {errno}");
                true
            });
            if !is_mapped {
                file.lease.set_direct(false);
                file.lease.set_upgraded(false);
                self.close(file.clone());
            }
            is_mapped
        });
        if mapped.len() < before {
            drop(mapped);
            // Whoever waits has looked before, or looks after this.
            drop(self.mappings.waits.lock().unwrap_or_else(PoisonError::into_inner));
            self.mappings.ended.notify_all();
        }
    }

    /// Has a program give back the mappings of a file that it upgraded, if one has such, and waits
    /// for that for a while.
    pub(crate) fn recall(&self, file: &OpenFile) {
        if !file.lease.is_direct() || !file.lease.recall() {
            return;
        }
        self.board.get().inspect(|board| board.recall());
        let begun = Instant::now();
        let mut turn = self.mappings.waits.lock().unwrap_or_else(PoisonError::into_inner);
        while file.lease.is_direct() {
            let Some(left) = RECALL_MAX.checked_sub(begun.elapsed()) else {
                // The next one does not wait in vain.
                return file.lease.set_upgraded(false);
            };
            let waited = self.mappings.ended.wait_timeout(turn, left);
            (turn, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn still_mapped(&self, file: &OpenFile, pool: BorrowedFd<'_>) -> Result<bool> {
        let state = file.read_state();
        let ServedFrom::Pool(number) = state.served_from else { return Ok(false) };
        // A lock that cannot be asked about is taken for one.
        let has = |run: &MappedRun| MappedRuns::is_mapped(pool, run.pool_at, run.bytes).unwrap_or(true);
        let left = follow_time(self, (&state, number), || self.pool.unmap(number, word_of_now(), has));
        Ok(left.map_err(|error| errno_of(&error))? > 0)
    }

    /// Whether anything of a file is mapped, and be it where programs say when they stored.
    pub(crate) fn is_mapped_still(&self, file: &OpenFile) -> bool {
        let served_from = file.read_state().served_from;
        let has_time_page = matches!(served_from, ServedFrom::Pool(number) if self.pool.time_page(number).is_some());
        has_time_page || !self.mapped_runs(file).is_empty()
    }

    /// The files that are mapped.
    pub(super) fn mapped_files(&self) -> Vec<Arc<OpenFile>> {
        self.mappings.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where the mapped pages of a file lie.
    pub(crate) fn mapped_runs(&self, file: &OpenFile) -> Vec<MappedRun> {
        match file.read_state().served_from {
            ServedFrom::Pool(number) => self.pool.mapped(number),
            ServedFrom::File | ServedFrom::BesidePool => Vec::new(),
        }
    }
}
