//! Programs that make room for what they write: see [`tidegate_policy::writeback::shares`].

use super::{OpenFile, OpenFiles, ServedFrom};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use tidegate_policy::writeback::shares::Shares;

/// Fewest bytes to be written back at a time: each time waits for the disk.
const STEP_BYTES_MIN: u64 = 4 << 20;

impl OpenFiles {
    /// Has the program of `thread` make room before it writes so many bytes to a file, if it has
    /// written much that waits for the disk, and little room is left. The caller works with no
    /// file.
    pub(crate) fn make_room(&self, file: &OpenFile, thread: u32, bytes: usize) {
        let debt = self.shares().write(thread, bytes as u64);
        if debt == 0 {
            return;
        }
        // What write-back meets, the thread in the background tells.
        let served_from = file.read_state().served_from;
        if let ServedFrom::Pool(number) = served_from {
            let lane = self.pool.lane_of(number);
            if self.pool.is_nearly_full(lane) {
                pay(debt, |bytes| self.pool.write_back_step(lane, bytes).map_or(0, |step| step.bytes));
                // Relaxed: it is read for people.
                self.held_back.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.shares().clear(thread);
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

/// Takes steps that make room until they made as much as is owed, or make none.
fn pay(debt: u64, mut step: impl FnMut(u64) -> u64) {
    let mut left = debt;
    while left > 0 {
        let paid = step(left.max(STEP_BYTES_MIN));
        if paid == 0 {
            return;
        }
        left = left.saturating_sub(paid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_paid_in_steps_that_are_worth_waiting_for_and_ends_where_nothing_is_left() {
        let paid = |debt, of_step: u64| {
            let mut asked = Vec::new();
            pay(debt, |bytes| {
                asked.push(bytes);
                of_step
            });
            asked
        };
        assert_eq!(paid(64 << 10, 1 << 20), [4 << 20]);
        assert_eq!(paid(5 << 20, 4 << 20), [5 << 20, 4 << 20]);
        assert_eq!(paid(5 << 20, 0), [5 << 20]);
    }
}
