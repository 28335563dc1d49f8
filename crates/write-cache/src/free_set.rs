//! The global free set: two stacks of slots, changed by compare-and-swap only.
//!
//! Slots are taken from the one and given back to the other, which takes the first one's place when
//! that is empty. So writers and who drains change different lines, and all slots that may be in
//! use are used in turn: the lines of the slot freed last are still in the cache of whoever drained
//! it, and cost a writer more than those that have left it. The tops carry tags that change with
//! every change, so that a slow thread never takes a top for the one it saw before.

use crate::set::{Links, NONE};
use tidegate_media::sync::{AtomicU64, Mutex, Ordering};

/// Slots that hold nothing.
#[derive(Debug)]
pub(crate) struct FreeSet {
    /// Those to take next. Whoever adds to them holds `turning`, and adds only where there are
    /// none.
    ready: Stack,
    /// Those that came back since there were none of these.
    returned: Stack,
    turning: Mutex<()>,
}

/// On lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Stack {
    /// Tag in the upper half, slot in the lower.
    top: AtomicU64,
}

/// Slots to be freed together.
#[derive(Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    pub(crate) fn new() -> Chain {
        Chain { first: NONE, last: NONE, len: 0 }
    }

    /// Adds a slot that nobody else uses.
    pub(crate) fn add(&mut self, links: &Links, slot: u32) {
        links.set_next(slot, self.first);
        if self.first == NONE {
            self.last = slot;
        }
        self.first = slot;
        self.len += 1;
    }

    /// Takes out the slot that was added last.
    pub(crate) fn pop(&mut self, links: &Links) -> Option<u32> {
        let slot = (self.first != NONE).then_some(self.first)?;
        self.first = links.next(slot);
        self.len -= 1;
        Some(slot)
    }

    /// How many slots there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

impl FreeSet {
    pub(crate) fn new() -> FreeSet {
        FreeSet { ready: Stack::new(), returned: Stack::new(), turning: Mutex::new(()) }
    }

    /// Takes a slot, if there is one. While another thread turns the stacks round it may find none
    /// although there are some.
    pub(crate) fn pop(&self, links: &Links) -> Option<u32> {
        self.ready.pop(links).or_else(|| self.turn(links))
    }

    /// Gives back all slots of `chain`.
    pub(crate) fn push(&self, links: &Links, chain: &mut Chain) {
        let chain = std::mem::replace(chain, Chain::new());
        if chain.first != NONE {
            self.returned.push(links, &chain);
        }
    }

    /// Takes a slot of those that came back, and makes the others those to take next.
    #[cold]
    fn turn(&self, links: &Links) -> Option<u32> {
        // No lock for those who meet a full cache.
        if self.returned.is_empty() {
            return None;
        }
        let _turning = self.turning.lock();
        // Another thread may have turned them since this one looked.
        if let Some(slot) = self.ready.pop(links) {
            return Some(slot);
        }
        let slot = self.returned.take_all()?;
        self.ready.fill(links.next(slot));
        Some(slot)
    }
}

impl Stack {
    fn new() -> Stack {
        Stack { top: AtomicU64::new(u64::from(NONE)) }
    }

    fn is_empty(&self) -> bool {
        // Relaxed: what is there is looked at again by who takes it.
        slot_of(self.top.load(Ordering::Relaxed)) == NONE
    }

    fn pop(&self, links: &Links) -> Option<u32> {
        // Acquire pairs with the Release of `push` and `fill`: the slot's link and header are as
        // its last user left them.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let slot = slot_of(top);
            if slot == NONE {
                return None;
            }
            // The slot may be taken and linked elsewhere meanwhile; then the tag has changed and
            // the swap fails.
            let next = tagged(top, links.next(slot));
            match self.top.compare_exchange(top, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => top = now,
            }
        }
    }

    fn push(&self, links: &Links, chain: &Chain) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            links.set_next(chain.last, slot_of(top));
            match self.top.compare_exchange(top, tagged(top, chain.first), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes the slot on top with all that are linked behind it.
    fn take_all(&self) -> Option<u32> {
        // Acquire as for `pop`.
        let mut top = self.top.load(Ordering::Acquire);
        while slot_of(top) != NONE {
            match self.top.compare_exchange(top, tagged(top, NONE), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(slot_of(top)),
                Err(now) => top = now,
            }
        }
        None
    }

    /// Puts `first`, and all that are linked behind it, where there are none. The caller is the
    /// only one to do so.
    fn fill(&self, first: u32) {
        // Relaxed: nobody changes the top of a stack that is empty.
        let empty = self.top.load(Ordering::Relaxed);
        debug_assert_eq!(slot_of(empty), NONE, "who turns the stacks found none");
        self.top.store(tagged(empty, first), Ordering::Release);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is the slot")]
fn slot_of(top: u64) -> u32 {
    top as u32
}

fn tagged(before: u64, slot: u32) -> u64 {
    ((before >> 32).wrapping_add(1)) << 32 | u64::from(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain_of(links: &Links, slots: &[u32]) -> Chain {
        let mut chain = Chain::new();
        slots.iter().for_each(|slot| chain.add(links, *slot));
        chain
    }

    #[test]
    fn slots_that_come_back_are_taken_when_the_others_are() {
        let (links, free) = (Links::new(5), FreeSet::new());
        assert_eq!(free.pop(&links), None);
        let mut chain = chain_of(&links, &[0, 1, 2, 3, 4]);
        assert_eq!(chain.len(), 5);
        free.push(&links, &mut chain);
        let take = |count: usize| -> Vec<u32> { (0..count).filter_map(|_| free.pop(&links)).collect() };
        assert_eq!(take(2), [4, 3]);
        free.push(&links, &mut chain_of(&links, &[3, 4]));
        assert_eq!(take(2), [2, 1]);
        free.push(&links, &mut chain_of(&links, &[1]));
        assert_eq!(take(4), [0, 1, 4, 3]);
        assert_eq!(free.pop(&links), None);
    }
}
