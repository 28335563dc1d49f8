//! The file cache's bytes: which bytes of which files lie in persistent memory, and how new they
//! are.
//!
//! A pool holds the superblock twice, and then its lanes, one for each process that may write at a
//! time. A lane holds, in this order: a line with two cursors, a ring of elements, one record for
//! each file, entries, and chunks of 1 MiB. A chunk is cut into blocks of one class. An *entry*
//! says which bytes of a file lie in a block; its last word alone makes it count. An *element* of
//! the ring gives the new state of an entry or a record, and counts while it lies between the
//! cursors. An entry may also name a *lease log*: a block to which another process writes what it
//! has written to a file.
//!
//! Before the lanes lies the *namespace log*, if the pool has one: a line with two cursors, and a
//! ring of records of changes to names.
//!
//! *Versions* order the lanes' contents: where entries overlap, the greater version is the newer,
//! and a record says up to which version entries are void, and which older ones count only up to
//! the file's length.

mod entry;
mod entry_check;
mod lease;
mod lease_mark;
mod mapped_run;
mod modified;
mod name_map;
mod namespace;
mod ranges;
mod record;
mod superblock;
mod time_page;
mod volatile;

pub use entry::{
    CHUNK_BYTES, Change, Class, EntryState, Extent, FileElement, FileEntry, LENGTH_BITS, UNITS_PER_CHUNK, VERSION_MAX,
};
pub use lease::{
    LEASE_CLASS, LeaseElement, LeaseGrant, LeaseHead, LeasePlan, LentChunk, NOT_CLOSED, TrustedLease, block_in,
};
pub use lease_mark::LeaseMark;
pub use mapped_run::MappedRun;
pub use modified::{later_modified_word, modified_time, modified_word};
pub use name_map::NameMap;
pub use namespace::{
    LOG_LINE_BYTES, LogRecord, LoggedTime, LostName, NAMESPACE_LINES_MIN, NameChange, NameRecord, NamespacePlan,
    NodeAttributes, NodeIdentity,
};
pub use ranges::{between, in_pieces, united};
pub use record::{FileRecord, PATH_HINT_BYTES_MAX, TrustedRecord};
pub use superblock::{LanePlan, PoolContents, PoolPlan, PoolSuperblock, TrustedPool};
pub use time_page::{StoreTimes, TrustedTimePage};
pub use volatile::{
    VOLATILE_BLOCK_BYTES, VOLATILE_WHOLE_BYTES, VolatileFile, VolatileHead, VolatilePlan, VolatileSlot, VolatileWrite,
};
