//! A list of slots by their last use, with every operation in constant time: links in an array, as
//! the kernel's caches have them.

use super::Slot;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

/// Slots in the order of their last use. A slot is in it once or not at all.
#[derive(Debug)]
pub(super) struct UseOrder {
    links: Box<[Option<Links>]>,
    newest: u32,
    oldest: u32,
}

impl UseOrder {
    /// An empty list that can hold slots `0..slots`.
    pub(super) fn new(slots: u32) -> UseOrder {
        UseOrder { links: vec![None; slots as usize].into(), newest: NONE, oldest: NONE }
    }

    /// Makes `slot` the newest.
    pub(super) fn touch(&mut self, slot: Slot) {
        self.remove(slot);
        self.links[slot.0 as usize] = Some(Links { newer: NONE, older: self.newest });
        match self.newest {
            NONE => self.oldest = slot.0,
            newest => self.at(newest).newer = slot.0,
        }
        self.newest = slot.0;
    }

    /// Takes `slot` out; true if it was in.
    pub(super) fn remove(&mut self, slot: Slot) -> bool {
        let Some(Links { newer, older }) = self.links[slot.0 as usize].take() else { return false };
        match newer {
            NONE => self.newest = older,
            newer => self.at(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.at(older).newer = newer,
        }
        true
    }

    /// The slot used longest ago.
    pub(super) fn oldest(&self) -> Option<Slot> {
        (self.oldest != NONE).then_some(Slot(self.oldest))
    }

    /// Whether `slot` is in it.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.links[slot.0 as usize].is_some()
    }

    /// Bytes of its links.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.links)
    }

    fn at(&mut self, slot: u32) -> &mut Links {
        self.links[slot as usize].as_mut().expect("a neighbour is in the list")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_oldest(list: &UseOrder) -> Vec<u32> {
        let newer = |slot: &u32| list.links[*slot as usize].map(|links| links.newer).filter(|newer| *newer != NONE);
        std::iter::successors(list.oldest().map(|slot| slot.0), newer).collect()
    }

    #[test]
    fn the_order_is_that_of_the_last_use() {
        let mut list = UseOrder::new(8);
        assert_eq!(list.oldest(), None);
        [3, 1, 4, 1, 5, 3].into_iter().for_each(|slot| list.touch(Slot(slot)));
        assert_eq!(from_oldest(&list), [4, 1, 5, 3]);
        assert!(list.remove(Slot(5)) && !list.remove(Slot(5)) && !list.remove(Slot(7)));
        assert!(list.has(Slot(4)) && !list.has(Slot(5)));
        assert_eq!(from_oldest(&list), [4, 1, 3]);
        assert!([4, 3, 1].into_iter().all(|slot| list.remove(Slot(slot))));
        assert_eq!(list.oldest(), None);
        list.touch(Slot(0));
        assert_eq!(from_oldest(&list), [0]);
    }
}
