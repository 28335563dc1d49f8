//! The guest's end of vhost-user-blk: a monitor and its driver in one, for tests and measurements.
//!
//! A [`Machine`] connects to a device, shares memory with it and makes queues. A [`DriverQueue`]
//! puts requests into its ring, rings the doorbell, and takes answers out. Nothing here knows how
//! the device works.

#![forbid(unsafe_code)]

mod machine;
mod queue;

pub use machine::{Machine, MachineError, Shape};
pub use queue::{Answer, Command, DriverQueue, RingPlaces};
