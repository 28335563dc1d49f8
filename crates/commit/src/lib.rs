//! How caches commit many words of persistent memory as one: by a ring of elements between two cursors.
//!
//! An *element* says what becomes of its *target*, which may be any few words of the region. Elements between the cursors count: recovery carries them
//! out again. Whoever commits holds the cache's lock of the ring over the whole of the following, and puts elements for different targets
//! into one commit, or repeats a target whose elements can be told by age:
//!
//! 1. [`Ring::stream`]: the elements go behind the head, where nobody reads. Data that they speak of is streamed before, by the same thread.
//! 2. [`Ring::commit`]: the targets of the oldest elements are flushed if half of the ring would be in use otherwise. **Fence.** The head goes
//!    behind the new elements, the tail behind the old ones that were just settled; their line is flushed. **Fence.** Now it is committed.
//! 3. The cache stores the new elements' targets, without a flush: they are *unretired*.
//!
//! After a fence that failed nothing is streamed any more. What is behind the head that the medium knows may be in the place of what counts there.
//!
//! Retiring costs no fence of its own, as the head's fence is one for the tail too.
//!
//! # Why it is right after a power cut
//!
//! - *Cut before the head's store*: elements behind the head are never read, whatever older commits left there.
//! - *Cut at the cursors*: each is old or new, whole. If the head is new, every element arrived before it. The tail may arrive without
//!   the head or the other way round: what lies before the new tail is durable in its targets, and carrying out once more what an older tail
//!   still lets in must be harmless. It is where a target tells that it is not behind the element; that is the cache's to see to.
//! - *Cut later*: targets are old or new, word by word, and recovery repeats the new ones. A target is flushed before its element is
//!   retired, by the thread that retires, for a fence covers no other thread's flushes.
//! - *Recovery is cut*: it stores what it would store again, and moves the tail last.
//! - *The process is killed and the power stays*: cursors may be visible that nobody flushed, and no mark of the dead process counts.
//!   So [`Loaded::begin`] makes the cursors durable before an element is carried out, and [`Loaded::finish`] follows a fence that covers all targets.

#![forbid(unsafe_code)]

pub mod name;
pub mod pair;
mod recovery;
mod ring;
pub mod strip;

pub use recovery::Loaded;
pub use ring::{Element, Retire, Ring, RingPlan};
