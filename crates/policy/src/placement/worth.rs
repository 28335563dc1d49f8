//! Placement by how soon a block is used again: Tidegate's own.
//!
//! Time is counted in touches of pages. The program context tells when a page that it touches for
//! the first time is expected again; each use of a cached block corrects that for this block, which
//! makes its temperature. A *level* is a range of such intervals:
//!
//! | level | block |
//! | --- | --- |
//! | 0 | not expected again, or overdue by four times its interval |
//! | 1 | of a context without order of which too little is known |
//! | 2 | of a consecutive context of which too little is known |
//! | 3 to 43 | expected after an interval; half an octave each, the shortest at the top |
//!
//! A block that is late goes down to the level of its age, so that what a program has left behind
//! makes room for what it does now.
//!
//! The victim is the block that was used least lately among those of the lowest level. A block
//! enters a full tier only if its level is above the victim's: of a loop that does not fit, a part
//! stays and is hit in each pass. Level 1 is the exception, and replaces its oldest.
//!
//! Both tiers are one cache, and a full one makes room in the other. Consecutive contexts fill NVM
//! first, all others DRAM, because NVM is slower without order. Synchronous writes enter NVM.

use super::contexts::{AccessPattern, Contexts, Expected, LearntPattern};
use super::{
    Condition, Decision, Eviction, FilePage, FreeSlots, IoKind, IoRequest, Placement, Reason, Tier, TierSlots,
};
use crate::evict::queues::{NONE, Queues};

const NOT_AGAIN: usize = 0;
const UNKNOWN: usize = 1;
const UNKNOWN_CONSECUTIVE: usize = 2;
const KNOWN_FIRST: usize = 3;
const LEVELS: usize = 44;

/// Queues: two of each level.
const QUEUES: usize = 2 * LEVELS;

/// The intervals that levels tell apart, as half octaves: from 16 touches to 16 million.
const HALF_OCTAVES: std::ops::RangeInclusive<u32> = 8..=48;
const _: () = assert!(KNOWN_FIRST + 48 - 8 == LEVELS - 1);

/// A block is late after so many of its level's longest intervals: one of a loop never is, while it
/// goes on.
const LATE_INTERVALS: f32 = 1.1;

/// A block is overdue after so many intervals.
const OVERDUE_INTERVALS: f32 = 4.0;

/// A block of which too little is known is overdue after so many touches for each slot.
const UNKNOWN_TOUCHES: u32 = 2;

/// The share of a block's last interval in what is expected of it.
const LAST_SHARE: f32 = 1.0 / 8.0;

/// Bytes that a slot takes here.
pub(super) const BYTES_PER_SLOT: usize = size_of::<UsedBlock>();

/// What is known of a slot's block.
#[derive(Clone, Copy)]
struct UsedBlock {
    used: u32,
    /// The expected interval, or NaN.
    interval: f32,
}

/// Places by how soon blocks are used again.
pub(super) struct ByWorth {
    slots: TierSlots,
    contexts: Contexts,
    used: Queues<QUEUES>,
    known: Box<[UsedBlock]>,
    /// What a page of the current request gets when it is inserted.
    entering: (usize, f32),
}

impl ByWorth {
    pub(super) fn new(slots: TierSlots) -> ByWorth {
        ByWorth {
            slots,
            contexts: Contexts::new(slots),
            used: Queues::new(slots.all()),
            known: vec![UsedBlock { used: 0, interval: f32::NAN }; slots.all() as usize].into(),
            entering: (UNKNOWN, f32::NAN),
        }
    }

    fn is_consecutive(&self) -> bool {
        matches!(self.contexts.pattern(), AccessPattern::Looping | AccessPattern::Sequential)
    }

    /// The level and interval of a page that the current context touches for the first time.
    fn newcomer(&self) -> (usize, f32) {
        match self.contexts.expected() {
            Expected::Never => (NOT_AGAIN, f32::NAN),
            Expected::Unknown if self.is_consecutive() => (UNKNOWN_CONSECUTIVE, f32::NAN),
            Expected::Unknown => (UNKNOWN, f32::NAN),
            Expected::After { interval, share } => (level(interval / share), interval / share),
        }
    }

