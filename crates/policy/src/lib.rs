//! Decisions without side effects: eviction, admission, placement, write-back, polling. They read
//! no clock, hold no lock and do no I/O. The engines ask for a decision and act on it.
//!
//! Therefore a test can call a decision by itself, an engine can exchange it for another one, and
//! the simulator can run it in simulated time.

#![forbid(unsafe_code)]

pub mod admit;
pub mod evict;
pub mod placement;
pub mod polling;
pub mod writeback;
