//! Background threads: caches offer bounded steps, and these threads run them.
//!
//! A [`DrainPool`] drains a write cache. Its threads follow the drain backoff
//! ([`tidegate_policy::writeback::backoff`]) and keep the backlog small enough to be flushed in
//! time ([`tidegate_policy::writeback::backlog`]). The first thread does the work while it keeps
//! up; it wakes the next one when a whole step was not enough. If every core is busy, it lets
//! writes bypass the cache for a while ([`tidegate_policy::admit::bypass`]).
//!
//! A [`Destager`] is one thread that moves the dirty blocks of a disk cache to the disk while
//! writers leave it time. [`Throttled`] delays writers while too many blocks are dirty. A
//! [`LogThread`] makes room in the window of an append-only log.

#![forbid(unsafe_code)]

mod cpu_gate;
mod destage_thread;
mod dirty_age;
mod disk_cache;
mod drain_pool;
mod log_thread;
mod schedstat;
mod step;
mod throttle;

pub use destage_thread::{Bell, Destager, Dirty, FirstStep, SweepFailures, Ticket};
pub use drain_pool::{DrainPool, Drained, Setup};
pub use log_thread::LogThread;
pub use step::Step;
pub use throttle::Throttled;
