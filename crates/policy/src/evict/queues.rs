//! Queues of slots, each slot in one of them or in none, with a small mark.

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes that a slot takes here.
pub(crate) const LINK_BYTES: usize = size_of::<Link>();

/// A slot's place.
#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
    /// The queue it is in, counted from 1; 0: none.
    home: u8,
    /// What the policy remembers of it.
    mark: u8,
}

/// The ends of a queue.
#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    len: u32,
}

/// `N` queues over one row of slots.
pub(crate) struct Queues<const N: usize> {
    links: Box<[Link]>,
    ends: [Ends; N],
}

impl<const N: usize> Queues<N> {
    pub(crate) fn new(slots: u32) -> Queues<N> {
        let link = Link { newer: NONE, older: NONE, home: 0, mark: 0 };
        let ends = Ends { newest: NONE, oldest: NONE, len: 0 };
        Queues { links: vec![link; slots as usize].into(), ends: [ends; N] }
    }

    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.links.len()).expect("made from a u32")
    }

    /// The queue that `slot` is in.
    pub(crate) fn home(&self, slot: u32) -> Option<usize> {
        usize::from(self.links[slot as usize].home).checked_sub(1)
    }

    pub(crate) fn len(&self, queue: usize) -> u32 {
        self.ends[queue].len
    }

    pub(crate) fn oldest(&self, queue: usize) -> u32 {
        self.ends[queue].oldest
    }

    /// The slot that came after `slot` in its queue.
    pub(crate) fn newer(&self, slot: u32) -> u32 {
        self.links[slot as usize].newer
    }

    pub(crate) fn mark(&self, slot: u32) -> u8 {
        self.links[slot as usize].mark
    }

    pub(crate) fn set_mark(&mut self, slot: u32, mark: u8) {
        self.links[slot as usize].mark = mark;
    }

    /// Puts `slot`, which is in no queue, at the newest end of `queue`.
    pub(crate) fn push(&mut self, queue: usize, slot: u32) {
        let ends = &mut self.ends[queue];
        let older = std::mem::replace(&mut ends.newest, slot);
        ends.len += 1;
        if older == NONE {
            ends.oldest = slot;
        } else {
            self.links[older as usize].newer = slot;
        }
        let home = u8::try_from(queue + 1).expect("a few queues");
        let link = &mut self.links[slot as usize];
        *link = Link { newer: NONE, older, home, mark: link.mark };
    }

    /// Takes `slot` out of its queue; its mark is 0 from now on. Whether it was in one.
    pub(crate) fn take(&mut self, slot: u32) -> bool {
        let Some(queue) = self.home(slot) else { return false };
        let Link { newer, older, .. } = self.links[slot as usize];
        let ends = &mut self.ends[queue];
        ends.len -= 1;
        match newer {
            NONE => ends.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.ends[queue].oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        self.links[slot as usize] = Link { newer: NONE, older: NONE, home: 0, mark: 0 };
        true
    }

    /// The oldest slot of `queue` that `may_go` lets go.
    pub(crate) fn oldest_that(&self, queue: usize, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let mut slot = self.oldest(queue);
        while slot != NONE && !may_go(slot) {
            slot = self.newer(slot);
        }
        (slot != NONE).then_some(slot)
    }
}
