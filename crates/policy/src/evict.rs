//! Which slot of a full cache is given up.
//!
//! A cache has slots `0..n`. It tells a policy what it puts into them and what is asked for again, and asks it for a victim when
//! all are taken. Slots that may not go at that moment (dirty ones, those of a commit under way) are passed over and keep their
//! place. All policies take bounded memory, [`Replacement::bytes_per_slot`], and none allocates after it was made.
//!
//! - [`Lru`]: the one not asked for the longest. One scan of more blocks than the cache holds empties it of everything useful.
//! - [`Clock`]: slots in a circle; one that was asked for since the hand passed gets another round. A byte for each slot.
//! - [`Sieve`]: in the order of arrival; asked for ones stay where they are, the hand passes over them once.
//! - [`TwoQueues`]: blocks asked for again after they had gone enter a queue of their own; a scan stays in the other one.
//! - [`S3Fifo`]: newcomers pass through a small queue, and only those asked for there go on to the main one.

mod clock;
mod ghosts;
mod lru;
mod queues;
mod s3_fifo;
mod sieve;
mod two_queues;

pub use clock::Clock;
pub(crate) use ghosts::Ghosts;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
use std::fmt;
use std::str::FromStr;
pub use two_queues::TwoQueues;

/// Chooses victims among slots.
pub trait Evict: Send {
    /// How many slots there are: they are numbered from 0.
    fn slots(&self) -> u32;

    /// `slot`, not known until now, holds block `key` from now on.
    fn insert(&mut self, slot: u32, key: u64);

    /// What `slot` holds was asked for again. A slot that is not known is none of the policy's business.
    fn touch(&mut self, slot: u32);

    /// `slot` holds nothing any more, for another reason than being a victim. A slot that is not known stays so.
    fn remove(&mut self, slot: u32);

    /// Chooses a slot to which `may_go` says yes, and forgets it. `may_go` is asked at most eight times about a slot. None if
    /// no slot may go. Costs little unless many slots may not go; then it looks at each of them.
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32>;
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// [`Lru`].
    #[default]
    Lru,
    /// [`Clock`].
    Clock,
    /// [`Sieve`].
    Sieve,
    /// [`TwoQueues`].
    TwoQueues,
    /// [`S3Fifo`].
    S3Fifo,
}

impl Replacement {
    /// Every policy.
    pub const ALL: [Replacement; 5] =
        [Replacement::Lru, Replacement::Clock, Replacement::Sieve, Replacement::TwoQueues, Replacement::S3Fifo];

    /// The policy over `slots` slots, none of them known to it.
    pub fn over(self, slots: u32) -> Box<dyn Evict> {
        match self {
            Replacement::Lru => Box::new(Lru::new(slots)),
            Replacement::Clock => Box::new(Clock::new(slots)),
            Replacement::Sieve => Box::new(Sieve::new(slots)),
            Replacement::TwoQueues => Box::new(TwoQueues::new(slots)),
            Replacement::S3Fifo => Box::new(S3Fifo::new(slots)),
        }
    }

    /// Bytes of memory that a slot costs at most, in a cache of more than a few thousand slots.
    pub const fn bytes_per_slot(self) -> usize {
        match self {
            Replacement::Lru | Replacement::Sieve => queues::LINK_BYTES,
            Replacement::Clock => 1,
            // Half as many ghosts as slots.
            Replacement::TwoQueues => queues::LINK_BYTES + size_of::<u64>() + ghosts::GHOST_BYTES_MAX / 2,
            Replacement::S3Fifo => queues::LINK_BYTES + size_of::<u64>() + ghosts::GHOST_BYTES_MAX,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Replacement::Lru => "lru",
            Replacement::Clock => "clock",
            Replacement::Sieve => "sieve",
            Replacement::TwoQueues => "2q",
            Replacement::S3Fifo => "s3-fifo",
        }
    }
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReplacement;

impl FromStr for Replacement {
    type Err = UnknownReplacement;

    fn from_str(name: &str) -> Result<Replacement, UnknownReplacement> {
        Replacement::ALL.into_iter().find(|known| known.name() == name).ok_or(UnknownReplacement)
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod traces;
