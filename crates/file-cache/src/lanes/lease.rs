//! A lease, as the lane knows it: see `leases.rs`.

use crate::lanes::file::FileId;
use std::collections::BTreeMap;
use tidegate_layout::file_cache::{Class, LeasePlan};

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
    /// How many elements were given a block.
    pub(crate) given: u64,
    /// How many elements were taken over.
    pub(crate) adopted: u64,
    /// Blocks that are lent and were not taken over, each with the entry that is to name it.
    pub(crate) lent: BTreeMap<u32, u32>,
}
