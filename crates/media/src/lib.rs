//! The base of all engines: persistent memory ([`Region`]) and devices of blocks ([`BlockDevice`]).
//!
//! A [`Region`] is byte-addressable memory that may keep its contents over a power cut. It tells
//! *visible* (a store that other threads see) apart from *durable* (a store that survives), and no
//! pointer or reference into it escapes. Every engine offers a [`BlockDevice`], and every cache
//! stands on one.
//!
//! The promises of the medium and their limits are in `docs/media-model.md`; the crate `sim`
//! implements the same text. Locks, atomics and threads of all engines come from [`sync`].

mod block;
mod counters;
mod disk;
mod domain;
pub mod emulate;
mod error;
mod file_backed;
mod flushes;
mod kernel;
mod locked_file;
mod mapped;
mod memory;
mod region;
pub mod sync;
#[cfg(test)]
mod tiny;

pub use block::backing::{ALIGNMENT_BYTES, AlignedBytes, Backing, InTurn, Run};
pub use block::block_set::BlockSet;
pub use block::contents::Contents;
pub use block::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange};
pub use counters::Counters;
pub use disk::users::{quiet_user_of_device, user_of_device};
pub use disk::{Claim, DiskAccess, DiskIdentity, DiskMark, FileDisk, IoMethod, Refusal, Refusals, claim_of};
pub use domain::{Domain, MemoryDevice, memory_devices};
pub use error::{Corrupt, Error, Misuse, NoRoom, Poison, Result, Sealed};
pub use file_backed::FileBacked;
pub use flushes::Flushes;
pub use kernel::{AbsentPages, Process, WrittenPages, WrittenRange, join_fuse_mount};
pub use locked_file::lock_holder::LockHolder;
pub use locked_file::map_error::MapError;
pub use locked_file::{LOCK_WAIT, LockedFile, when_unlocked};
pub use mapped::fenced_file::FencedFile;
pub use mapped::mapped_chunks::{MappedChunks, OpenShared};
pub use mapped::mapped_file::MappedFile;
pub use mapped::mapped_part::MappedPart;
pub use mapped::mapped_runs::MappedRuns;
pub use mapped::outliving::{OutlivingMemory, OutlivingWindow};
pub use mapped::own_words::OwnWords;
pub use mapped::pin_charge::{Charged, PinCharge};
pub use mapped::{Access, Allocation, MappedRegion, UnfinishedFile};
pub use memory::{Instructions, OpenKey, ProtectionKey, prefetch_for_store};
pub use region::{ExchangeWords, LINE_BYTES, LineOrder, Region};
pub use sync::thread_local_counters;
