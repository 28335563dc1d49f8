//! A transactional cache: persistent memory in front of a disk. A write is durable when it is in
//! the memory; any set of blocks is put in place as one; no block's data is written to the memory
//! twice; the disk catches up in bounded steps.
//!
//! The memory has *blocks*, one *entry* for each, and a *ring* of *elements* between two cursors,
//! head and tail. An entry is two words: which block of the disk it is about, then {block, counter,
//! clean}. The second word alone makes the entry count: without a block it is free. The counter
//! goes up by one whenever the block changes.
//!
//! # How one block is committed
//!
//! 1. Take a free block. Stream the data into it. **Fence.**
//! 2. Lock the stripe of the disk's block. If it is not cached, take a free entry and store its
//!    first word. Store the second word {new block, counter + 1, dirty}, and flush the line; where
//!    the first word is known to be durable, stream the second one alone. **Fence.** Now it is
//!    committed; readers may see it, and the block named before is free.
//!
//! # How several are
//!
//! 1. Take free blocks. Stream the data into them.
//! 2. Lock the stripes, in ascending order, then the ring. Stream for each block an element {entry,
//!    new block, disk's block, counter + 1} behind the head. If half of the ring is in use, flush
//!    the entries that the oldest elements name. **Fence.**
//! 3. Store the head behind the new elements, and the tail behind the old ones that were just
//!    settled; flush their line. **Fence.** Now it is committed.
//! 4. Store the entries, both words, without a flush. Unlock. The blocks named before are free.
//!
//! A thread that finds the ring taken fences its data, and the next owner of the ring commits
//! several transactions by one pass of steps 2 to 4: see `commit/group.rs`.
//!
//! Two fences, however many blocks; 64 lines of data for a block of 4 KiB, a quarter of a line of
//! elements, one line of cursors for all, and later, at most, one line of its entry.
//!
//! # Why it is right after a power cut
//!
//! Recovery makes the cursors durable and looks at the elements from tail to head: if an element's
//! counter is ahead of its entry's, the entry takes the element's state. Then it flushes all
//! entries, fences, and only then moves the tail to the head. So an entry's state after a cut is
//! the newest of its own durable state and those of the elements that count.
//!
//! - *Cut in step 1 or 2 of either*: no durable word names the new blocks. The first word of a free
//!   entry may be torn off from its second one: it has no meaning while the second says free.
//!   Elements behind the head, left there by older transactions, are never read.
//! - *Cut in the second step of a single block*: the second word is old or new, whole. The new one
//!   needs the first word: both lie in one line, in which word stores arrive in order; where they
//!   might not (`LineOrder::Any`), a fence stands between. A streamed word has no order with
//!   earlier stores to the line, so it needs the first word durable: by an earlier commit of one
//!   block, or since the opening. After a commit of several it is not, and their elements, which
//!   would bring it back, are behind the counter. The data became durable before.
//! - *Cut in step 3*: the head is old or new, whole. If it is new, every element arrived before it,
//!   and so did all data. The tail may arrive without the head or the other way round: elements
//!   before the new tail are durable in their entries, and elements that an older tail still lets
//!   in have counters that are not ahead.
//! - *Cut in step 4 or later*: entries are old or new, each by itself, and recovery repeats the new
//!   ones. That they are not flushed is harmless until their element is retired, and that flushes
//!   them first: by the retiring thread itself, for a fence covers no other's flushes.
//! - *A single block is committed over an unretired element.* Its counter is ahead of the
//!   element's, so recovery leaves it alone. Compared counters are never 2^15 apart: a commit that
//!   brings a counter to a multiple of 2^12 retires everything older.
//! - *A block is used again* only when every state that names it is superseded by a newer one that
//!   is durable, or whose element counts.
//! - *A clean block is given up*: its entry is freed, flushed and fenced by the same thread with
//!   the stripe locked, before block, entry or disk's block are used again. Otherwise the block
//!   could be overwritten under a living entry, or the disk's block be cached twice. Elements that
//!   still name the entry are behind its counter.
//! - *A block is read in*: data streamed, **fence**, then both words. They need not be durable: the
//!   entry was free and is free or clean after a cut, and any commit over it has a counter ahead of
//!   both. So no word is flushed for a read.
//! - *A block is read in, to be forgotten*, as [`Reads::Forgotten`] asks: data is stored in a free
//!   block and not flushed, and the entry held for it stays free, durably; only the table knows.
//!   After a cut or a kill entry and block are free. Given up, they are free at once: there is no
//!   state to supersede. A commit over it is one of a block that is not cached, and the entry may
//!   hold any words: the first word is stored, and none is durable yet; it leaves the table first,
//!   so if that commit fails, entry and block stay out of use, as those of every failed commit. Its
//!   data may be pending for as long as it likes: the block is streamed to before an entry names it
//!   again, and no older store to a word comes after a later one that is durable (rule 5 of the
//!   media model), on any cores.
//! - *A block turns clean* after the disk confirmed a flush. If that store is lost, the block is
//!   written to the disk once more.
//! - *Recovery is cut*: it would store the same again, and moves the tail last.
//! - *The process is killed and the power stays*: superblocks, cursors and entries may be visible
//!   that were never flushed, and no mark of the dead process counts. Recovery flushes and fences
//!   superblocks and cursors before it applies an element, and all entries before any new commit
//!   rests on them.
//! - *It is killed amid a write past the cache*: the disk may show bytes that a power cut takes
//!   back. So the disk is flushed before a block of it is taken in as clean.
//! - *Checksums*, where they are kept, are part of the data: see `read/checksums.rs`.
//! - *A fence fails*, for the memory has lost a store: all fail from then on. An entry that was
//!   being made for a block may be there after a kill, or elements may count of a commit that
//!   failed, and the table does not know. So no block gets another free entry any more, and none is
//!   freed: that would be a second entry of the block, or hide one of the elements. The thread that
//!   met the failure had the stripes locked.
//! - *A line of entries cannot be read*: its entries, and as many free blocks, stay out of use. No
//!   store goes there.
//!
//! The crate `crashcheck` enumerates every power cut of every short script against this, and
//! removes each flush and fence in turn.
//!
//! # What the locks are for
//!
//! A stripe's lock guards its part of the table, and the entries and contents of its blocks: it is
//! held over the second step of a commit, and while a block is copied out. The ring's lock is held
//! by commits of several blocks, from their elements to their entries. Order: sweep of destaging,
//! stripes in ascending order, ring, policies. Data is streamed before any lock is taken, but for
//! blocks that a disk refused. A stripe is held for long only where a disk has to be read or
//! written behind everyone's back, which is rare; so its lock is one that is waited for awake.

