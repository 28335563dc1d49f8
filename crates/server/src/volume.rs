//! Volumes: how they are made and opened.
//!
//! [`compose`] alone chooses which types make up a volume.

pub mod compose;
pub mod create;
pub mod default_volume;
pub mod failure;
pub mod orphans;
pub mod read_only;
pub mod report_seal;
pub mod write_cache;
