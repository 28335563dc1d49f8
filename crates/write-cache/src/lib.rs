//! The write cache: a block device behind DRAM that passes blocks on instead of holding them.
//!
//! A write is complete when its block lies in a *slot*. Slots are drained to the device below at
//! once, by callers of [`WriteCache::drain_step`]; a program runs threads on it. When no slot is
//! free, a write goes straight to the device (*conditional bypass*), so neither a full cache nor a
//! flush makes writers wait for each other. Writes bypass the cache for a while also when a drain
//! thread finds no idle core ([`WriteCache::turn_away`]). Reads never fill it.
//!
//! # How a block passes through
//!
//! A slot is *Free* (in the global free set), *Pending* (taken by a writer, being filled), *Valid*
//! (in the write-back queue of its block's set) or *Evicting* (at the head of that queue, being
//! written to the device), and then free again.
//!
//! - Sets are chosen by a hash of the block's number. Each has a queue in the order of arrival,
//!   under one lock held for a few instructions, never while bytes are copied or a device works.
//!   There is no table from blocks to slots.
//! - A set evicts one slot at a time, from the head, under its `draining` lock. So two versions of
//!   a block reach the device in their order.
//! - A write takes a free slot, fills it, and only then links it. No thread meets a slot that is
//!   being filled, so none waits for one. A write that hits fills another slot too and puts it in
//!   the old one's place: bytes that were acknowledged are never overwritten before newer ones are
//!   whole. (Overwriting in place, as published, loses both to a kill in the middle.) If the old
//!   one is being evicted, the new one queues behind it.
//! - A write for which no slot is free and whose set is just being evicted from, or holds an older
//!   version of the block, borrows one of the slots that [`WriteCache::limit_slots`] keeps out of
//!   use. So it neither waits for that eviction nor overtakes it.
//! - A read takes the slot's number and version under the set's lock, copies without it, and counts
//!   the copy only if the slot still has that version.
//! - A request that must not be cached (a write with FUA, discard, zeroes, a bypass) first evicts
//!   the block's slots and then goes to the device, holding `draining` all the while. A write that
//!   is cached meanwhile is concurrent, and wins. (Were its slot evicted beside, the device might
//!   replace it: it would be read out of its slot once more, and then be gone.)
//!
//! # What a flush covers
//!
//! Positions in a set's queue only grow, and a slot put in another's place inherits its position. A
//! flush evicts each queue up to the last position it found there, waits for evictions that are
//! under way (they are still in their queues), and flushes the device. Bypassing writes that
//! completed before are in the device already. Later writes have later positions and do not prolong
//! it.
//!
//! # What survives
//!
//! The slots lie in a region that outlives the process, shared memory for example. Each slot's
//! header is two words: the block's number, and a version that is stored last and cleared first.
//! After a kill, [`complete`] writes the blocks that it finds to the device. A block may then have
//! two whole slots, and the greater version is the newer. So a version is cleared under the queue's
//! lock: later, and a newer one might have come and gone, or been written past the cache, and the
//! old one would come back. Power loss takes the slots, so only flushed writes survive it; the
//! geometry says so.
//!
//! Filling ends with a fence before the version is stored: streamed bytes may otherwise become
//! visible after it. No checker of schedules sees that race, as none models streamed stores; the
//! fence is the argument.
//!
//! # When the device fails
//!
//! The first failed eviction is remembered. Its slot stays queued, still answers reads, and is
//! completed at the next start. From then on every write and every flush is refused with that
//! error, and no slot is evicted any more. So it is when a flush of the device fails: it may have
//! covered anything evicted before, and no later flush tells of it again. A write with FUA before a
//! device with a volatile cache ends with such a flush too, and shares it with others who wait for
//! one.

#![forbid(unsafe_code)]

mod cache;
mod complete;
mod counters;
mod device;
mod drain;
mod free_set;
mod options;
mod read;
mod set;
mod slots;
mod tally;
mod write;

pub use cache::{Doorbell, WriteCache};
pub use complete::{CompleteError, complete};
pub use counters::Counters;
pub use drain::DrainStep;
pub use options::{CreateError, Fill, Options, bytes_for};
