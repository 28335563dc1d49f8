//! Reasons why two regions are not opened as a mirror. Regions are named by their place among the
//! arguments, 0 or 1, not by their side.

use tidegate_media::{Poison, Sealed};

/// Why a mirror cannot be opened, made or rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// A region without the page of a side.
    #[error("region {region} is not a side of a mirror")]
    NotASide {
        /// Which of the arguments.
        region: usize,
    },
    /// A region with the page of a side that cannot be read or breaks its format.
    #[error("the mirror's page of region {region} is damaged")]
    DamagedPage {
        /// Which of the arguments.
        region: usize,
    },
    /// Regions of different sets, or one that was left when its twin was rebuilt elsewhere.
    #[error("the regions belong to different mirrors")]
    OtherSet,
    /// Two regions that are one side: one is a copy of the other's file.
    #[error("both regions are side {side} of the mirror")]
    SameSide {
        /// That side's number.
        side: u32,
    },
    /// Regions of different lengths.
    #[error("the regions have {} and {} bytes", .lengths[0], .lengths[1])]
    Lengths {
        /// Bytes of each.
        lengths: [u64; 2],
    },
    /// A region too short for a page and anything before it.
    #[error("a region of {bytes} bytes has no room for a mirror's page")]
    TooShort {
        /// Its bytes.
        bytes: u64,
    },
    /// A region lacks writes that its twin has.
    #[error("region {region} is stale: the other one went on alone")]
    Stale {
        /// Which of the arguments.
        region: usize,
    },
    /// Each region has writes that the other one lacks: both went on alone, or each was opened with
    /// another side than the other one.
    #[error("both regions went on without each other")]
    Diverged,
    /// A region is an incomplete copy of its twin.
    #[error("region {region} is an incomplete copy of the other one")]
    Incomplete {
        /// Which of the arguments.
        region: usize,
    },
    /// A source that cannot be copied.
    #[error(transparent)]
    Unreadable(#[from] Poison),
    /// A region that lost a store meanwhile.
    #[error("region {region}: {sealed}")]
    Sealed {
        /// Which of the arguments.
        region: usize,
        /// What it lost.
        sealed: Sealed,
    },
}
