//! Decisions without side effects: they read no clock, hold no lock and do no I/O. Mechanisms ask and act.
//!
//! So a decision can be tested by itself, exchanged for another, and run under the simulator's time as under the
//! machine's.

#![forbid(unsafe_code)]

pub mod admission;
pub mod admit;
pub mod attention;
pub mod destage;
pub mod evict;
pub mod gathering;
pub mod pace;
pub mod undrained;
