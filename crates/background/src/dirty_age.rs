//! For how long blocks have been dirty: a bound, since a cache does not note when each turned
//! dirty.
//!
//! A block that is dirty at the end of a sweep that refused none turned dirty after the sweep
//! began. Where a sweep leaves some blocks to the next ones, each is written by the third sweep
//! that comes past it; where another caller may have begun a sweep, its beginning is not known, and
//! that of the one before counts.

use crate::step::Step;
use std::collections::VecDeque;
use std::time::Instant;
use tidegate_disk_cache::POSTPONED_MAX;
use tidegate_policy::writeback::destage::SweepScope;

/// When the oldest dirty block turned dirty, at the earliest.
#[derive(Debug)]
pub(crate) struct Ages {
    /// Sweeps that somebody else may have begun, before the one that is known to have begun here.
    unknown: usize,
    since: Option<Instant>,
    /// When the sweeps began that refused nothing, the one under way last.
    begins: VecDeque<Instant>,
    under_way: bool,
    /// Whether the sweep under way postponed nothing so far, and whether it refused something.
    whole: bool,
    refused: bool,
}

impl Ages {
    /// Of a cache, and whether others begin sweeps over it too.
    pub(crate) fn new(shares_sweeps: bool) -> Ages {
        let unknown = usize::from(shares_sweeps);
        Ages { unknown, since: None, begins: VecDeque::new(), under_way: false, whole: true, refused: false }
    }

    /// Since when no block has been dirty for longer. None: nothing is dirty.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// At `now` so many blocks are dirty.
    pub(crate) fn saw(&mut self, now: Instant, dirty: u32) {
        self.since = (dirty > 0).then(|| self.since.unwrap_or(now));
    }

    /// A step begins at `now`.
    pub(crate) fn begins(&mut self, now: Instant, scope: SweepScope) {
        if !self.under_way {
            self.begins.push_back(now);
            (self.under_way, self.whole, self.refused) = (true, true, false);
        }
        self.whole &= scope == SweepScope::Everything;
    }

    /// The step has ended.
    pub(crate) fn ended(&mut self, step: &Step) {
        self.refused |= !step.refused.is_empty() || step.not_durable.is_some();
        if step.more {
            return;
        }
        self.under_way = false;
        if self.refused {
            return self.begins.clear();
        }
        let back = self.unknown + if self.whole { 0 } else { POSTPONED_MAX };
        let begin = self.begins.iter().rev().nth(back).copied();
        if let Some((since, begin)) = self.since.zip(begin) {
            self.since = Some(since.max(begin));
        }
        while self.begins.len() > self.unknown + POSTPONED_MAX {
            self.begins.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_media::{Error, Lba, Misuse};

    /// What became of a sweep.
    #[derive(Clone, Copy)]
    enum Sweep {
        Whole,
        Partial,
        Refused,
    }

    /// Since which second blocks have been dirty at most after sweeps of a second each, while
    /// something is always dirty.
    fn since(shares_sweeps: bool, sweeps: &[Sweep]) -> u64 {
        let start = Instant::now();
        let mut ages = Ages::new(shares_sweeps);
        for (sweep, second) in sweeps.iter().zip(0..) {
            let now = start + Duration::from_secs(second);
            ages.saw(now, 1);
            let scope = if matches!(sweep, Sweep::Partial) { SweepScope::Neighbours } else { SweepScope::Everything };
            ages.begins(now, scope);
            ages.ended(&Step { cleaned: 1, more: true, ..Step::default() });
            ages.begins(now + Duration::from_millis(500), SweepScope::Everything);
            let refused = matches!(sweep, Sweep::Refused).then(|| (Lba(0), Error::from(Misuse::ReadOnly)));
            ages.ended(&Step { refused: refused.into_iter().collect(), ..Step::default() });
        }
        ages.since().expect("something is dirty").duration_since(start).as_secs()
    }

    #[test]
    fn the_oldest_block_is_as_old_as_the_last_sweep_that_brought_everything() {
        use Sweep::{Partial, Refused, Whole};
        assert_eq!(since(false, &[Whole; 5]), 4);
        assert_eq!(since(true, &[Whole; 5]), 3);
        assert_eq!([2, 3, 5].map(|sweeps| since(false, &vec![Partial; sweeps])), [0, 0, 2]);
        assert_eq!(since(true, &[Partial; 5]), 1);
        assert_eq!(since(false, &[Whole, Whole, Refused, Refused]), 1);
        assert_eq!(since(false, &[Whole, Whole, Refused, Partial, Partial]), 1);
        assert_eq!(since(false, &[Refused, Partial, Partial, Partial]), 1);
        assert_eq!(since(false, &[Whole, Refused, Whole]), 2);
    }

    #[test]
    fn where_nothing_is_dirty_nothing_is_old() {
        let mut ages = Ages::new(false);
        let start = Instant::now();
        ages.saw(start, 3);
        ages.saw(start + Duration::from_secs(1), 2);
        assert_eq!(ages.since(), Some(start));
        ages.saw(start + Duration::from_secs(2), 0);
        assert_eq!(ages.since(), None);
        ages.saw(start + Duration::from_secs(3), 1);
        assert_eq!(ages.since(), Some(start + Duration::from_secs(3)));
    }
}
