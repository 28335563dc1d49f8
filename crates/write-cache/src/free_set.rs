//! The global free set: a stack of slots, changed by compare-and-swap only.
//!
//! The slot freed last is taken first: a cache that is drained as fast as it is filled lives in few slots, which stay warm.
//! The top carries a tag that changes with every change, so that a slow thread never takes a top for the one it saw before.

use crate::set::{Links, NONE};
use tidegate_media::sync::{AtomicU64, Ordering};

/// Slots that hold nothing. On lines of its own, as every writer and whoever drains change it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct FreeSet {
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
        FreeSet { top: AtomicU64::new(u64::from(NONE)) }
    }

    /// Takes a slot, if there is one.
    pub(crate) fn pop(&self, links: &Links) -> Option<u32> {
        // Acquire pairs with the Release of `push`: the slot's link and header are as its last user left them.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let slot = slot_of(top);
            if slot == NONE {
                return None;
            }
            // The slot may be taken and linked elsewhere meanwhile; then the tag has changed and the swap fails.
            let next = tagged(top, links.next(slot));
            match self.top.compare_exchange(top, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => top = now,
            }
        }
    }

    /// Gives back all slots of `chain`.
    pub(crate) fn push(&self, links: &Links, chain: &mut Chain) {
        let chain = std::mem::replace(chain, Chain::new());
        if chain.first == NONE {
            return;
        }
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            links.set_next(chain.last, slot_of(top));
            match self.top.compare_exchange(top, tagged(top, chain.first), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
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

    #[test]
    fn the_slot_freed_last_is_taken_first() {
        let (links, free) = (Links::new(4), FreeSet::new());
        assert_eq!(free.pop(&links), None);
        let mut chain = Chain::new();
        (0..4).for_each(|slot| chain.add(&links, slot));
        assert_eq!(chain.len(), 4);
        free.push(&links, &mut chain);
        assert_eq!([free.pop(&links), free.pop(&links)], [Some(3), Some(2)]);
        chain.add(&links, 3);
        free.push(&links, &mut chain);
        assert_eq!([3, 1, 0].map(Some), [(); 3].map(|()| free.pop(&links)));
        assert_eq!(free.pop(&links), None);
    }
}
