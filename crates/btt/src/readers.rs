//! Read tracking: which blocks are being copied out, so that no writer reuses one of them meanwhile.
//!
//! 1. A reader publishes the block it read from the map, then reads the map again. If the entry is the same, every writer that frees
//!    the block later sees the publication; otherwise the reader tries again with the new entry.
//! 2. A writer that is about to stream into its free block waits until no reader has it published.
//! 3. No place that was ever taken lies behind the first `taken`. A writer looks at those only: a look at each of them costs it a fifth of the time of
//!    a streamed block.
//!
//! Both sides store, then load what the other stores, so both have a sequentially consistent fence in between: the
//! reader between its publication (and `taken`) and its second look at the map, the writer between replacing the map entry
//! that freed the block and its look at the publications.

use crate::padded::Padded;
use tidegate_media::sync::{AtomicU32, AtomicU64, Ordering, fence, fence_after_lock, yield_now};

const UNUSED: u64 = 0;

/// A block of one of the volume's arenas, as readers publish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockKey(u64);

impl BlockKey {
    pub(crate) fn new(arena: usize, block: u32) -> BlockKey {
        BlockKey(((arena as u64) << 32 | u64::from(block)) + 1)
    }
}

/// Places in which readers publish their blocks.
pub(crate) struct Readers {
    places: Box<[Padded<AtomicU64>]>,
    /// How many places from the first on a writer has to look at. It only grows.
    taken: Padded<AtomicU32>,
}

/// A published block; withdrawn when dropped.
pub(crate) struct Reading<'a> {
    place: &'a AtomicU64,
}

impl Readers {
    /// Room for `count` readers at once; more than that wait for each other.
    pub(crate) fn new(count: u32) -> Readers {
        Readers { places: (0..count.max(1)).map(|_| Padded::default()).collect(), taken: Padded::default() }
    }

    /// Publishes that the calling thread, `token`, reads `key`.
    pub(crate) fn publish(&self, token: u32, key: BlockKey) -> Reading<'_> {
        let first = token as usize % self.places.len();
        loop {
            for nth in (first..self.places.len()).chain(0..first) {
                let place = &self.places[nth];
                // Pairs with the Release store of `withdraw`; SeqCst orders it before the second look at the map.
                if place.load(Ordering::Relaxed) == UNUSED
                    && place.compare_exchange(UNUSED, key.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
                {
                    let taken = u32::try_from(nth + 1).expect("as many as were asked for");
                    if self.taken.load(Ordering::Relaxed) < taken {
                        self.taken.fetch_max(taken, Ordering::SeqCst);
                    }
                    fence(Ordering::SeqCst);
                    return Reading { place };
                }
            }
            yield_now();
        }
    }

    /// Waits until nobody reads `key`, a block that the map no longer names. The caller holds the lane that owns it, and so took
    /// the lane's lock after the map's entry was replaced.
    pub(crate) fn wait_until_unread(&self, key: BlockKey) {
        fence_after_lock();
        // Relaxed: the fence before orders it after the map's entry was replaced.
        let taken = self.taken.load(Ordering::Relaxed);
        for place in &self.places[..taken as usize] {
            // Acquire pairs with the Release of a reader that withdraws: its copy is over before the block changes.
            while place.load(Ordering::Acquire) == key.0 {
                yield_now();
            }
        }
    }
}

impl Reading<'_> {
    /// Publishes `key` instead, after the map turned out to have changed.
    pub(crate) fn republish(&self, key: BlockKey) {
        self.place.store(key.0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Release: the copy is done. Pairs with the Acquire load of `wait_until_unread`.
        self.place.store(UNUSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_only_for_its_own_block() {
        let readers = Readers::new(2);
        let reading = readers.publish(0, BlockKey::new(0, 7));
        readers.wait_until_unread(BlockKey::new(0, 8));
        readers.wait_until_unread(BlockKey::new(1, 7));
        reading.republish(BlockKey::new(0, 9));
        readers.wait_until_unread(BlockKey::new(0, 7));
        drop(reading);
        readers.wait_until_unread(BlockKey::new(0, 9));
    }

    #[test]
    #[cfg(not(any(shuttle, virtual_cores)))]
    fn no_place_is_overlooked_when_many_are_taken_for_the_first_time_at_once() {
        let rounds: Vec<_> = (0..20_000).map(|_| Readers::new(2)).collect();
        let arrived = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for token in 0..2 {
                let (rounds, arrived) = (&rounds, &arrived);
                scope.spawn(move || {
                    for (readers, turn) in rounds.iter().zip(1..) {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        // Awake for as long as the other may be about to come: both are to begin within nanoseconds.
                        for looks in 0.. {
                            match arrived.load(Ordering::SeqCst) < 2 * turn {
                                true if looks < 1000 => std::hint::spin_loop(),
                                true => yield_now(),
                                false => break,
                            }
                        }
                        drop(readers.publish(token, BlockKey::new(0, 0)));
                    }
                });
            }
        });
        assert!(rounds.iter().all(|readers| readers.taken.load(Ordering::Relaxed) == 2));
    }

    #[test]
    fn readers_take_places_of_their_own() {
        let readers = Readers::new(2);
        let key = BlockKey::new(0, 0);
        let (first, second) = (readers.publish(0, key), readers.publish(2, key));
        assert!(!std::ptr::eq(first.place, second.place));
    }
}
