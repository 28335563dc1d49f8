//! Which blocks were committed while transactions ran that refuse conflicts.
//!
//! Nothing is remembered while no such transaction runs: a commit only looks at one number. It does
//! so with the stripes of its blocks locked, and until they are unlocked. So if it looks before a
//! transaction begins, whatever the transaction reads of these blocks is read after it.

use std::collections::HashMap;
use tidegate_media::sync::{AtomicU32, Mutex, Ordering};

/// What becomes of transactions that touch the same blocks at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflicts {
    /// The one committed last wins each block that both wrote.
    #[default]
    LastWins,
    /// A transaction is refused if a block that it read or wrote was committed by somebody else
    /// since it began.
    Refuse,
}

/// The commits since the oldest of the running transactions began.
#[derive(Default)]
pub(crate) struct RecentCommits {
    /// Transactions running that refuse conflicts.
    running: AtomicU32,
    commits: Mutex<Commits>,
}

#[derive(Default)]
struct Commits {
    clock: u64,
    /// When each block was committed last.
    last: HashMap<u64, u64>,
}

impl RecentCommits {
    /// A transaction begins: the time that it began at.
    pub(crate) fn begin(&self) -> u64 {
        let mut commits = self.commits.lock();
        // SeqCst on both sides, so that a commit that looks later sees it.
        if self.running.fetch_add(1, Ordering::SeqCst) == 0 {
            commits.last.clear();
        }
        commits.clock
    }

    /// A transaction ends. It waits for nobody, for it may end because its thread panics; the next
    /// that begins alone forgets the commits.
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Blocks are being committed; their stripes are locked.
    pub(crate) fn commit(&self, lbas: impl Iterator<Item = u64>) {
        if self.running.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut commits = self.commits.lock();
        commits.clock += 1;
        let now = commits.clock;
        commits.last.extend(lbas.map(|lba| (lba, now)));
    }

    /// The first of `lbas` that was committed since `began`. Their stripes are locked.
    pub(crate) fn conflict(&self, mut lbas: impl Iterator<Item = u64>, began: u64) -> Option<u64> {
        let commits = self.commits.lock();
        lbas.find(|lba| commits.last.get(lba).is_some_and(|at| *at > began))
    }
}
