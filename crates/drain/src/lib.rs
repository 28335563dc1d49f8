//! Threads that drain caches.
//!
//! A cache offers bounded steps; a [`Pool`] runs threads on them at the pace that [`tidegate_policy::pace`] decides, and keeps what waits
//! in the cache small enough to be flushed in time ([`tidegate_policy::undrained`]). The first thread does the work while it keeps up; it
//! wakes the next one when a whole step was not enough. When it finds that every core is busy, it lets writes go past the cache for a while
//! ([`tidegate_policy::admission`]).

#![forbid(unsafe_code)]

mod gate;
mod pool;
mod turns;

pub use pool::{Drained, Pool, Setup};