#![forbid(unsafe_code)]

mod allocate;
mod cache;
mod check;
mod commit;
mod counters;
mod destage;
mod device;
mod free_list;
mod index;
mod mode;
mod no_disk;
mod open;
mod read;
mod region_io;

pub use cache::{DiskCache, Journaling, Occupancy, Options};
pub use check::{CheckReport, Finding, NoCache, check};
pub use commit::conflicts::Conflicts;
pub use commit::transaction::{Transaction, TransactionError};
pub use counters::Counters;
pub use destage::destager::Doorbell;
pub use destage::disk_journal::{
    FoundJournal, erase_journal, find_journal, has_room_for, journal_at_the_end, lay_out_journal, recover_disk,
    retire_journal,
};
pub use destage::step::DestageStep;
pub use index::POSTPONED_MAX;
pub use mode::{Mode, NoMode};
pub use no_disk::NoDisk;
pub use open::OpenError;
pub use open::format::{FormatError, FormatSpec, Identity, blocks_in, format, format_ordered, format_with, identify};
pub use open::guard::Guard;
pub use open::poisoned_entries::PoisonedEntries;
pub use open::resize::{Foreseen, NewLayout, NewLayoutError, foresee, lay_out_anew};
pub use read::checksums::Scrubbed;
pub use read::reader::Reads;
pub use tidegate_layout::disk_cache::Checksums;
pub use tidegate_media::Contents;
pub use tidegate_policy::writeback::destage::SweepScope;
