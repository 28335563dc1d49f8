//! Read admission: long runs of adjacent blocks go past it, and perhaps blocks that were wanted
//! only once.

use crate::evict::Ghosts;
use std::fmt;
use std::str::FromStr;

/// Runs that are watched at once: a few readers and writers going through a disk side by side.
const RUNS: usize = 8;

/// Finds requests that are part of a long run of adjacent ones, each of several at once.
#[derive(Clone, Debug)]
pub struct Sequential {
    cutoff_blocks: u64,
    /// The newest first.
    runs: [AdjacentReads; RUNS],
}

/// A run of adjacent requests.
#[derive(Clone, Copy, Debug, Default)]
struct AdjacentReads {
    /// The block that would go on with it.
    next: u64,
    /// Its blocks so far; 0: no run yet.
    blocks: u64,
}

impl Sequential {
    /// Runs of more than `cutoff_blocks` blocks are found; none with 0.
    pub fn new(cutoff_blocks: u32) -> Sequential {
        Sequential { cutoff_blocks: u64::from(cutoff_blocks), runs: [AdjacentReads::default(); RUNS] }
    }

    /// A request for `blocks` blocks from `first` on: whether it belongs to a run that is longer
    /// than the cut-off, this request included.
    pub fn is_sequential(&mut self, first: u64, blocks: u32) -> bool {
        if self.cutoff_blocks == 0 {
            return false;
        }
        let goes_on = self.runs.iter().position(|run| run.blocks > 0 && run.next == first);
        let at = goes_on.unwrap_or(RUNS - 1);
        let before = goes_on.map_or(0, |at| self.runs[at].blocks);
        let blocks_now = before + u64::from(blocks);
        self.runs[..=at].rotate_right(1);
        self.runs[0] = AdjacentReads { next: first.saturating_add(u64::from(blocks)), blocks: blocks_now };
        blocks_now > self.cutoff_blocks
    }
}

/// Which blocks that were read from the disk are worth a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admit {
    /// All.
    #[default]
    Always,
    /// None: only what is written is cached.
    Never,
    /// Those that were read before, not long ago.
    SecondMiss,
}

impl Admit {
    /// Every policy.
    pub const ALL: [Admit; 3] = [Admit::Always, Admit::Never, Admit::SecondMiss];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Admit::Always => "always",
            Admit::Never => "never",
            Admit::SecondMiss => "second-miss",
        }
    }
}

impl fmt::Display for Admit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownAdmit;

impl FromStr for Admit {
    type Err = UnknownAdmit;

    fn from_str(name: &str) -> Result<Admit, UnknownAdmit> {
        Admit::ALL.into_iter().find(|known| known.name() == name).ok_or(UnknownAdmit)
    }
}

/// Decides by [`Admit`], and remembers what it turned away: at most 32 bytes for each slot of the
/// cache with [`Admit::SecondMiss`], else none.
pub struct Doorkeeper {
    admit: Admit,
    turned_away: Ghosts,
}

impl Doorkeeper {
    /// The doorkeeper of a cache of `slots` slots, into which nothing came yet.
    pub fn new(admit: Admit, slots: u32) -> Doorkeeper {
        let remembered = if admit == Admit::SecondMiss { slots } else { 0 };
        Doorkeeper { admit, turned_away: Ghosts::new(remembered) }
    }

    /// Block `key` was missed: whether it gets a slot.
    pub fn admits(&mut self, key: u64) -> bool {
        match self.admit {
            Admit::Always => true,
            Admit::Never => false,
            Admit::SecondMiss => {
                let again = self.turned_away.take(key);
                if !again {
                    self.turned_away.add(key);
                }
                again
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_when_it_is_longer_than_the_cut_off() {
        let mut sequential = Sequential::new(16);
        let found: Vec<bool> = (0..6).map(|nth| sequential.is_sequential(nth * 4, 4)).collect();
        assert_eq!(found, [false, false, false, false, true, true]);
        assert!(!sequential.is_sequential(100, 4), "elsewhere a new one begins");
        assert!(sequential.is_sequential(24, 4), "and the first goes on");
        assert!(sequential.is_sequential(200, 17), "one request can be a run");
        assert!(!Sequential::new(0).is_sequential(0, u32::MAX));
    }

    #[test]
    fn runs_beside_each_other_are_told_apart_and_an_old_one_is_forgotten() {
        let mut sequential = Sequential::new(8);
        let mut step = |runs: u64, nth: u64| {
            (0..runs).map(|run| sequential.is_sequential(run * 1000 + nth, 1)).filter(|found| *found).count()
        };
        let found: Vec<usize> = (0..10).map(|nth| step(RUNS as u64, nth)).collect();
        assert_eq!(found, [0, 0, 0, 0, 0, 0, 0, 0, RUNS, RUNS]);
        let more: Vec<usize> = (0..10).map(|nth| step(RUNS as u64 + 1, 500 + nth)).collect();
        assert_eq!(more, [0; 10], "one too many, and each forgets the next");
    }

    #[test]
    fn random_requests_are_never_sequential() {
        let mut sequential = Sequential::new(4);
        assert!((0_u64..10_000).all(|nth| !sequential.is_sequential(nth * 7919 % 10_007 * 8, 4)));
    }

    #[test]
    fn the_second_miss_is_admitted() {
        let mut doorkeeper = Doorkeeper::new(Admit::SecondMiss, 4);
        let admitted: Vec<bool> = [1, 2, 1, 1, 3, 4, 5, 6, 2].into_iter().map(|key| doorkeeper.admits(key)).collect();
        assert_eq!(admitted, [false, false, true, false, false, false, false, false, false]);
        assert!(Doorkeeper::new(Admit::Always, 4).admits(1));
        let mut never = Doorkeeper::new(Admit::Never, 4);
        assert!(!never.admits(1) && !never.admits(1));
    }

    #[test]
    fn names_lead_back_to_their_policies() {
        assert!(Admit::ALL.into_iter().all(|admit| admit.to_string().parse() == Ok(admit)));
        assert_eq!("sometimes".parse::<Admit>(), Err(UnknownAdmit));
    }
}
