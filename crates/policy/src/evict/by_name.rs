//! The one table of the eviction policies: their names, constructors, and costs of a slot.

use super::{Clock, Evict, Lru, S3Fifo, Sieve, TwoQueues, ghosts, queues};
use std::fmt;
use std::str::FromStr;

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
