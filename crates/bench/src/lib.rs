//! Figures about storage that hold on a small and noisy machine.
//!
//! An absolute time moves by a third from run to run, so a figure here is either a ratio of two
//! *subjects* run in turn in one process, A B B A, over and over ([`tidegate_measure`]); or an
//! exact count, such as fences per write; or, where no other subject can stand beside it, a
//! quantity sampled several times, with a target far enough away. A topic is a table of rows
//! ([`target`]): what is measured, over which floor or rival, and the target it has to meet. The
//! program `bench` runs the rows and prints them ([`report`]).
//!
//! A floor is the medium's own cost of the same bytes: a streamed copy and a fence beside a write,
//! a plain copy out beside a read. Rivals that need libraries of their own live in the crate
//! `rivals`, run as a child.

#![forbid(unsafe_code)]

pub mod append_log;
pub mod blocks;
pub mod calibrate;
pub mod databases;
pub mod disk_cache;
pub mod files;
pub mod fronts;
pub mod mappings;
pub mod mount;
pub mod placement;
pub mod replay;
pub mod report;
pub mod reproduction;
pub mod rivalry;
pub mod rivals;
pub mod served;
pub mod simulator;
pub mod target;
pub mod verdicts;
pub mod write_cache;
