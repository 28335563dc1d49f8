//! A small queue that newcomers pass through, and a main one for those that were asked for there.
//!
//! After Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction" (SOSP
//! 2023).

use super::Evict;
use super::ghosts::Ghosts;
use super::queues::{NONE, Queues};

/// The small queue may take one part in so many of the slots before the main one has to give one
/// up.
const SMALL_PARTS: u32 = 10;

/// Times asked for that are remembered.
const ASKED_MAX: u8 = 3;

/// Times asked for, of a newcomer that goes on to the main queue.
const ASKED_TO_STAY: u8 = 2;

const SMALL: usize = 0;
const MAIN: usize = 1;

/// Gives up newcomers that were hardly asked for while there are many, else the oldest slot of the
/// main queue that nobody asked for.
pub struct S3Fifo {
    queues: Queues<2>,
    keys: Box<[u64]>,
    ghosts: Ghosts,
}

impl S3Fifo {
    /// The policy over `slots` slots.
    pub fn new(slots: u32) -> S3Fifo {
        let ghosts = Ghosts::new(slots - slots / SMALL_PARTS);
        S3Fifo { queues: Queues::new(slots), keys: vec![0; slots as usize].into(), ghosts }
    }

    /// The oldest newcomer that goes; those that were asked for go on to the main queue meanwhile.
    fn small_victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let mut slot = self.queues.oldest(SMALL);
        while slot != NONE {
            let newer = self.queues.newer(slot);
            if self.queues.mark(slot) >= ASKED_TO_STAY {
                self.queues.take(slot);
                self.queues.push(MAIN, slot);
            } else if may_go(slot) {
                self.ghosts.add(self.keys[slot as usize]);
                self.queues.take(slot);
                return Some(slot);
            }
            slot = newer;
        }
        None
    }

    /// The oldest slot of the main queue that goes; one that was asked for gets another round for
    /// each time.
    fn main_victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let mut slot = self.queues.oldest(MAIN);
        // Each slot comes once for every time it was asked for, and once more.
        for _ in 0..(u64::from(ASKED_MAX) + 1) * u64::from(self.queues.len(MAIN)) {
            if slot == NONE {
                slot = self.queues.oldest(MAIN);
            }
            let newer = self.queues.newer(slot);
            match self.queues.mark(slot) {
                0 if may_go(slot) => {
                    self.queues.take(slot);
                    return Some(slot);
                }
                0 => {}
                asked => {
                    self.queues.take(slot);
                    self.queues.push(MAIN, slot);
                    self.queues.set_mark(slot, asked - 1);
                }
            }
            slot = newer;
        }
        None
    }
}

impl Evict for S3Fifo {
    fn slots(&self) -> u32 {
        self.queues.slots()
    }

    fn insert(&mut self, slot: u32, key: u64) {
        self.keys[slot as usize] = key;
        let queue = if self.ghosts.take(key) { MAIN } else { SMALL };
        self.queues.push(queue, slot);
    }

    fn touch(&mut self, slot: u32) {
        if self.queues.home(slot).is_some() {
            self.queues.set_mark(slot, (self.queues.mark(slot) + 1).min(ASKED_MAX));
        }
    }

    fn remove(&mut self, slot: u32) {
        self.queues.take(slot);
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        if self.queues.len(SMALL) > self.slots() / SMALL_PARTS
            && let Some(slot) = self.small_victim(may_go)
        {
            return Some(slot);
        }
        let from_main = self.main_victim(may_go);
        let from_either = from_main.or_else(|| self.small_victim(may_go));
        // Newcomers that all went on are in the main queue now.
        from_either.or_else(|| self.main_victim(may_go))
    }
}
