//! Shared parts of all benchmarks: pairs of samples taken in turn, the memory that subjects lie
//! in, the subjects with their floors, walks over their blocks, the programs built for them, mounts
//! and disks, Redis, and a cluster.
//!
//! It is a crate because the baselines, the reproduction of the papers and the topics of `bench`
//! share it and do not meet.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod cost;
pub mod disk_caches;
pub mod machine;
pub mod medium;
mod pairs;
pub mod programs;
pub mod redis;
pub mod replay;
pub mod sqlite;
pub mod subject;
pub mod testbed;
pub mod waiting;
pub mod workload;

pub use pairs::{Estimate, PAIRS_MAX, PAIRS_MIN, Pairs};
