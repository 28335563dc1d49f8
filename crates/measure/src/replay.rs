//! Replays of traces: what a placement does with the requests of a program, at any sizes of tiers.
//!
//! Counts are exact. Times follow from them by a model of the memories, in virtual time.

pub mod costs;
pub mod tiers;
