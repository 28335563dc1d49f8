//! Lanes: the state of a lane in DRAM, its files, entries and records.

pub(crate) mod entries;
pub(crate) mod file;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod leases;
pub(crate) mod modified;
pub(crate) mod records;
pub(crate) mod segments;
pub(crate) mod slots;
