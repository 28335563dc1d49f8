//! Scripts: short rows of transactions, reads, destaging steps and openings, each on a core of its
//! choice.

use std::fmt;

/// Blocks of a disk of at most 64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Subset(u64);

impl Subset {
    /// These blocks.
    pub fn of(lbas: &[u64]) -> Subset {
        Subset(lbas.iter().fold(0, |set, lba| set | 1 << lba))
    }

    /// The blocks, ascending.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..64).filter(move |lba| self.0 >> lba & 1 == 1)
    }

    /// Every set of some of `lbas`, the empty one left out.
    pub(crate) fn all(lbas: &[u64]) -> impl Iterator<Item = Subset> + '_ {
        (1u32..1 << lbas.len()).map(|chosen| {
            let chosen: Vec<u64> =
                lbas.iter().enumerate().filter(|(index, _)| chosen >> index & 1 == 1).map(|(_, lba)| *lba).collect();
            Subset::of(&chosen)
        })
    }
}

impl fmt::Debug for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// One operation of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheStep {
    /// Commits a transaction that writes these blocks.
    Commit {
        /// The core that does it.
        core: u32,
        /// The blocks.
        lbas: Subset,
    },
    /// Reads a block, and so brings it into the cache.
    Read {
        /// The core that does it.
        core: u32,
        /// The block.
        lba: u64,
    },
    /// Destages everything dirty in one step.
    Drain {
        /// The core that does it.
        core: u32,
    },
    /// The process ends and another opens the cache.
    Reopen {
        /// The core that does it.
        core: u32,
    },
}

impl CacheStep {
    /// Every step there is over `lbas`: transactions on two cores, the rest on the core where it
    /// may go wrong.
    pub fn alphabet(lbas: &[u64]) -> Vec<CacheStep> {
        let mut steps = Vec::new();
        for core in [0, 1] {
            steps.extend(Subset::all(lbas).map(|lbas| CacheStep::Commit { core, lbas }));
            steps.push(CacheStep::Drain { core });
        }
        steps.extend(lbas.iter().map(|lba| CacheStep::Read { core: 1, lba: *lba }));
        steps.push(CacheStep::Reopen { core: 1 });
        steps
    }
}
