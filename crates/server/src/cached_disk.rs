//! Volumes that are a cache in persistent memory in front of a disk.
//!
//! [`disk`] finds the disk of a region, [`owner`] knows the region that owns a disk,
//! [`stale_check`] notices writes of other programs to it, [`journal`] lays out the journal of an
//! ordered one, and [`volatile`] refuses memory that a power loss empties. [`cache`] is the engine
//! with its destager, [`online`] the cache while it is served and changed; [`offline`] does the
//! work when no server runs.

pub mod cache;
pub mod contents;
pub mod create;
pub mod disk;
pub mod failure;
pub mod journal;
pub mod offline;
pub mod online;
pub mod online_change;
pub mod owner;
pub mod refused;
pub mod resize;
pub mod stale_check;
pub mod state;
pub mod volatile;
