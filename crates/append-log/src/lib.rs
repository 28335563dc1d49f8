//! An append-only log in persistent memory, in front of an ordinary file or a disk.
//!
//! Bytes of the log are numbered from 0 and never change. The newest ones lie in a *window* of
//! chunks on a [`Region`]; older ones lie below, on a [`BlockDevice`]. [`AppendLog::append`] takes
//! bytes, [`AppendLog::sync`] makes them durable, and two bounded steps do the rest:
//! [`AppendLog::write_back_step`] moves the oldest full chunk below, and
//! [`AppendLog::prepare_step`] makes a slot ready for a chunk to come.
//!
//! # What is stored, and in which order
//!
//! Each slot of the window has a head of one line: the number of its chunk, and one word that says
//! how many bytes of the chunk count, with their checksum ([`tidegate_layout::append_log`]).
//!
//! 1. *Append*: bytes wait in DRAM. Those beyond 64 KiB, or beyond a chunk if that is less, are
//!    streamed to the window and fenced at once, behind the end of the log.
//! 2. *Sync*: the bytes that wait are streamed. **Fence.** The word of the chunk in which the log
//!    ended is stored and flushed. **Fence.** If the new bytes reach into further chunks, the words
//!    of those are stored, flushed and fenced first.
//! 3. *Write back*: a full chunk is written below, and what lies below is flushed. Its head is
//!    marked. **Fence.** From then on its slot may be used again.
//! 4. *Prepare*: the word of a slot whose chunk is below is cleared. **Fence.** The number of the
//!    chunk to come is stored, with its inverse. **Fence.**
//! 5. *Drop*: the first copy of the superblock says where the log begins. **Fence.** The second
//!    copy says it. **Fence.** Then the chunks before it are discarded below.
//!
//! # Why it is right after a power cut
//!
//! - *Cut in a sync*: the log ends in the first chunk that is not full. The word of that chunk is
//!   stored last, so all new bytes count, or none. They are durable before any word. Words of later
//!   chunks are cleared by recovery, before anything is appended.
//! - *Cut in a write-back*: the chunk still lies in the window, and is written once more.
//! - *Cut in a prepare*: a slot with a torn number has no byte that counts. A slot never has a new
//!   number with the word of its former chunk, for a fence lies between the two stores.
//! - *Cut in a drop*: either copy of the superblock says enough. Nothing is discarded before both
//!   do.
//! - *Recovery is cut*: it repeats the same stores.
//! - *The process is killed and the power stays*: recovery flushes the superblock and all heads, as
//!   the dead process may have left them in the CPU's caches. Bytes that a visible word counts were
//!   fenced before it was stored.
//!
//! # What damage does
//!
//! A word carries the checksum of the bytes that it counts. So a byte that changed is not taken for
//! the end of the log: [`AppendLog::open`] tells which bytes of the log are damaged. Chunks that
//! the file below has are not looked at in the window.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_append_log::{AppendLog, Making, OnDamage};
//! use tidegate_media::{BlockDevice, MappedRegion};
//! use tidegate_sim::Disk;
//!
//! let below: Arc<dyn BlockDevice> = Arc::new(Disk::new(1024, 4096));
//! let region = Arc::new(MappedRegion::anonymous(1 << 20)?);
//! let making = Making { chunk_bytes: 1 << 16, uuid: [1; 16], below: [0; 32] };
//! tidegate_append_log::create(&region, &below, &making)?;
//!
//! let log = AppendLog::open(Arc::clone(&region), Arc::clone(&below), OnDamage::Refuse)?;
//! log.append(b"first ")?;
//! log.append(b"second")?;
//! assert_eq!((log.appended_to(), log.durable_to()), (12, 0));
//! assert_eq!(log.sync()?, 12);
//!
//! // The next process finds what was synced.
//! drop(log);
//! let log = AppendLog::open(region, below, OnDamage::Refuse)?;
//! let mut found = Vec::new();
//! log.replay(0, &mut |_, bytes| found.extend_from_slice(bytes))?;
//! assert_eq!(found, b"first second");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Region`]: tidegate_media::Region
//! [`BlockDevice`]: tidegate_media::BlockDevice

#![forbid(unsafe_code)]

mod create;
mod drop_behind;
mod error;
mod log;
mod open;
mod read;
mod steps;
mod superblock;
mod window;

pub use create::{Making, create};
pub use error::{CreateError, Damage, DamageFound, LogError, LogOpenError};
pub use log::AppendLog;
pub use open::{LogSurvey, OnDamage, identify, survey};
pub use steps::{Prepared, WrittenBack};

/// Bytes in a chunk, unless the maker of a log chooses others.
pub const CHUNK_BYTES_DEFAULT: u64 = 2 << 20;

/// Bytes of a region with a window of twenty such chunks.
pub const REGION_BYTES_DEFAULT: u64 = 20 * CHUNK_BYTES_DEFAULT + 12_288;

/// Chunks that are made ready ahead of the log's end.
pub(crate) const AHEAD_CHUNKS: u64 = 8;
