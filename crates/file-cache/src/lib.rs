//! A persistence-aware cache for files: a write costs a copy to DRAM, a sync ends in persistent
//! memory, the file below catches up in bounded steps.
//!
//! A pool has *lanes*, each with files of its own. A lane has *blocks* of 256 B to 1 MiB, an
//! *entry* for each block in use, a *record* for each file, and a ring ([`tidegate_wal`]). An entry
//! says which bytes of which file lie in its block, with its commit's *version*: where entries
//! overlap, the greater version is the newer. A record says the length of its file. Unsynced writes
//! lie in blocks of shared memory, which outlives the process.
//!
//! The newest copy of a byte is in DRAM, else in an entry, else below. Unsynced bytes are *dirty*;
//! entries newer than the file below are *out of sync*; entries whose bytes are below too are
//! *clean*: they are given up when room is wanted, and count in the next process if the file is as
//! it was. Dirty bytes leave DRAM by a sync, or by age. Clean pages in DRAM are left to the kernel,
//! which has them.
//!
//! # How a sync is made
//!
//! 1. At a file's first sync: the file below is synced (its creation and its former contents get
//!    durable), its record is written, **fence**, and put in use.
//! 2. Take free entries and blocks for everything dirty, in the sizes that fit. Stream the data.
//! 3. Stream an element {entry, file, offset, length, block, version} for each behind the ring's
//!    head. Flush the entries freed by the last commit, and those of the oldest elements if half of
//!    the ring is in use. **Fence.**
//! 4. Store the head; flush. **Fence.** Now it is committed. Then store the entries, without a
//!    flush.
//!    Where all room is taken, clean entries are freed before step 2: their last words say so,
//!    **fence**, sixteen at a time.
//! 5. Entries of which no byte is the newest any more are freed by a store of their last word. They
//!    and their blocks are used again after the next commit, whose first fence makes that durable.
//!
//! Two fences however much is dirty; and nothing that is cached or out of sync is looked at, but
//! what the new bytes cover.
//!
//! *An append* is shorter. If the bytes follow those of the file's last block and fit into it:
//! stream them behind; **fence**; store the entry's last word with the greater length; flush;
//! **fence**.
//!
//! *A group of writes* is one commit too, of bytes that the caller gathered: `sync/group.rs`.
//!
//! # Why it is right after a power cut
//!
//! Opening a lane takes each entry as it is, or as an element between the cursors says if the
//! element's version is greater, and leaves out what is void or cut off. Where entries overlap, the
//! greater version has the bytes. Nothing is written below for that.
//!
//! - *Cut before the head is durable*: no word that counts names the new entries; they are free,
//!   durably, and so are their blocks.
//! - *Cut later*: the elements arrived before the head, and the data before it too. Entries arrive
//!   one by one, whole by their last word (where words of a line may overtake each other, the entry
//!   is freed and fenced and its other words flushed before the first fence), and elements stand in
//!   for those that do not. An entry lengthened or freed since has its element's version, and so is
//!   not taken back by it.
//! - *Cut in an append*: the length is old or new. Bytes behind the length count for nothing, and
//!   no entry that counts has bytes behind the file's end.
//! - *A covered entry may count again*, if the store that frees it is lost. It is older than what
//!   covers it, and what covers it stays until all older entries of the file are void.
//!
//! # One order of truth between pool and file
//!
//! - *Write-back* takes the oldest entries of a file, up to some version; writes those of their
//!   bytes that are the newest; syncs the file; then commits that every entry up to that version is
//!   void, and the file's length. So an entry is given up only together with all older ones: none
//!   can come back over the file's newer bytes. If the file was cut or drained meanwhile, nothing
//!   is committed and the step is made again.
//! - *The record's length* is one that the file below may be cut to: what lies behind it is in
//!   entries newer than the record's version, and older entries count only below it. So a
//!   *truncation* is one commit of the record. Then all entries are cut, durably, for a later
//!   record may say a greater length; then the file. If the file is to grow again before that cut
//!   is durable below, it is synced first. If the file below refuses the cut, reads find zeroes
//!   behind it, and each operation that goes below makes the cut first.
//! - *A hole* is punched below at once where the file below has the newest bytes. Elsewhere it is
//!   zeroes like any other write (`io/holes.rs`). The file's next sync syncs it below first.
//! - *Draining* (before the kernel's path may touch the file, and when a sync finds no room) writes
//!   everything below, syncs, and puts the record out of use: its entries mean nothing without it.
//!   Such a sync is not atomic, and is counted. A record's next file has a version above all former
//!   entries.
//! - *A clean entry* is one that the medium marks, after the sync below and the commit that makes
//!   it void (`tiers/clean.rs`), or one that was read from below (`tiers/admit.rs`). A file *rests*
//!   while nobody has it open: its record and its clean entries stay.
//! - *A file changed by others* has another stamp than its record says, which is looked at before
//!   the cache changes the file, and when it is found again. The record says none before the cache
//!   itself changes the file, durably. Reserved room changes no byte, and no stamp.
//! - *Room below* is reserved before a write returns, but where there is plenty.
//!
//! # When the process ends
//!
//! A header of a dirty block is stored after the bytes. Opening the lane makes its words durable,
//! carries out the ring's elements, and takes the dirty blocks over: they are as dirty as before,
//! as in the kernel's page cache. A synchronous write that has not returned may be there in part,
//! where it overwrites dirty bytes.
//!
//! A file that was left is *detached* until its file below is found. Attaching cuts the file below
//! to the length of the record, as write-back may have begun to extend it, and completes a
//! truncation that the process had begun. A file that is missing, was replaced or was changed by
//! others stays detached: its data stays in the pool until the caller salvages or discards it. A
//! record leaves the pool when its file is closed and every promise about it is kept below,
//! durably.
//!
//! # Names
//!
//! Records of what was done to names lie in a log of their own, before the lanes: the crate
//! `namespace-log` over this one.
//!
//! The crate `crashcheck` enumerates every cut and kill of short scripts against this.
//!
//! # Leases
//!
//! A file may be lent to another process, which writes it without asking: `lanes/leases.rs`. Any
//! other operation on the file ends that first.
//!
//! # Locks
//!
//! One lock for a lane, for steps in memory only. An operation that goes below takes the gate of
//! its file first (`exclusive.rs`), so that operations on other files go on. A thread that writes
//! back holds a lock of its own, taken before the gate.

