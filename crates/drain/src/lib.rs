//! Threads that drain caches.
//!
//! A cache offers bounded steps; a [`Pool`] runs threads on them at the pace that [`tidegate_policy::pace`] decides, and keeps what waits
//! in the cache small enough to be flushed in time ([`tidegate_policy::undrained`]). The first thread does the work while it keeps up; it
//! wakes the next one when a whole step was not enough. When it finds that every core is busy, it lets writes go past the cache for a while
//! ([`tidegate_policy::admission`]).
//!
//! A [`Destager`] does the like for a cache in front of a disk: one thread, which moves dirty blocks to the disk while writers leave it time.

#![forbid(unsafe_code)]

mod age;
mod destager;
mod disk_cache;
mod gate;
mod held_back;
mod pool;
mod turns;

pub use destager::{Bell, Destager, Dirty, Left, Step, Ticket};
pub use held_back::HeldBack;
pub use pool::{Drained, Pool, Setup};
