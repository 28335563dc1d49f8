//! PMBD and PMBD-70: sub-buffers that are drained as a whole.
//!
//! Caiti § 5.1: PMBD "flushes the entire cache if the cache is 100% full", on the writer's path;
//! PMBD-70 "flushes the buffer when the buffer is 70% full", through a syncer thread, as PMBD's own
//! source does.
//!
//! PMBD-70 is as that source does it (`pmbd_buffer_flush`, `pmbd_syncer_worker`,
//! `pmbd_buffer_alloc_block`): *one* thread flushes a buffer at a time, under a lock
//! (`flush_lock`), a batch of 1024 blocks, oldest first, whose slots are free together at its end;
//! the syncer goes on from 70 % down to 10 %; a writer that finds the buffer full waits for that
//! lock, and then flushes a batch itself.
//!
//! The cache is divided into sub-buffers, as PMBD's is (`bufnum`, 16 by its documentation): Caiti
//! has "multi-buffers in an overall capacity of 512 MB". All rules hold for each of them.
//!
//! Left open and chosen: while one writer flushes a sub-buffer, others that need a slot of it wait,
//! and take a slot as soon as there is one. A batch is the same part of the cache as 1024 blocks
//! are of Caiti's 512 MiB, whichever sub-buffer it is of. One syncer goes over all buffers: Caiti
//! speaks of "a syncer daemon thread", while the source has one for each buffer.

use super::{Rule, Slot, Slots};
use tidegate_media::Result;
use tidegate_media::sync::{AtomicBool, Mutex, Ordering};

/// Used slots of a hundred at which PMBD-70's syncer begins, and at which it ends.
const SYNC_FROM_PERCENT: u32 = 70;
const SYNC_TO_PERCENT: u32 = 10;

/// Sub-buffers.
const BUFFERS: u32 = 16;

/// Batches that a full sub-buffer of PMBD-70 is flushed in, of the 128 of a full cache.
const BATCHES: u32 = 128 / BUFFERS;

/// The rule of PMBD, for one sub-buffer: nothing is let go of until everything is.
pub struct Pmbd {
    /// Held by the writer that flushes.
    flushing: Mutex<()>,
}

impl Rule for Pmbd {
    fn new(_slots: u32) -> Pmbd {
        Pmbd { flushing: Mutex::default() }
    }

    fn make_room(&self, slots: &Slots) -> Result<()> {
        let _alone = self.flushing.lock();
        // Who waited here while another flushed has what he came for.
        if slots.has_free() {
            return Ok(());
        }
        slots.all().try_for_each(|slot| slots.evict(self, slot).map(|_| ()))
    }

    fn flush_frees(&self) -> bool {
        true
    }

    fn buffers() -> u32 {
        BUFFERS
    }
}

/// The rule of PMBD-70, for one sub-buffer: a syncer drains most of what is there whenever 70 % are
/// used, and nobody else flushes meanwhile.
pub struct Pmbd70 {
    slots: u32,
    /// The slot that is flushed next; held while a batch is.
    flushing: Mutex<u32>,
    /// The syncer has begun, and not come to its end.
    syncing: AtomicBool,
}

impl Pmbd70 {
    /// Flushes a batch, after whoever does so already.
    fn flush_batch(&self, slots: &Slots) -> Result<()> {
        let mut next = self.flushing.lock();
        let many = self.slots.div_ceil(BATCHES) as usize;
        let mut evicted = Vec::with_capacity(many);
        // Slots that hold nothing are passed over; once around is enough.
        let flushed = (0..self.slots).try_for_each(|_| {
            if evicted.len() < many {
                let slot = Slot(*next);
                if slots.evict_to_be_freed(self, slot)? {
                    evicted.push(slot);
                }
                *next = (*next + 1) % self.slots;
            }
            Ok(())
        });
        slots.free(&evicted);
        flushed
    }
}

impl Rule for Pmbd70 {
    fn new(slots: u32) -> Pmbd70 {
        Pmbd70 { slots, flushing: Mutex::new(0), syncing: AtomicBool::new(false) }
    }

    fn make_room(&self, slots: &Slots) -> Result<()> {
        self.flush_batch(slots)
    }

    fn background_step(&self, slots: &Slots) -> Result<bool> {
        // Relaxed: only the syncer asks.
        let from = if self.syncing.load(Ordering::Relaxed) { SYNC_TO_PERCENT } else { SYNC_FROM_PERCENT };
        let syncing = u64::from(slots.used()) * 100 >= u64::from(self.slots) * u64::from(from);
        self.syncing.store(syncing, Ordering::Relaxed);
        if syncing {
            self.flush_batch(slots)?;
        }
        Ok(syncing)
    }

    fn flush_frees(&self) -> bool {
        true
    }

    fn buffers() -> u32 {
        BUFFERS
    }
}
