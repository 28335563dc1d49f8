//! A lease, as the lane knows it: see `leases.rs`.

use crate::lanes::file::FileId;
use std::collections::VecDeque;
use tidegate_layout::file_cache::{Class, LeasePlan, TrustedLease};

/// Blocks that a lease has to begin with, if its log has room for so many.
const WINDOW_MIN: u64 = 256;

/// As many, at most, if several processes have it: in the other places of its log they find what
/// they have not seen yet.
const COMMON_WINDOW_MAX: u64 = 1022;
/// As many, at most, if one has it: a revocation takes them all over.
const ALONE_WINDOW_MAX: u64 = 2044;

/// A lease of a lane, by its number, which is its own until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub(crate) u32);

/// A lease that was not released yet.
pub(crate) struct Lease {
    /// Its log.
    pub(crate) plan: LeasePlan,
    pub(crate) unit: u32,
    pub(crate) class: Class,
    pub(crate) file: FileId,
    /// What its process calls it; 0: it was revoked before the lane was opened.
    pub(crate) number: u64,
    /// Where in the file it may write.
    pub(crate) room: [u64; 2],
    /// Whether several processes have it: each is to find what the others wrote in the log.
    pub(crate) is_common: bool,
    /// How many elements were taken over.
    pub(crate) adopted: u64,
    /// How many elements behind those may have a block.
    pub(crate) window: u64,
    /// How many elements had been given a block when room was last searched for.
    pub(crate) searched: u64,
    /// From where in the file on clean entries of its chunks are given up next.
    pub(crate) given_up_to: u64,
    /// The entries that lend its chunks.
    pub(crate) chunks: Vec<u32>,
    /// The blocks of the elements behind those that were taken over.
    pub(crate) lent: VecDeque<LentBlock>,
    /// How often bytes of the file had left their blocks when the lease began.
    pub(crate) dropped_before: u64,
}

/// A block that is lent for an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LentBlock {
    /// Where it begins.
    pub(crate) unit: u32,
    /// The entry that is to name it.
    pub(crate) entry: u32,
}

impl Lease {
    /// A lease with this log, of which nothing was lent yet.
    pub(crate) fn new(plan: LeasePlan, named: &TrustedLease, number: u64) -> Lease {
        let TrustedLease { file, unit, class, .. } = *named;
        let (file, chunks, lent) = (FileId(file), Vec::new(), VecDeque::new());
        let window = WINDOW_MIN.min(u64::from(plan.elements));
        Lease {
            plan,
            unit,
            class,
            file,
            number,
            room: [0; 2],
            is_common: false,
            adopted: 0,
            window,
            searched: 0,
            given_up_to: 0,
            chunks,
            lent,
            dropped_before: 0,
        }
    }

    /// How many elements behind those that were taken over may have a block.
    pub(crate) fn window(&self) -> u64 {
        let elements = u64::from(self.plan.elements);
        let is_limited = self.is_common || elements > ALONE_WINDOW_MAX;
        self.window.min(if is_limited { COMMON_WINDOW_MAX } else { elements })
    }

    /// How many elements were given a block.
    pub(crate) fn given(&self) -> u64 {
        self.adopted + self.lent.len() as u64
    }
}
