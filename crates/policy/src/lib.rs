//! Decisions without side effects: they read no clock, hold no lock and do no I/O. Mechanisms ask and act.

#![forbid(unsafe_code)]

pub mod pace;
pub mod undrained;
