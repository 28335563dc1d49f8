//! Designs of others that Tidegate is measured against, as they were published, behind the traits
//! of its own engines.
//!
//! | module | design |
//! | --- | --- |
//! | [`staging`] | caches in front of a block translation table: PMBD, LRU, Co-Active |
//! | [`barrier`] | a flush before which no later write is served |
//! | [`classic`] | a file system's journal on a cache that keeps its metadata in blocks |
//! | [`ubj`] | a buffer cache in persistent memory that is the journal too |
//! | [`tinca`] | the transactional cache, with the protocol that was published |
//! | [`placement`] | placements of blocks in tiers of memory |
//! | [`cow`] | writing as NOVA does: a new page, then an entry in a log |
//! | [`raw`] | writing the memory itself, behind a block driver |
//! | [`dax`] | writing a file in place, as Ext4-DAX does |

#![forbid(unsafe_code)]

pub mod barrier;
pub mod classic;
pub mod cow;
pub mod dax;
mod holding;
pub mod placement;
pub mod raw;
pub mod staging;
pub mod tinca;
pub mod ubj;
