//! PMBD and PMBD-70: buffers that are drained as a whole.
//!
//! Caiti § 5.1: PMBD "flushes the entire cache if the cache is 100% full", on the writer's path; PMBD-70 "flushes the buffer when the
//! buffer is 70% full", through a syncer thread, as PMBD's own source does.
//!
//! Left open and chosen: while one writer flushes the whole cache, others that need a slot wait for it, and take a slot as soon as
//! there is one. Where PMBD-70's writers outrun the syncer and find nothing free, they drain too, a sixteenth of the cache (a
//! sub-buffer): Caiti's Fig. 6 shows that they stall, and blames "contention between the daemon thread and the working thread".

use super::{Rule, Slot, Slots};
use tidegate_media::Result;
use tidegate_media::sync::{AtomicU32, Mutex, Ordering};

/// Sub-buffers of PMBD-70.
const SUB_BUFFERS: u32 = 16;

/// Used slots of a hundred at which PMBD-70's syncer begins.
const SYNC_FROM_PERCENT: u32 = 70;

/// Slots that a syncer drains in one step.
const SYNCER_STEP: u32 = 64;

/// The rule of PMBD: nothing is let go of until everything is.
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
}

/// The rule of PMBD-70: a syncer drains everything whenever 70 % are used.
pub struct Pmbd70 {
    slots: u32,
    /// Where the syncer is in its round; `slots` when it has nothing to do.
    round: AtomicU32,
    /// Where the next writer drains that has to.
    hand: AtomicU32,
}

impl Rule for Pmbd70 {
    fn new(slots: u32) -> Pmbd70 {
        Pmbd70 { slots, round: AtomicU32::new(slots), hand: AtomicU32::new(0) }
    }

    fn make_room(&self, slots: &Slots) -> Result<()> {
        let sub_buffer = self.slots.div_ceil(SUB_BUFFERS);
        let first = self.hand.fetch_add(sub_buffer, Ordering::Relaxed);
        (0..sub_buffer).try_for_each(|nth| slots.evict(self, Slot(first.wrapping_add(nth) % self.slots)).map(|_| ()))
    }

    fn background_step(&self, slots: &Slots) -> Result<bool> {
        let mut at = self.round.load(Ordering::Relaxed);
        if at >= self.slots {
            if u64::from(slots.used()) * 100 < u64::from(self.slots) * u64::from(SYNC_FROM_PERCENT) {
                return Ok(false);
            }
            at = 0;
        }
        let end = at.saturating_add(SYNCER_STEP).min(self.slots);
        (at..end).try_for_each(|slot| slots.evict(self, Slot(slot)).map(|_| ()))?;
        self.round.store(end, Ordering::Relaxed);
        Ok(true)
    }

    fn flush_frees(&self) -> bool {
        true
    }
}
