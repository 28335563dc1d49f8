//! The slot that was not asked for the longest.

use super::Evict;
use super::queues::Queues;

/// Gives up the slot that was not asked for the longest.
pub struct Lru(Queues<1>);

impl Lru {
    /// The policy over `slots` slots.
    pub fn new(slots: u32) -> Lru {
        Lru(Queues::new(slots))
    }
}

impl Evict for Lru {
    fn slots(&self) -> u32 {
        self.0.slots()
    }

    fn insert(&mut self, slot: u32, _: u64) {
        self.0.push(0, slot);
    }

    fn touch(&mut self, slot: u32) {
        if self.0.take(slot) {
            self.0.push(0, slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        self.0.take(slot);
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let slot = self.0.oldest_that(0, may_go)?;
        self.0.take(slot);
        Some(slot)
    }
}