    /// Corrects what is expected of a block that is used.
    fn renew(&mut self, slot: u32) {
        let UsedBlock { used, interval } = self.known[slot as usize];
        let last = self.contexts.now().wrapping_sub(used) as f32;
        let before = match (interval.is_nan(), self.contexts.expected()) {
            (false, _) => interval,
            (true, Expected::After { interval, .. }) => interval,
            (true, _) => last,
        };
        let interval = before + LAST_SHARE * (last - before);
        self.used.take(slot);
        self.enter(slot, level(interval), interval);
    }

    fn enter(&mut self, slot: u32, level: usize, interval: f32) {
        self.known[slot as usize] = UsedBlock { used: self.contexts.now(), interval };
        self.used.push(queue(level, self.slots.tier(slot)), slot);
    }

    /// The lowest level with a block in one of `tiers`, and the tier of that block.
    fn lowest(&self, tiers: &[Tier]) -> Option<(usize, Tier)> {
        let places = (0..LEVELS).flat_map(|level| tiers.iter().map(move |tier| (level, *tier)));
        places.into_iter().find(|(level, tier)| self.used.len(queue(*level, *tier)) > 0)
    }

    /// Has the oldest block of each level go down if it is late: to the level of its age, and to
    /// the lowest if it is overdue.
    fn retire(&mut self) {
        for level in UNKNOWN..LEVELS {
            for tier in [Tier::Dram, Tier::Nvm] {
                let oldest = self.used.oldest(queue(level, tier));
                if oldest != NONE {
                    self.retire_if_late(oldest, level);
                }
            }
        }
    }

    fn retire_if_late(&mut self, slot: u32, at: usize) {
        let UsedBlock { used, interval } = self.known[slot as usize];
        let age = self.contexts.now().wrapping_sub(used) as f32;
        let (late, overdue) = match at {
            UNKNOWN | UNKNOWN_CONSECUTIVE => {
                let patience = (UNKNOWN_TOUCHES * self.slots.all()) as f32;
                (patience, patience)
            }
            _ => (LATE_INTERVALS * longest(at), OVERDUE_INTERVALS * interval),
        };
        if age > late {
            let to = if age > overdue { NOT_AGAIN } else { level(age).min(at - 1).max(KNOWN_FIRST) };
            self.used.take(slot);
            self.used.push(queue(to, self.slots.tier(slot)), slot);
        }
    }

    /// Decides about a page that no tier has.
    fn admit(&mut self, request: &IoRequest, page: FilePage, free: FreeSlots) -> Decision {
        let (level, _) = self.entering;
        let tiers = self.tiers_for(level);
        // The next request goes on in this page.
        let goes_on = self.is_consecutive() && ends_within(request, page);
        let with_room = tiers.iter().find(|tier| free.of(**tier) > 0);
        if let Some(tier) = with_room.filter(|_| level > NOT_AGAIN || goes_on) {
            return Decision::to(*tier, Reason::FreeSlot);
        }
        self.retire();
        match self.lowest(tiers) {
            Some((lowest, tier)) if level > lowest => Decision::to(tier, Reason::SoonerUsed),
            Some((UNKNOWN, tier)) if level == UNKNOWN => Decision::to(tier, Reason::UsedLast),
            Some((_, tier)) if goes_on => {
                self.entering = (NOT_AGAIN, f32::NAN);
                Decision::to(tier, Reason::Pattern(self.contexts.pattern()))
            }
            _ => Decision::Below(Reason::LaterUsed),
        }
    }

    /// The tiers that a newcomer of `level` may enter, the better one first. A block without order
    /// is worth a copy to NVM only if it is known to come again.
    fn tiers_for(&self, level: usize) -> &'static [Tier] {
        if self.is_consecutive() {
            &[Tier::Nvm, Tier::Dram]
        } else if level <= UNKNOWN && self.slots.dram > 0 {
            &[Tier::Dram]
        } else {
            &[Tier::Dram, Tier::Nvm]
        }
    }
}

