//! A block translation table: a region of persistent memory becomes a device whose blocks are
//! written whole or not at all. The bytes are those of Linux's `nd_btt`.
//!
//! # How a block is written
//!
//! A volume has more internal blocks than sectors. The *map* says in which block each sector lies;
//! each *lane* owns one free block and a pair of *flog* slots. A write goes to the lane's free
//! block, and then one aligned 8-byte store, the second word of the flog slot, commits it:
//!
//! 1. Lock the stripe of the map that the sector's entry lies in. Stream the data into the lane's
//!    free block. Read the entry: it names the block to be replaced, `old`. Stream (lba, old) into
//!    the lane's older flog slot. If another lane stored to this stripe and has passed no fence
//!    since, flush the line it stored to. Flush the line of the lane's own last map entry.
//!    **Fence.**
//! 2. Stream (new, seq) into the flog slot. **Fence.** The write is committed: from now on recovery
//!    finds it.
//! 3. Store the map entry. Unlock. `old` is now the lane's free block.
//!
//! Two fences and 67 lines for 4 KiB: 64 of data, one of flog for each of its words, one of map;
//! one more where lanes meet. Each is needed: the data and the first word of the flog must be
//! durable before the second word is, that before the map is, and the map before the flog slot
//! that could repeat the store is written again. (Where stores to one line keep their order, both
//! words could go in step 2 by two stores and one flush. That takes longer than two streamed words:
//! `docs/decisions/0002`.)
//!
//! # Why it is right after a power cut
//!
//! Recovery looks at each lane alone, in any order: if the map still holds the newest entry's
//! `old`, it stores `new`. (Linux's driver does the same, so its recovery is right on this order
//! too.)
//!
//! - *Cut before step 2 is durable*: the slot still carries its older sequence number and is
//!   ignored; the map holds `old`, whose block no one has touched. The old data is read. Recovery
//!   does not act on the slot's first word, as the slot is not the lane's newest. (A search for the
//!   slots in use finds this one by a lane's first write, and it is in use.) The second word is
//!   stored only after a fence has made the first one durable.
//! - *Cut after it*: the map holds `old` and recovery stores `new`, or it holds `new` already. The
//!   data became durable in step 1.
//! - *The map store is not even flushed.* It is repeated by recovery as long as the flog entry is
//!   the lane's newest. That entry is superseded only by the lane's next step 2, which comes after
//!   the lane's next step 1, whose thread flushes the map line and then fences.
//! - *Two lanes write one sector.* The second reads `old` from a map entry that is visible but
//!   perhaps not durable. Were it logged so, a cut could leave the map at the block before: the
//!   second lane's recovery would not recognise `old`, skip, and its acknowledged write would be
//!   lost. Hence the flush of another lane's store in step 1: the block that a lane logs as `old`
//!   is durable in the map before the entry that names it counts. Flushing a line that another core
//!   stored, and fencing here, makes it durable. The stripe is locked from before the look until
//!   the store, so no third lane stores in between.
//! - *The lane's free block is reused* only in the lane's next step 1. The flog entry that made it
//!   free is durable, so no recovery maps it again; the map store that replaced it may be lost, but
//!   is then repeated. Readers that still copy from it find out (see below).
//! - *Recovery's own stores* are flushed and fenced before the volume takes a write.
//! - *The process is killed and the power stays.* Its last stores are visible and perhaps not
//!   durable. The next open makes the flog durable before it acts on it, and flushes the map line
//!   of each lane's newest entry with its own stores.
//!
//! The crate `crashcheck` enumerates every power cut of every short script against these steps,
//! under this recovery and under a plain rewriting of Linux's.
//!
//! # How a block is read
//!
//! Load the map entry, copy the block, and look whether an entry of the stripe was replaced
//! meanwhile: if so, begin again, and after a few times do it with the stripe locked. A read stores
//! no byte, so reads on many cores take no cache line from each other, and a writer waits for no
//! reader.
//!
//! - *A counted copy was never written to meanwhile.* A block that the entry names is no lane's
//!   free block. It becomes one when the entry is replaced (step 3), the count of the stripe grows
//!   behind that, and the thread that streams into the block took the lane's lock after it. So a
//!   reader that met one byte of the new content, and looks at the count after it, sees that the
//!   count has grown.
//! - *The count and not the entry*: that may name the same block again, with other content, because
//!   the sector was written twice in between.
//! - *An error counts no more than data does*, if the count has grown: the block may be about to
//!   get other bytes.
//!
//! # Zeroes
//!
//! Discard and write-zeroes set the map entry's zero state: one aligned store, no flog, no data.
//! Linux reads such entries right with sectors of 4096 bytes. The lines are flushed also where the
//! entries were in that state already: the thread that put them there may not have passed its
//! fence. With the 512-byte class a read of several sectors stops at the first one and leaves the
//! rest of the page unfilled. So there write-zeroes writes zeroes and discard does nothing.

#![forbid(unsafe_code)]

mod audit;
mod check;
mod flog;
mod format;
mod identify;
mod io;
mod lanes;
mod locate;
mod loss;
mod map;
mod open;
mod repair;
mod survey;
mod wear;

pub use audit::{Counts, ERROR_FLAG_RULE};
pub use check::{CheckReport, Finding, Repair, check};
pub use format::{FormatError, FormatSpec, PlannedArena, format, format_arenas, plan};
pub use identify::{Identity, OpenError, identify};
pub use io::{Btt, Writes};
pub use locate::{FirstCopy, Summary};
pub use open::OpenOptions;
pub use survey::{Survey, survey};
pub use tidegate_media::Contents;
