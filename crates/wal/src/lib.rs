//! The write-ahead logs of the caches: one commits many words of persistent memory as one, the
//! other keeps records of operations on names ([`NameRing`]; the crate `namespace-log` has its
//! protocol).
//!
//! The caches commit through a **redo ring** ([`RedoRing`]): elements between two cursors.
//!
//! An *element* gives the new contents of its *target*, which may be any few words of the region.
//! Elements between the cursors count: recovery carries them out again. The committing thread holds
//! the cache's lock of the ring over all the following steps. It puts elements for different
//! targets into one commit, or repeats a target whose elements can be told by age:
//!
//! 1. [`RedoRing::stream`]: the elements go behind the head, where recovery does not read. The same
//!    thread has streamed the data that they speak of.
//! 2. [`RedoRing::commit`]: the targets of the oldest elements are flushed if half of the ring
//!    would be in use otherwise. **Fence.** The head goes behind the new elements, the tail behind
//!    the old ones whose targets were just flushed; the cursors' line is flushed. **Fence.** Now it
//!    is committed.
//! 3. The cache stores the new elements' targets, without a flush: they are *unretired*.
//!
//! After a failed fence no element is streamed any more. Elements behind the head that the medium
//! has may lie in the place of elements that still count there.
//!
//! Retiring costs no fence of its own, as the head's fence is one for the tail too.
//!
//! # Why it is right after a power cut
//!
//! - *Cut before the head's store*: elements behind the head, left there by older commits, are
//!   never read.
//! - *Cut at the cursors*: each is old or new, whole. If the head is new, every element arrived
//!   before it. The tail may arrive without the head or the other way round: targets before the new
//!   tail are durable, and an older tail lets in elements that are carried out once more, which
//!   must be harmless. It is where a target tells that it is not behind the element; the cache sees
//!   to that.
//! - *Cut later*: targets are old or new, word by word, and recovery repeats the new ones. The
//!   thread that retires an element flushes its target first, for a fence covers no other thread's
//!   flushes.
//! - *Recovery is cut*: it would store the same again, and moves the tail last.
//! - *The process is killed and the power stays*: cursors may be visible that were never flushed,
//!   and no mark of the dead process counts. So [`Loaded::begin`] makes the cursors durable before
//!   an element is carried out, and [`Loaded::finish`] follows a fence that covers all targets.

#![forbid(unsafe_code)]

mod name_ring;
mod recovery;
mod redo_ring;

pub use name_ring::NameRing;
pub use recovery::{Loaded, corrupt};
pub use redo_ring::{Element, RedoRing, Retire, RingPlan};
