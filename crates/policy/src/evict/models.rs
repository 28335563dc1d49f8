//! The policies as dull lists: slow, and obviously true to their papers.

use super::{Evict, Replacement};

/// The dull form of `replacement` over `slots` slots.
pub(super) fn model(replacement: Replacement, slots: u32) -> Box<dyn Evict> {
    match replacement {
        Replacement::Lru => Box::new(DullLru { slots, oldest_first: Vec::new() }),
        Replacement::Clock => Box::new(DullClock { circle: (0..slots).map(|slot| (slot, None)).collect() }),
        Replacement::Sieve => Box::new(DullSieve { slots, oldest_first: Vec::new(), hand: 0 }),
        Replacement::TwoQueues => {
            let ghosts = DullGhosts { last: Vec::new(), capacity: slots as usize / 2 };
            Box::new(DullTwoQueues { slots, newcomers: Vec::new(), proven: Vec::new(), ghosts })
        }
        Replacement::S3Fifo => {
            let ghosts = DullGhosts { last: Vec::new(), capacity: (slots - slots / 10) as usize };
            Box::new(DullS3Fifo { slots, small: Vec::new(), main: Vec::new(), ghosts })
        }
    }
}

struct DullLru {
    slots: u32,
    oldest_first: Vec<u32>,
}

impl Evict for DullLru {
    fn slots(&self) -> u32 {
        self.slots
    }
    fn insert(&mut self, slot: u32, _: u64) {
        self.oldest_first.push(slot);
    }
    fn touch(&mut self, slot: u32) {
        if let Some(at) = self.oldest_first.iter().position(|known| *known == slot) {
            self.oldest_first.remove(at);
            self.oldest_first.push(slot);
        }
    }
    fn remove(&mut self, slot: u32) {
        self.oldest_first.retain(|known| *known != slot);
    }
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let at = self.oldest_first.iter().position(|slot| may_go(*slot))?;
        Some(self.oldest_first.remove(at))
    }
}

/// The circle, turned so that the hand is at its front: each slot, and whether it was asked for if
/// it is known.
struct DullClock {
    circle: Vec<(u32, Option<bool>)>,
}

impl DullClock {
    fn state(&mut self, slot: u32) -> &mut Option<bool> {
        self.circle.iter_mut().find(|(known, _)| *known == slot).map(|(_, state)| state).expect("all are in the circle")
    }
}

impl Evict for DullClock {
    fn slots(&self) -> u32 {
        u32::try_from(self.circle.len()).expect("few")
    }
    fn insert(&mut self, slot: u32, _: u64) {
        *self.state(slot) = Some(false);
    }
    fn touch(&mut self, slot: u32) {
        *self.state(slot) = self.state(slot).map(|_| true);
    }
    fn remove(&mut self, slot: u32) {
        *self.state(slot) = None;
    }
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        for _ in 0..2 * self.circle.len() {
            let (slot, state) = self.circle[0];
            let goes = state == Some(false) && may_go(slot);
            self.circle[0].1 = if goes { None } else { state.map(|_| false) };
            self.circle.rotate_left(1);
            if goes {
                return Some(slot);
            }
        }
        None
    }
}

struct DullSieve {
    slots: u32,
    /// Slots, and whether they were asked for.
    oldest_first: Vec<(u32, bool)>,
    hand: usize,
}

impl Evict for DullSieve {
    fn slots(&self) -> u32 {
        self.slots
    }
    fn insert(&mut self, slot: u32, _: u64) {
        // A hand past the newest slot begins anew; it does not wait for the next one to come.
        if self.hand == self.oldest_first.len() {
            self.hand = 0;
        }
        self.oldest_first.push((slot, false));
    }
    fn touch(&mut self, slot: u32) {
        self.oldest_first.iter_mut().filter(|(known, _)| *known == slot).for_each(|(_, asked)| *asked = true);
    }
    fn remove(&mut self, slot: u32) {
        if let Some(at) = self.oldest_first.iter().position(|(known, _)| *known == slot) {
            self.oldest_first.remove(at);
            self.hand -= usize::from(at < self.hand);
        }
    }
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        for _ in 0..2 * self.oldest_first.len() {
            self.hand %= self.oldest_first.len();
            let (slot, asked) = self.oldest_first[self.hand];
            if !asked && may_go(slot) {
                self.oldest_first.remove(self.hand);
                return Some(slot);
            }
            self.oldest_first[self.hand].1 = false;
            self.hand += 1;
        }
        None
    }
}

