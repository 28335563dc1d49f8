//! What engines stand on: persistent memory ([`Region`]) and devices of blocks ([`BlockDevice`]).
//!
//! A [`Region`] is byte-addressable memory that may keep its contents over a power cut. It tells
//! *visible* (a store that other threads see) apart from *durable* (a store that survives), and no
//! pointer or reference into it escapes. A [`BlockDevice`] is what every engine offers and every
//! cache stands on.
//!
//! The promises of the medium, and what it does not promise, are `docs/media-model.md`; the crate
//! `sim` implements the same text. Locks, atomics and threads of all engines come from [`sync`].

mod backing;
mod block;
mod block_set;
mod contents;
mod counters;
mod disk;
mod domain;
pub mod emulate;
mod error;
mod file_backed;
mod flushes;
mod kernel;
mod lock_holder;
mod locked_file;
mod map_error;
mod mapped;
mod mapped_file;
mod mapped_part;
mod memory;
mod region;
#[cfg(not(any(shuttle, virtual_cores)))]
mod spin;
pub mod sync;
pub mod thread_local_counters;
#[cfg(test)]
mod tiny;

pub use backing::{ALIGNMENT_BYTES, AlignedBytes, Backing, InTurn, Run};
pub use block::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange};
pub use block_set::BlockSet;
pub use contents::Contents;
pub use counters::{Counters, Tally};
pub use disk::{Claim, DiskAccess, DiskIdentity, DiskMark, FileDisk, Refusal, Refusals, Way, claim_of};
pub use domain::Domain;
pub use error::{Corrupt, Error, Misuse, NoRoom, Poison, Result, Sealed};
pub use file_backed::FileBacked;
pub use flushes::Flushes;
pub use kernel::{Process, join_fuse_mount};
pub use lock_holder::LockHolder;
pub use locked_file::{LOCK_WAIT, LockedFile, when_unlocked};
pub use map_error::MapError;
pub use mapped::{Access, Allocation, MappedRegion};
pub use mapped_file::MappedFile;
pub use mapped_part::MappedPart;
pub use memory::{Instructions, OpenKey, ProtectionKey, prefetch_for_store};
pub use region::{LINE_BYTES, LineOrder, Region};
