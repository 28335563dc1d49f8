//! Rivals of Tidegate's placements, behind the same trait. They are dull: maps and lists without
//! bounds of their own, and they are never shipped.
//!
//! | rival | rule |
//! | --- | --- |
//! | no NVM | DRAM as large as both tiers, least recently used |
//! | all to NVM | NVM as large as both tiers, least recently used |
//! | random | a tier by chance when a block enters, least recently used in each |
//! | CFLRU | one list over both tiers; among its oldest quarter a clean block goes first |
//! | I/O-Cache | clean and dirty blocks in a list each, whose shares adapt; dirty ones go in runs |
//!
//! CFLRU and I/O-Cache know one memory, so a block may lie in either tier, and a synchronous write
//! moves it to NVM.

mod cflru;
mod io_cache;
mod recency;
mod single;

use std::fmt;
use tidegate_policy::placement::{Decision, FreeSlots, Placement, Reason, Tier, TierSlots};

/// The rivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// DRAM alone.
    NoNvm,
    /// NVM alone.
    AllNvm,
    /// A tier by chance.
    Random,
    /// Clean-first LRU (Park and others, CASES 2006).
    Cflru,
    /// I/O-Cache (Fan and others, MASCOTS 2015).
    IoCache,
}

impl Rival {
    /// Every rival.
    pub const ALL: [Rival; 5] = [Rival::NoNvm, Rival::AllNvm, Rival::Random, Rival::Cflru, Rival::IoCache];

    /// Returns the tiers of the rival where Tidegate's placements have `slots`: as many slots in
    /// all.
    pub fn tiers(self, slots: TierSlots) -> TierSlots {
        match self {
            Rival::NoNvm => TierSlots { dram: slots.all(), nvm: 0 },
            Rival::AllNvm => TierSlots { dram: 0, nvm: slots.all() },
            Rival::Random | Rival::Cflru | Rival::IoCache => slots,
        }
    }

    /// Makes the rival over [`Rival::tiers`] of `slots`.
    pub fn over(self, slots: TierSlots) -> Box<dyn Placement> {
        let slots = self.tiers(slots);
        match self {
            Rival::NoNvm | Rival::AllNvm | Rival::Random => Box::new(single::ByChance::new(slots)),
            Rival::Cflru => Box::new(cflru::Cflru::new(slots)),
            Rival::IoCache => Box::new(io_cache::IoCache::new(slots)),
        }
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Rival::NoNvm => "no NVM",
            Rival::AllNvm => "all to NVM",
            Rival::Random => "random placement",
            Rival::Cflru => "CFLRU",
            Rival::IoCache => "I/O-Cache",
        }
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A tier with a free slot, or else that of the victim.
fn tier_with_room(slots: TierSlots, free: FreeSlots, victim: impl FnOnce() -> Option<u32>) -> Decision {
    match [Tier::Dram, Tier::Nvm].into_iter().find(|tier| free.of(*tier) > 0) {
        Some(tier) => Decision::to(tier, Reason::FreeSlot),
        None => victim().map_or(Decision::Below(Reason::Rule), |slot| Decision::to(slots.tier(slot), Reason::Rule)),
    }
}

#[cfg(test)]
mod tests;
