//! A queue for newcomers, one for those that were asked for again after they had left it.
//!
//! After Johnson and Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
//! Algorithm" (VLDB 1994), with the sizes they recommend.

use super::Evict;
use super::ghosts::Ghosts;
use super::queues::Queues;

/// Newcomers may take one part in so many of the slots before the other queue has to give one up.
const NEWCOMERS_PARTS: u32 = 4;

/// Ghosts for one in so many slots.
const GHOSTS_PARTS: u32 = 2;

const NEWCOMERS: usize = 0;
const PROVEN: usize = 1;

/// Gives up the oldest newcomer while there are many, else the proven slot that was not asked for
/// the longest.
pub struct TwoQueues {
    queues: Queues<2>,
    keys: Box<[u64]>,
    ghosts: Ghosts,
}

impl TwoQueues {
    /// The policy over `slots` slots.
    pub fn new(slots: u32) -> TwoQueues {
        let ghosts = Ghosts::new(slots / GHOSTS_PARTS);
        TwoQueues { queues: Queues::new(slots), keys: vec![0; slots as usize].into(), ghosts }
    }
}

impl Evict for TwoQueues {
    fn slots(&self) -> u32 {
        self.queues.slots()
    }

    fn insert(&mut self, slot: u32, key: u64) {
        self.keys[slot as usize] = key;
        let queue = if self.ghosts.take(key) { PROVEN } else { NEWCOMERS };
        self.queues.push(queue, slot);
    }

    fn touch(&mut self, slot: u32) {
        if self.queues.home(slot) == Some(PROVEN) {
            self.queues.take(slot);
            self.queues.push(PROVEN, slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        self.queues.take(slot);
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let many = self.queues.len(NEWCOMERS) > self.slots() / NEWCOMERS_PARTS;
        let order = if many { [NEWCOMERS, PROVEN] } else { [PROVEN, NEWCOMERS] };
        let slot = order.into_iter().find_map(|queue| self.queues.oldest_that(queue, may_go))?;
        if self.queues.home(slot) == Some(NEWCOMERS) {
            self.ghosts.add(self.keys[slot as usize]);
        }
        self.queues.take(slot);
        Some(slot)
    }
}