#![forbid(unsafe_code)]

mod below;
mod cache;
mod counters;
mod error;
mod exclusive;
mod io;
mod lanes;
mod open;
mod pool;
mod region_io;
mod sync;
mod tiers;
mod truncate;

pub use below::{
    BackingFile, BackingStatus, Below, Displaced, Disposition, Fallocate, FileIdentity, Refused, Sought, Stamp,
};
pub use cache::{FileCache, Occupancy, Persistence, Synced};
pub use counters::{ByPattern, Counters, PatternCounts};
pub use error::FileError;
pub use io::holes::FileLength;
pub use lanes::file::FileId;
pub use lanes::lane::Renewal;
pub use lanes::lease::LeaseId;
pub use lanes::leases::lease_room::lease_room;
pub use lanes::leases::lend::{LeaseStock, Sharer};
pub use open::attach::Detached;
pub use open::check::{PoolReport, check};
pub use open::format::{PoolFormatError, PoolOpenError, PoolSpec, dram_bytes, format, identify};
pub use open::recover::{Outcome, Recovered};
pub use pool::{FilePool, PoolFile, PoolLease};
pub use sync::group::GroupWrite;
pub use sync::group_bytes::GroupBytes;
pub use tidegate_leased_file::{Copied, LeasedFile, Others, WriteTurn, Wrote};
pub use tiers::placement::{GRANULE_BYTES, PlacementStep, ProgramAccess};
pub use tiers::tier_map::{Tier, TierExtent, TierMap};
pub use tiers::write_back::WriteBackStep;
