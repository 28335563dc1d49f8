//! Which slot of a full cache is given up.
//!
//! A cache has slots `0..n`. It tells a policy what it puts into them and what is asked for again,
//! and asks it for a victim when all are taken. Slots that may not go at that moment (dirty ones,
//! those of a commit under way) are passed over and keep their place. All policies take bounded
//! memory, [`Replacement::bytes_per_slot`], and none allocates after it was made.
//!
//! - [`Lru`]: the one not asked for the longest. One scan of more blocks than the cache holds
//!   empties it of everything useful.
//! - [`Clock`]: slots in a circle; one that was asked for since the hand passed gets another round.
//!   A byte for each slot.
//! - [`Sieve`]: in the order of arrival; asked for ones stay where they are, the hand passes over
//!   them once.
//! - [`TwoQueues`]: blocks asked for again after they had gone enter a queue of their own; a scan
//!   stays in the other one.
//! - [`S3Fifo`]: newcomers pass through a small queue, and only those asked for there go on to the
//!   main one.

mod by_name;
mod clock;
mod ghosts;
mod lru;
pub(crate) mod queues;
mod s3_fifo;
mod sieve;
mod two_queues;

pub use by_name::{Replacement, UnknownReplacement};
pub use clock::Clock;
pub(crate) use ghosts::{Ghosts, mixed};
pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use two_queues::TwoQueues;

/// Chooses victims among slots.
pub trait Evict: Send {
    /// How many slots there are: they are numbered from 0.
    fn slots(&self) -> u32;

    /// `slot`, not known until now, holds block `key` from now on.
    fn insert(&mut self, slot: u32, key: u64);

    /// What `slot` holds was asked for again. A slot that is not known is none of the policy's
    /// business.
    fn touch(&mut self, slot: u32);

    /// `slot` holds nothing any more, for another reason than being a victim. A slot that is not
    /// known stays so.
    fn remove(&mut self, slot: u32);

    /// Chooses a slot to which `may_go` says yes, and forgets it. `may_go` is asked at most eight
    /// times about a slot. None if no slot may go. Costs little unless many slots may not go; then
    /// it looks at each of them.
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32>;
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod traces;
