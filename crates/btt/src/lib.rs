//! A block translation table: a region of persistent memory becomes a device whose blocks are written whole or
//! not at all. The bytes are those of Linux's `nd_btt`.
//!
//! # How a block is written
//!
//! A volume has more internal blocks than sectors. The *map* says in which block each sector lies; each *lane*
//! owns one free block and a pair of *flog* slots. A write goes to the lane's free block, and then one aligned
//! 8-byte store, the second word of the flog slot, commits it:
//!
//! 1. Look into the map for the block to be replaced, `old`, without a lock: a guess. Stream (lba, old) into the lane's older flog slot and the data
//!    into the lane's free block. Flush the line of the lane's last map entry. **Fence.**
//! 2. Lock the map line. Read the entry. If it names another block than was guessed, stream (lba, old) anew. If another lane stored to this stripe
//!    and has passed no fence since, flush the line it stored to. After either, **fence** once more (rare).
//! 3. Stream (new, seq) into the flog slot. **Fence.** The write is committed: whatever happens now, it is found.
//! 4. Store the map entry. Unlock. `old` is now the lane's free block.
//!
//! Two fences and 67 lines for 4 KiB: 64 of data, one of flog for each of its words, one of map. None can go: the data and the first word of the
//! flog must be durable before the second word is, that before the map is, and the map before the flog slot that could repeat the store
//! is written again. (Where stores to one line keep their order, both words could go in step 3 by two stores and one flush. That takes
//! longer than two streamed words: `docs/decisions/0002`.)
//!
//! # Why it is right after a power cut
//!
//! Recovery looks at each lane alone, in any order: if the map still holds the newest entry's `old`, it stores
//! `new`. (Linux's driver does the same, so its recovery is right on this order too.)
//!
//! - *Cut before step 3 is durable*: the slot still carries its older sequence number and is ignored; the map holds `old`,
//!   whose block no one has touched. The old data is read. What the slot's first word says then, a wrong guess too, is acted on by nobody: it is
//!   not the lane's newest slot. (Who looks for the slots in use sees in a lane's first write that this one is among them, as it is.) The second
//!   word is stored only after a fence has made the right first word durable.
//! - *Cut after it*: the map holds `old` and recovery stores `new`, or it holds `new` already. The data became durable in step 1.
//! - *The map store is not even flushed.* It is repeated by recovery as long as the flog entry is the lane's newest. That
//!   entry is superseded only by the lane's next step 3, which comes after the lane's next step 1, whose thread flushes the
//!   map line and then fences.
//! - *Two lanes write one sector.* The second reads `old` from a map entry that is visible but perhaps not durable. Were it
//!   logged so, a cut could leave the map at the block before: the second lane's recovery would not recognise `old`, skip, and its
//!   acknowledged write would be lost. Hence the extra fence of step 2: what a lane logs as `old` is durable in the map.
//!   Flushing a line that another core stored, and fencing here, makes it durable.
//! - *The lane's free block is reused* only in the lane's next step 1. The flog entry that made it free is
//!   durable, so no recovery maps it again; the map store that replaced it may be lost, but is then repeated. Readers that
//!   still copy from it are waited for (see `readers`).
//! - *Recovery's own stores* are flushed and fenced before the volume takes a write.
//! - *The process is killed and the power stays.* Its last stores are visible and perhaps not durable. The next open makes the
//!   flog durable before it acts on it, and flushes the map line of each lane's newest entry with its own stores.
//!
//! The crate `trials` enumerates every power cut of every short script against these steps, under this recovery and under a
//! plain rewriting of Linux's.
//!
//! # Zeroes
//!
//! Discard and write-zeroes set the map entry's zero state: one aligned store, no flog, no data. Linux reads such entries right
//! with sectors of 4096 bytes. The lines are flushed also where the entries were in that state already: the thread that put them there
//! may not have passed its fence. With the 512-byte class a read of several sectors stops at the first one and
//! leaves the rest of the page unfilled. So there write-zeroes writes zeroes and discard does nothing.

#![forbid(unsafe_code)]

mod check;
mod format;
mod identify;
mod io;
mod lanes;
mod locate;
mod loss;
mod map;
mod open;
mod padded;
mod readers;
mod repair;
mod wear;

pub use check::{Counts, Finding, Repair, Report, check};
pub use format::{FormatError, FormatSpec, PlannedArena, format, format_arenas, plan};
pub use identify::{Identity, identify};
pub use io::Btt;
pub use locate::{FirstCopy, Summary};
pub use open::{OpenError, OpenOptions};
pub use tidegate_media::Contents;
