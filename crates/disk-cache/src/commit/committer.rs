//! The state that commits share: the ring, the transactions that wait for it, and the latest
//! commits.

use crate::commit::conflicts::{Conflicts, RecentCommits};
use crate::commit::redo::{Move, Ring};
use std::collections::VecDeque;
use tidegate_media::Sealed;
use tidegate_media::sync::Mutex;

/// The state that commits share.
pub(crate) struct Committer {
    pub(super) ring: Mutex<Ring>,
    /// Transactions that wait for it.
    pub(super) waiting: Mutex<Waiting>,
    pub(super) recent: RecentCommits,
    pub(super) conflicts: Conflicts,
}

impl Committer {
    pub(crate) fn new(ring: Ring, conflicts: Conflicts) -> Committer {
        Committer { ring: Mutex::new(ring), waiting: Mutex::default(), recent: RecentCommits::default(), conflicts }
    }

    /// Tells transactions that refuse conflicts of a write past the cache; the stripes of `lbas`
    /// are locked.
    pub(crate) fn wrote_around(&self, lbas: impl Iterator<Item = u64>) {
        self.recent.commit(lbas);
    }
}

/// Transactions that wait for the ring.
#[derive(Default)]
pub(super) struct Waiting {
    /// Their moves, in the order in which they came.
    pub(super) moves: VecDeque<Vec<Move>>,
    /// Transactions that ever joined.
    pub(super) joined: u64,
    /// Transactions of those that are committed.
    pub(super) committed: u64,
    /// Why no more can be.
    pub(super) failed: Option<Sealed>,
}

impl Waiting {
    /// Adds a transaction, whose data is durable. Returns its number.
    pub(super) fn join(&mut self, moves: &[Move]) -> u64 {
        self.moves.push_back(moves.to_vec());
        self.joined += 1;
        self.joined
    }

    /// Takes the first of those that wait, as far as they go into a group of `room` moves more.
    pub(super) fn take(&mut self, room: usize) -> Result<Vec<Vec<Move>>, Sealed> {
        if let Some(sealed) = self.failed {
            return Err(sealed);
        }
        let sizes = self.moves.iter().scan(0, |sum, moves| {
            *sum += moves.len();
            Some(*sum)
        });
        let fitting = sizes.take_while(|sum| *sum <= room).count();
        Ok(self.moves.drain(..fitting).collect())
    }
}
