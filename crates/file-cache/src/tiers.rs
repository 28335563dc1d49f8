//! Tiers: unsynced bytes in DRAM, blocks in persistent memory, and the way to the files below.

pub(crate) mod admit;
pub(crate) mod clean;
pub(crate) mod dirty;
pub(crate) mod dram;
pub(crate) mod lent_chunks;
pub(crate) mod mapped;
pub(crate) mod mapped_times;
pub(crate) mod nvm;
pub(crate) mod placement;
pub(crate) mod tier_map;
pub(crate) mod write_back;
