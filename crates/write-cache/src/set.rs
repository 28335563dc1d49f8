//! Sets: each has a write-back queue, linked through its slots.

use tidegate_media::sync::{AtomicU32, Mutex, Ordering};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// For each slot, the next one in the queue or in the free set that it is in, and its position in
/// the queue.
///
/// Whoever holds the queue's lock, or owns the slot, uses them: so every access is relaxed.
#[derive(Debug)]
pub(crate) struct Links(Box<[Link]>);

#[derive(Debug)]
struct Link {
    next: AtomicU32,
    position: AtomicU32,
}

impl Links {
    /// Bytes for each slot.
    pub(crate) const BYTES_EACH: usize = size_of::<Link>();

    pub(crate) fn new(slots: u32) -> Links {
        Links((0..slots).map(|_| Link { next: AtomicU32::new(NONE), position: AtomicU32::new(0) }).collect())
    }

    pub(crate) fn next(&self, slot: u32) -> u32 {
        self.0[slot as usize].next.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next(&self, slot: u32, next: u32) {
        self.0[slot as usize].next.store(next, Ordering::Relaxed);
    }

    /// The slot is about to be linked.
    pub(crate) fn prefetch_for_store(&self, slot: u32) {
        tidegate_media::prefetch_for_store(&self.0[slot as usize]);
    }

    fn position(&self, slot: u32) -> u32 {
        self.0[slot as usize].position.load(Ordering::Relaxed)
    }

    fn set_position(&self, slot: u32, position: u32) {
        self.0[slot as usize].position.store(position, Ordering::Relaxed);
    }
}

/// A set, on a cache line of its own and no more.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Set {
    /// Held by the one who evicts from this set. Taken before `queue`, never while it is held.
    pub(crate) draining: Mutex<()>,
    pub(crate) queue: Mutex<Queue>,
}

const _: () = assert!(cfg!(shuttle) || size_of::<Set>() == 64);

/// A place in a queue. Places are compared by their distance, as the number wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position(u32);

impl Position {
    fn is_after(self, other: Position) -> bool {
        self.0 != other.0 && self.0.wrapping_sub(other.0) < 1 << 31
    }
}

/// The slots of a set that are not yet in the device, oldest first.
#[derive(Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    next_position: u32,
    /// Whether the head is being written to the device.
    evicting: bool,
    /// Versions given so far; no other set gives the same ones.
    version: u64,
    pub(crate) cached: u64,
    pub(crate) read_hits: u64,
}

/// What became of a slot that was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    /// It is the only one.
    First,
    /// It stands behind others.
    Behind,
    /// It stands in the place of this slot, which nobody links any more.
    InPlaceOf(u32),
}

impl Set {
    /// Set number `index`.
    pub(crate) fn new(index: u64) -> Set {
        let queue = Queue {
            head: NONE,
            tail: NONE,
            next_position: 0,
            evicting: false,
            version: index,
            cached: 0,
            read_hits: 0,
        };
        Set { draining: Mutex::new(()), queue: Mutex::new(queue) }
    }
}

impl Queue {
    /// A version greater than all before; `sets` is how many sets there are.
    pub(crate) fn next_version(&mut self, sets: u64) -> u64 {
        self.version += sets;
        self.version
    }

