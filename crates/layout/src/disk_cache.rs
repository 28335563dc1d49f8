//! The transactional disk cache's bytes: which blocks of a disk lie in persistent memory, and in
//! which state.
//!
//! A region holds, in this order: the superblock twice, a line with two cursors, perhaps checksums
//! of the disk's first blocks, a ring of elements, one entry for each block, perhaps a checksum for
//! each, the blocks. An *entry* says which block of the disk lies in which block of the region; its
//! second word alone makes it count. An *element* of the ring gives the new state of an entry by a
//! transaction of several blocks, and counts while it lies between the cursors.

mod entry;
mod entry_check;
mod journal;
mod superblock;

pub use entry::{
    BlockSum, CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN, CacheEntry, EntryState, LBA_BITS, RingElement, StartSum,
    is_ahead,
};
pub use journal::{JOURNAL_HEADERS, JOURNAL_MAGIC, JournalHeader, JournalPlan, JournalRecord, TrustedJournal};
pub use superblock::{
    CURSORS_AT, CachePlan, Checksums, DETACHED, DISK_CACHE_MAGIC, START_SUMS_AT, SUPERBLOCK_BYTES,
    SUPERBLOCK_COPIES_AT, Superblock, TrustedSuperblock,
};
