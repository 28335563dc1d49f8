//! Programs that make room for what they write: see [`tidegate_policy::writeback::shares`].

use super::{OpenFile, OpenFiles, ServedFrom};
use crate::service::REQUEST_THREADS;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use tidegate_policy::writeback::shares::{Shares, pay};

/// Most threads that make room at a time: half of those that answer requests.
const PAYERS_MAX: usize = REQUEST_THREADS.get() / 2;

impl OpenFiles {
    /// Has the program of `thread` make room before it writes so many bytes to a file, if it has
    /// written much that waits for the disk, and little room is left. The caller works with no
    /// file.
    pub(crate) fn make_room(&self, file: &OpenFile, thread: u32, bytes: usize) {
        let Some(lane) = self.lane_for(file) else { return };
        let debt = self.shares().write(thread, bytes as u64);
        if debt == 0 || !self.pool.is_nearly_full(lane) {
            return;
        }
        self.settle_shares();
        // Relaxed: it orders nothing.
        if self.payers.fetch_add(1, Ordering::Relaxed) < PAYERS_MAX {
            // What write-back meets, the thread in the background tells.
            let paid = pay(debt, |bytes| self.pool.write_back_step(lane, bytes).map_or(0, |step| step.bytes));
            self.held_back.fetch_add(u64::from(paid > 0), Ordering::Relaxed);
        }
        self.payers.fetch_sub(1, Ordering::Relaxed);
    }

    /// The lane that a write to a file takes room of, if any.
    fn lane_for(&self, file: &OpenFile) -> Option<usize> {
        let state = file.read_state();
        match state.served_from {
            ServedFrom::Pool(number) => Some(self.pool.lane_of(number)),
            ServedFrom::File if !state.is_bypassed => Some(self.pool.home_of(file.identity)),
            ServedFrom::File | ServedFrom::BesidePool => None,
        }
    }

    /// Has what is below by now not count any more.
    pub(crate) fn settle_shares(&self) {
        let of_lane = |lane| self.pool.out_of_sync(lane) + self.pool.dram_used(lane);
        let bytes = (0..self.pool.lanes()).map(of_lane).sum();
        self.shares().settle(bytes);
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
