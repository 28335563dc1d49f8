//! The order of arrival, and a hand that passes once over each slot asked for, from the oldest to
//! the newest.
//!
//! After Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is Simpler than LRU" (NSDI 2024).

use super::Evict;
use super::queues::{NONE, Queues};

/// Gives up the next slot, from where the last victim was towards newer ones, that was not asked
/// for since it was passed.
pub struct Sieve {
    queue: Queues<1>,
    /// The slot that is looked at next; [`NONE`]: the oldest.
    hand: u32,
}

/// The mark of a slot that was asked for.
const ASKED: u8 = 1;

impl Sieve {
    /// The policy over `slots` slots.
    pub fn new(slots: u32) -> Sieve {
        Sieve { queue: Queues::new(slots), hand: NONE }
    }
}

impl Evict for Sieve {
    fn slots(&self) -> u32 {
        self.queue.slots()
    }

    fn insert(&mut self, slot: u32, _: u64) {
        self.queue.push(0, slot);
    }

    fn touch(&mut self, slot: u32) {
        if self.queue.home(slot).is_some() {
            self.queue.set_mark(slot, ASKED);
        }
    }

    fn remove(&mut self, slot: u32) {
        if self.hand == slot {
            self.hand = self.queue.newer(slot);
        }
        self.queue.take(slot);
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        // In the second round nothing is asked for any more.
        for _ in 0..2 * u64::from(self.queue.len(0)) {
            let slot = if self.hand == NONE { self.queue.oldest(0) } else { self.hand };
            self.hand = self.queue.newer(slot);
            if self.queue.mark(slot) == ASKED {
                self.queue.set_mark(slot, 0);
            } else if may_go(slot) {
                self.queue.take(slot);
                return Some(slot);
            }
        }
        None
    }
}
