//! A disk under a driver and a monitor: requests, connections, and guests that mean harm.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

mod connections;
mod hostile;
mod requests;
mod scribble;
mod served;
