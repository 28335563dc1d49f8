//! Two regions of persistent memory as one ([`Mirror`]): each commit lies in both.
//!
//! The two regions of a set are its *sides*, numbered 0 and 1. The last bytes of each say so
//! ([`page`]). In front of them lies the same volume twice; engines see a [`Region`] of that.
//!
//! 1. Stores, streams and flushes go to every live side, side 1 first. A fence succeeds only if it
//!    did on every live side, so whatever it covers survives the loss of either.
//! 2. If a side loses a store, its twin's page says [`SideState::Alone`] with a greater generation,
//!    durably, before a fence of any thread succeeds without the lost side. From then on the lost
//!    side is *stale*, until [`rebuild`] has copied its twin. A side that is opened without its
//!    twin says so when the first client may come ([`Mirror::go_alone`]), at the latest before the
//!    first store of an open engine: an opening that ends earlier makes no side stale.
//! 3. Sides open together only if both say [`SideState::Mirrored`] with one generation and one
//!    [`OpeningId`], or a cut interrupted an opening (`open.rs`): each opening has a generation of
//!    its own, and draws a number, so that equal generations of two histories differ. After a power
//!    cut they may differ in stores that no fence of the mirror covered. Side 0 is right then, at
//!    every opening, and side 1 is made equal and durable before the engine sees a byte: a cut amid
//!    that finds side 0 unchanged. The choice is free, as side 0 alone is an image that the cut of
//!    a single region may leave. Lines are copied as wholes (`redo.rs`): of each side, some lines
//!    from either are such an image too, and mixed words of one line are not.
//! 4. Reads come from the first live side. Lines that it cannot give come from its twin, and are
//!    stored anew (`repair.rs`).
//!
//! Stores to one word by two threads are ordered by a lock of the engine: without one, the sides
//! could keep different ones.
//!
//! No threads, no clocks, no files: a region whose fences do not reach its file (an ordinary file
//! on a disk) comes with a [`SyncSide`].
//!
//! [`Region`]: tidegate_media::Region
//! [`OpeningId`]: tidegate_layout::mirror::OpeningId
//! [`SideState::Alone`]: tidegate_layout::mirror::SideState::Alone
//! [`SideState::Mirrored`]: tidegate_layout::mirror::SideState::Mirrored

#![forbid(unsafe_code)]

mod copy;
mod error;
mod maybe_mirrored;
mod mirror;
mod open;
pub mod page;
mod rebuild;
mod redo;
mod repair;
mod repairs;

pub use error::MirrorError;
pub use maybe_mirrored::{MaybeMirrored, view};
pub use mirror::{Liveness, Mirror, TellLoss};
pub use open::{Resync, open, open_alone, side_of};
pub use page::SyncSide;
pub use rebuild::{Rebuilt, create, rebuild, refuse_unfit};
