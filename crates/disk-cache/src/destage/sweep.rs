//! A sweep: what it has found and how far it is, and the runs of neighbours in that.

use std::ops::Range;
use tidegate_policy::writeback::destage::SweepScope;

/// Blocks of a run that is left out, at most: a disk takes it for the time of a longer one.
pub(super) const SHORT_MAX: usize = 2;
/// Bytes of the largest write to the disk.
const RUN_BYTES_MAX: usize = 1 << 20;

/// A way over the disk, past all that is dirty, in order.
#[derive(Default)]
pub(crate) struct Sweep {
    /// What was found on the part of the way that was looked at, and how much of it is done.
    pub(super) lbas: Vec<u64>,
    pub(super) next: usize,
    /// Where the next look begins; None: there is nothing dirty from there on.
    pub(super) unseen: Option<u64>,
    pub(super) looks: usize,
    /// The block behind the last one taken.
    pub(super) at: u64,
    /// Blocks taken that no look had listed, but that lay beside one.
    pub(super) followed: usize,
    /// What its last step took along.
    pub(super) scope: SweepScope,
    /// What a writer without room has taken from it, and is at.
    pub(super) beside: Vec<u64>,
    /// Those that somebody else was writing to the disk when they were looked at: he may fail.
    pub(super) again: Vec<u64>,
}

impl Sweep {
    /// Whether blocks are left, with those that were `passed_over`.
    pub(super) fn goes_on_with(&mut self, passed_over: Vec<u64>) -> bool {
        self.again.extend(passed_over);
        if self.is_through() {
            self.again.append(&mut self.beside);
        }
        !self.is_through() || !self.again.is_empty()
    }

    /// Whether nothing is left but what is to be tried again.
    pub(super) fn is_through(&self) -> bool {
        self.next == self.lbas.len() && self.unseen.is_none()
    }
}

/// Where runs of blocks that follow each other begin and end in `lbas`, which ascend: what is
/// written together.
pub(crate) fn neighbours(lbas: &[u64], block_size: u32) -> Vec<(usize, usize)> {
    let blocks_max = (RUN_BYTES_MAX / block_size as usize).max(1);
    runs(lbas, blocks_max).into_iter().map(|run| (run.start, run.end)).collect()
}

/// Returns where runs of up to `blocks_max` successive blocks begin and end in `lbas`, which
/// ascend.
fn runs(lbas: &[u64], blocks_max: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, lba) in lbas.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if lbas[run.end - 1] + 1 == *lba && run.len() < blocks_max => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}

/// Those of a look's runs that are short.
pub(super) struct ShortRuns {
    pub(super) runs: Vec<Range<usize>>,
    /// Runs of one block.
    pub(super) alone: usize,
}

impl ShortRuns {
    /// Where they are in `found`, which ascends. A run that may go on beyond what was looked at,
    /// from `from` up to `unseen`, counts as a long one.
    pub(super) fn of(found: &[u64], from: u64, unseen: Option<u64>) -> ShortRuns {
        let goes_on = |run: &Range<usize>| {
            let before = run.start == 0 && from > 0 && found[0] == from;
            before || run.end == found.len() && unseen == Some(found[run.end - 1] + 1)
        };
        let mut runs = runs(found, usize::MAX);
        runs.retain(|run| run.len() <= SHORT_MAX && !goes_on(run));
        let alone = runs.iter().filter(|run| run.len() == 1).count();
        ShortRuns { runs, alone }
    }

    pub(super) fn blocks(&self) -> usize {
        self.runs.iter().map(Range::len).sum()
    }
}
