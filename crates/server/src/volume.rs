//! Volumes: how they are made and opened, and which failures each survives.
//!
//! [`compose`] alone chooses which types make up a volume; [`guarantees`] is the one table of the
//! failures that it survives. [`region`] maps the file of a volume and recognises its contents.

pub mod compose;
pub mod contents;
pub mod create;
pub mod damage;
pub mod default_volume;
pub mod description;
pub mod failure;
pub mod guarantees;
pub mod mirror;
pub mod orphans;
pub mod read_only;
pub mod region;
pub mod report_seal;
pub mod write_cache;
pub mod xattrs;