/// The last victims' keys; one that was taken out leaves its place empty.
struct DullGhosts {
    last: Vec<Option<u64>>,
    capacity: usize,
}

impl DullGhosts {
    fn add(&mut self, key: u64) {
        self.take(key);
        self.last.push(Some(key));
        let faded = self.last.len().saturating_sub(self.capacity);
        self.last.drain(..faded);
    }
    fn take(&mut self, key: u64) -> bool {
        let ghost = self.last.iter_mut().find(|ghost| **ghost == Some(key));
        ghost.is_some_and(|ghost| ghost.take().is_some())
    }
}

struct DullTwoQueues {
    slots: u32,
    /// Slots and their keys, the oldest first.
    newcomers: Vec<(u32, u64)>,
    proven: Vec<u32>,
    ghosts: DullGhosts,
}

impl DullTwoQueues {
    fn newcomer(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let at = self.newcomers.iter().position(|(slot, _)| may_go(*slot))?;
        let (slot, key) = self.newcomers.remove(at);
        self.ghosts.add(key);
        Some(slot)
    }
    fn proven(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let at = self.proven.iter().position(|slot| may_go(*slot))?;
        Some(self.proven.remove(at))
    }
}

impl Evict for DullTwoQueues {
    fn slots(&self) -> u32 {
        self.slots
    }
    fn insert(&mut self, slot: u32, key: u64) {
        if self.ghosts.take(key) { self.proven.push(slot) } else { self.newcomers.push((slot, key)) }
    }
    fn touch(&mut self, slot: u32) {
        if let Some(at) = self.proven.iter().position(|known| *known == slot) {
            self.proven.remove(at);
            self.proven.push(slot);
        }
    }
    fn remove(&mut self, slot: u32) {
        self.proven.retain(|known| *known != slot);
        self.newcomers.retain(|(known, _)| *known != slot);
    }
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        if self.newcomers.len() > self.slots as usize / 4 {
            self.newcomer(may_go).or_else(|| self.proven(may_go))
        } else {
            self.proven(may_go).or_else(|| self.newcomer(may_go))
        }
    }
}

/// A slot, its key, and how often it was asked for.
type Counted = (u32, u64, u8);

struct DullS3Fifo {
    slots: u32,
    small: Vec<Counted>,
    main: Vec<Counted>,
    ghosts: DullGhosts,
}

impl DullS3Fifo {
    fn of_small(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let mut at = 0;
        while at < self.small.len() {
            let (slot, key, asked) = self.small[at];
            if asked >= 2 {
                self.small.remove(at);
                self.main.push((slot, key, 0));
            } else if may_go(slot) {
                self.small.remove(at);
                self.ghosts.add(key);
                return Some(slot);
            } else {
                at += 1;
            }
        }
        None
    }
    fn of_main(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let mut at = 0;
        while at < self.main.len() {
            let (slot, key, asked) = self.main[at];
            if asked > 0 {
                self.main.remove(at);
                self.main.push((slot, key, asked - 1));
            } else if may_go(slot) {
                self.main.remove(at);
                return Some(slot);
            } else {
                at += 1;
            }
        }
        None
    }
}

impl Evict for DullS3Fifo {
    fn slots(&self) -> u32 {
        self.slots
    }
    fn insert(&mut self, slot: u32, key: u64) {
        if self.ghosts.take(key) { self.main.push((slot, key, 0)) } else { self.small.push((slot, key, 0)) }
    }
    fn touch(&mut self, slot: u32) {
        let all = self.small.iter_mut().chain(&mut self.main);
        all.filter(|(known, ..)| *known == slot).for_each(|(.., asked)| *asked = (*asked + 1).min(3));
    }
    fn remove(&mut self, slot: u32) {
        self.small.retain(|(known, ..)| *known != slot);
        self.main.retain(|(known, ..)| *known != slot);
    }
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let many = self.small.len() > self.slots as usize / 10;
        let newcomer = if many { self.of_small(may_go) } else { None };
        let either = newcomer.or_else(|| self.of_main(may_go)).or_else(|| self.of_small(may_go));
        either.or_else(|| self.of_main(may_go))
    }
}
