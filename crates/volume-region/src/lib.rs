//! The region of a volume, as everything that serves, makes or examines one has it.
//!
//! [`region`] opens it by its file, as [`mapping`] maps that, and recognises the engine whose bytes
//! it holds; [`contents`] says the same in words, for those who are about to overwrite it, and
//! [`found`] what is at the path of one that is made. [`mirror`] opens two regions as one, and
//! [`rebuild`] makes a lost side anew. [`description`] is what users are told of a volume,
//! [`append_log`] of a log: [`guarantees`] is the one table of the failures that either survives,
//! [`damage`] the rules that a volume breaks. [`xattrs`] are notes beside a file.

#![forbid(unsafe_code)]

pub mod append_log;
pub mod contents;
pub mod damage;
pub mod description;
mod failure;
pub mod found;
pub mod guarantees;
pub mod mapping;
pub mod mirror;
pub mod rebuild;
pub mod region;
pub mod xattrs;

pub use failure::{MirrorFailure, RegionFailure, VolumeFailure};

/// The region of a volume: one mapped file, or two that are the sides of a mirror.
pub type VolumeRegion = tidegate_mirror::MaybeMirrored<tidegate_media::MappedRegion>;
