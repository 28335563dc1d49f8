//! The one table of the placements: their names, constructors, and costs of a slot.

use super::cheetah::{Cheetah, ShareOf};
use super::uhnvm::{Uhnvm, Undeserving};
use super::worth::{self, ByWorth};
use super::{FileExtent, Placement, TierSlots, contexts, extents, lru::LruPlacement, touches};
use crate::evict::queues;
use std::fmt;
use std::str::FromStr;

/// The placements by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamedPlacement {
    /// By how soon a block is used again.
    #[default]
    Tidegate,
    /// By synchronicity and temperature, with the threshold as published.
    Cheetah,
    /// By synchronicity and temperature, with the threshold as a share of the mean.
    CheetahNormalised,
    /// By program context; synchronous writes enter NVM.
    Uhnvm,
    /// By program context, as published.
    UhnvmPublished,
    /// By recency.
    Lru,
}

impl NamedPlacement {
    /// Every placement.
    pub const ALL: [NamedPlacement; 6] = [
        NamedPlacement::Tidegate,
        NamedPlacement::Cheetah,
        NamedPlacement::CheetahNormalised,
        NamedPlacement::Uhnvm,
        NamedPlacement::UhnvmPublished,
        NamedPlacement::Lru,
    ];

    /// Those that differ where NVM is the only tier, and each synchronous write enters it.
    pub const OF_ONE_TIER: [NamedPlacement; 5] = [
        NamedPlacement::Tidegate,
        NamedPlacement::Cheetah,
        NamedPlacement::CheetahNormalised,
        NamedPlacement::Uhnvm,
        NamedPlacement::Lru,
    ];

    /// Makes the placement for tiers of these sizes, none of their slots known to it.
    pub fn over(self, slots: TierSlots) -> Box<dyn Placement> {
        match self {
            NamedPlacement::Tidegate => Box::new(ByWorth::new(slots)),
            NamedPlacement::Cheetah => Box::new(Cheetah::new(slots, ShareOf::Sum)),
            NamedPlacement::CheetahNormalised => Box::new(Cheetah::new(slots, ShareOf::Mean)),
            NamedPlacement::Uhnvm => Box::new(Uhnvm::new(slots, Undeserving::Enter)),
            NamedPlacement::UhnvmPublished => Box::new(Uhnvm::new(slots, Undeserving::StayOut)),
            NamedPlacement::Lru => Box::new(LruPlacement::new(slots)),
        }
    }

    /// Returns the bytes of memory that a slot costs at most, in tiers of more than a few hundred
    /// slots; contexts come on top where there are any.
    pub const fn bytes_per_slot(self) -> usize {
        let own = match self {
            NamedPlacement::Tidegate => worth::BYTES_PER_SLOT + touches::BYTES_PER_SLOT,
            // Each block may be an extent's only one.
            NamedPlacement::Cheetah | NamedPlacement::CheetahNormalised => {
                size_of::<FileExtent>() + extents::EXTENT_BYTES_MAX
            }
            NamedPlacement::Uhnvm | NamedPlacement::UhnvmPublished => touches::BYTES_PER_SLOT,
            NamedPlacement::Lru => 0,
        };
        queues::LINK_BYTES + own
    }

    /// Returns the bytes of memory that program contexts cost, however many there are.
    pub const fn bytes_of_contexts(self) -> usize {
        match self {
            NamedPlacement::Tidegate | NamedPlacement::Uhnvm | NamedPlacement::UhnvmPublished => {
                contexts::CONTEXT_BYTES_MAX
            }
            NamedPlacement::Cheetah | NamedPlacement::CheetahNormalised | NamedPlacement::Lru => 0,
        }
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            NamedPlacement::Tidegate => "tidegate",
            NamedPlacement::Cheetah => "cheetah",
            NamedPlacement::CheetahNormalised => "cheetah-normalised",
            NamedPlacement::Uhnvm => "uhnvm",
            NamedPlacement::UhnvmPublished => "uhnvm-published",
            NamedPlacement::Lru => "lru",
        }
    }
}

impl fmt::Display for NamedPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No placement has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPlacement;

impl fmt::Display for UnknownPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no policy has this name: there are {}",
            NamedPlacement::OF_ONE_TIER.map(NamedPlacement::name).join(", ")
        )
    }
}

impl std::error::Error for UnknownPlacement {}

impl FromStr for NamedPlacement {
    type Err = UnknownPlacement;

    fn from_str(name: &str) -> Result<NamedPlacement, UnknownPlacement> {
        NamedPlacement::ALL.into_iter().find(|known| known.name() == name).ok_or(UnknownPlacement)
    }
}
