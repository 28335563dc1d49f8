//! Decisions without side effects: they read no clock, hold no lock and do no I/O. Mechanisms ask
//! and act.
//!
//! So a decision can be tested by itself, exchanged for another, and run under the simulator's time
//! as under the machine's.

#![forbid(unsafe_code)]

pub mod admit;
pub mod evict;
pub mod placement;
pub mod polling;
pub mod writeback;