    /// The slots from the oldest to the newest.
    pub(crate) fn slots<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + use<'a> {
        let some = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(some(self.head), move |slot| some(links.next(*slot)))
    }

    /// Links `slot`: in the place of `old`, a slot of this queue, unless that is being evicted;
    /// else at the end.
    pub(crate) fn link(&mut self, links: &Links, slot: u32, old: Option<u32>) -> Linked {
        self.cached += 1;
        if let Some(old) = old
            && !(self.evicting && old == self.head)
        {
            self.replace(links, old, slot);
            return Linked::InPlaceOf(old);
        }
        links.set_next(slot, NONE);
        links.set_position(slot, self.next_position);
        self.next_position = self.next_position.wrapping_add(1);
        let before = std::mem::replace(&mut self.tail, slot);
        if before == NONE {
            self.head = slot;
            return Linked::First;
        }
        links.set_next(before, slot);
        Linked::Behind
    }

    fn replace(&mut self, links: &Links, old: u32, slot: u32) {
        links.set_next(slot, links.next(old));
        links.set_position(slot, links.position(old));
        match self.slots(links).find(|before| links.next(*before) == old) {
            Some(before) => links.set_next(before, slot),
            None => self.head = slot,
        }
        if self.tail == old {
            self.tail = slot;
        }
    }

    /// The place of the newest slot.
    pub(crate) fn last(&self, links: &Links) -> Option<Position> {
        (self.tail != NONE).then(|| Position(links.position(self.tail)))
    }

    /// The place of `slot`.
    pub(crate) fn place(links: &Links, slot: u32) -> Position {
        Position(links.position(slot))
    }

    /// The head is being evicted from now on, if it stands no later than `through`.
    pub(crate) fn begin_eviction(&mut self, links: &Links, through: Option<Position>) -> Option<u32> {
        let head = (self.head != NONE).then_some(self.head)?;
        if through.is_some_and(|through| Queue::place(links, head).is_after(through)) {
            return None;
        }
        self.evicting = true;
        Some(head)
    }

    /// The eviction of the head failed: it stays.
    pub(crate) fn abandon_eviction(&mut self) {
        self.evicting = false;
    }

    /// The head is in the device: unlinks it. Returns whether the queue is empty now.
    pub(crate) fn end_eviction(&mut self, links: &Links) -> bool {
        self.evicting = false;
        self.head = links.next(self.head);
        if self.head == NONE {
            self.tail = NONE;
        }
        self.head == NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &Queue, links: &Links) -> Vec<u32> {
        queue.slots(links).collect()
    }

    #[test]
    fn a_slot_in_the_place_of_another_keeps_its_place() {
        let (links, set) = (Links::new(8), Set::new(0));
        let mut queue = set.queue.lock();
        assert_eq!(queue.link(&links, 0, None), Linked::First);
        assert_eq!(queue.link(&links, 1, None), Linked::Behind);
        assert_eq!(queue.link(&links, 2, None), Linked::Behind);
        let last = queue.last(&links).unwrap();
        assert_eq!(queue.link(&links, 3, Some(1)), Linked::InPlaceOf(1));
        assert_eq!(order(&queue, &links), [0, 3, 2]);
        assert_eq!(queue.link(&links, 4, Some(2)), Linked::InPlaceOf(2));
        assert_eq!(queue.last(&links), Some(last), "a flush that began before covers it");
        assert_eq!(queue.link(&links, 5, Some(0)), Linked::InPlaceOf(0));
        assert_eq!(order(&queue, &links), [5, 3, 4]);
        assert_eq!(queue.link(&links, 6, None), Linked::Behind);
        let evicted: Vec<u32> = std::iter::from_fn(|| {
            let head = queue.begin_eviction(&links, Some(last))?;
            queue.end_eviction(&links);
            Some(head)
        })
        .collect();
        assert_eq!(evicted, [5, 3, 4]);
        assert_eq!(order(&queue, &links), [6]);
    }

    #[test]
    fn nothing_takes_the_place_of_a_slot_being_evicted() {
        let (links, set) = (Links::new(8), Set::new(0));
        let mut queue = set.queue.lock();
        queue.link(&links, 0, None);
        assert_eq!(queue.begin_eviction(&links, None), Some(0));
        assert_eq!(queue.link(&links, 1, Some(0)), Linked::Behind);
        queue.abandon_eviction();
        assert_eq!(order(&queue, &links), [0, 1]);
        queue.begin_eviction(&links, None);
        assert!(!queue.end_eviction(&links));
        queue.begin_eviction(&links, None);
        assert!(queue.end_eviction(&links));
        assert_eq!(queue.last(&links), None);
    }

    #[test]
    fn positions_may_wrap() {
        assert!(Position(2).is_after(Position(u32::MAX)));
        assert!(!Position(u32::MAX).is_after(Position(2)));
        assert!(!Position(7).is_after(Position(7)));
    }
}