fn queue(level: usize, tier: Tier) -> usize {
    2 * level + usize::from(tier == Tier::Nvm)
}

/// The level of an interval, by the half octave that it lies in.
fn level(interval: f32) -> usize {
    const MANTISSA_BITS: u32 = 23;
    const BIAS: u32 = 127;
    let bits = interval.clamp(1.0, f32::MAX).to_bits();
    let octave = (bits >> MANTISSA_BITS) - BIAS;
    let mantissa = |bits: u32| bits & ((1 << MANTISSA_BITS) - 1);
    let half = 2 * octave + u32::from(mantissa(bits) >= mantissa(std::f32::consts::SQRT_2.to_bits()));
    let below_longest = HALF_OCTAVES.end() - half.clamp(*HALF_OCTAVES.start(), *HALF_OCTAVES.end());
    KNOWN_FIRST + below_longest as usize
}

/// The longest interval of a level.
fn longest(level: usize) -> f32 {
    let half = (LEVELS - 1 - level) as f32 + *HALF_OCTAVES.start() as f32;
    ((half + 1.0) / 2.0).exp2()
}

fn ends_within(request: &IoRequest, page: FilePage) -> bool {
    let end = request.offset + u64::from(request.bytes);
    end / super::PAGE_BYTES == page.page && !end.is_multiple_of(super::PAGE_BYTES)
}

impl Placement for ByWorth {
    fn begin(&mut self, request: &IoRequest) {
        self.contexts.learn(request);
    }

    fn place(&mut self, request: &IoRequest, page: FilePage, slot: Option<u32>, free: FreeSlots) -> Decision {
        self.entering = self.newcomer();
        let tier = slot.map(|slot| self.slots.tier(slot));
        let needs_nvm = request.kind == IoKind::SyncWrite && self.slots.nvm > 0;
        match slot {
            Some(slot) if !needs_nvm || tier == Some(Tier::Nvm) => {
                if !self.contexts.is_continued(page) {
                    self.renew(slot);
                }
                Decision::Stay(Reason::Cached)
            }
            _ if needs_nvm => Decision::ToNvm(Reason::Synchronous),
            _ => self.admit(request, page, free),
        }
    }

    fn insert(&mut self, slot: u32, _: FilePage) {
        let (level, interval) = self.entering;
        self.enter(slot, level, interval);
    }

    fn resume(&mut self, context: u64) {
        self.entering = if self.contexts.resume(context) { self.newcomer() } else { (UNKNOWN, f32::NAN) };
    }

    fn pattern(&self, context: u64) -> Option<AccessPattern> {
        self.contexts.pattern_of(context)
    }

    fn known_contexts(&self) -> Vec<LearntPattern> {
        self.contexts.known_contexts()
    }

    fn take_over(&mut self, known: &[LearntPattern]) {
        self.contexts.take_over(known);
    }

    fn remove(&mut self, slot: u32) {
        self.used.take(slot);
    }

    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction> {
        let mut may_go = |slot| condition(slot) != Condition::Pinned;
        let slot = (0..LEVELS).find_map(|level| self.used.oldest_that(queue(level, tier), &mut may_go))?;
        self.used.take(slot);
        Some(Eviction { slot, reason: Reason::LaterUsed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_intervals_have_higher_levels() {
        assert_eq!((level(1.0), level(1e9)), (LEVELS - 1, KNOWN_FIRST));
        let levels: Vec<usize> = (4..=24_u16).map(|log| level(f32::from(log).exp2())).collect();
        assert!(levels.windows(2).all(|pair| pair[0] == pair[1] + 2), "{levels:?}");
        assert!((KNOWN_FIRST..LEVELS).all(|at| level(longest(at) * 0.99) == at));
        assert!((KNOWN_FIRST + 1..LEVELS).all(|at| level(longest(at) * 1.01) == at - 1));
    }
}
