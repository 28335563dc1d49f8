//! Which blocks that were read come into the cache, if the mode lets any in: long runs go past it,
//! and so may blocks that were read only once.
//!
//! Writes always come in. Past the cache they would lose its gain: each would wait for a flush of
//! the disk, and a request of several blocks would not be whole.

use crate::counters::UnlockedCounts;
use tidegate_media::LbaRange;
use tidegate_media::sync::Mutex;
use tidegate_policy::admit::{Admit, Doorkeeper, Sequential};

/// What a read is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunLength {
    /// A run longer than the cut-off.
    Long,
    /// Anything else.
    Short,
}

/// The policies, each behind its own lock, which nobody takes unless the policy has something to
/// decide.
pub(crate) struct Filter {
    sequential: Option<Mutex<Sequential>>,
    doorkeeper: Option<Mutex<Doorkeeper>>,
}

impl Filter {
    /// Of a cache of `blocks` blocks; no run is too long if `cutoff_blocks` is 0.
    pub(crate) fn new(admit: Admit, cutoff_blocks: u32, blocks: u32) -> Filter {
        Filter {
            sequential: (cutoff_blocks > 0).then(|| Mutex::new(Sequential::new(cutoff_blocks))),
            doorkeeper: (admit != Admit::Always).then(|| Mutex::new(Doorkeeper::new(admit, blocks))),
        }
    }

    /// What the read of `range` is part of. Every read has to be told, cached or not.
    pub(crate) fn run(&self, range: LbaRange) -> RunLength {
        let Some(sequential) = &self.sequential else { return RunLength::Short };
        let blocks = u32::try_from(range.blocks).unwrap_or(u32::MAX);
        match sequential.lock().is_sequential(range.first.0, blocks) {
            true => RunLength::Long,
            false => RunLength::Short,
        }
    }

    /// Whether block `lba`, which was missed by a read that is part of `run`, comes in.
    pub(crate) fn lets_in(&self, lba: u64, run: RunLength, tally: &UnlockedCounts) -> bool {
        if run == RunLength::Long {
            tally.past_in_runs.add(1);
            return false;
        }
        let comes_in = self.doorkeeper.as_ref().is_none_or(|doorkeeper| doorkeeper.lock().admits(lba));
        if !comes_in {
            tally.turned_away.add(1);
        }
        comes_in
    }
}
