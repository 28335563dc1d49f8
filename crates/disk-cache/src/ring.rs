//! The ring: what transactions of several blocks do to entries, durable before it counts.
//!
//! One lock guards the ring; whoever commits holds it over both fences and until the entries are stored. Elements between the cursors are
//! *unretired*: their entries are stored, and flushed by nobody yet. A commit that finds too many of them flushes the lines of the
//! oldest before its first fence, and moves the tail with its head. So retiring costs no fence of its own.

use crate::medium::Medium;
use std::collections::VecDeque;
use tidegate_layout::disk_cache::{CacheEntry, RingElement};
use tidegate_media::{Region, Sealed};

/// An entry on its way to another block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) lba: u64,
    pub(crate) entry: u32,
    /// The block that it comes to name.
    pub(crate) block: u32,
    /// Its counter then.
    pub(crate) counter: u16,
    /// Whether it was free, so that its first word has to be stored too.
    pub(crate) fresh: bool,
}

/// The ring's cursors, and the entries that unretired elements name.
pub(crate) struct Ring {
    head: u64,
    unretired: VecDeque<u32>,
}

/// How many steps an entry's counter goes before everything older is retired. An unretired element is never so far behind its entry that
/// the two could not be compared.
pub(crate) const COUNTER_STRIDE: u16 = 1 << 12;

impl Ring {
    /// A ring without unretired elements.
    pub(crate) fn new(head: u64) -> Ring {
        Ring { head, unretired: VecDeque::new() }
    }

    /// Commits `moves`, whose data this thread has streamed: two fences. `Err`: nothing has changed if the first one failed, and nobody knows
    /// if the second did; the region is sealed either way.
    pub(crate) fn commit<R: Region>(&mut self, medium: &Medium<R>, moves: &[Move]) -> Result<(), Sealed> {
        let elements: Vec<RingElement> =
            moves.iter().map(|to| RingElement::new(to.entry, to.lba, to.block, to.counter)).collect();
        medium.stream_elements(self.head, &elements);
        if medium.words_overtake() {
            for to in moves.iter().filter(|to| to.fresh) {
                medium.store_lba(to.entry, to.lba);
                medium.flush_entry(to.entry);
            }
        }
        let retired = self.to_retire(medium, moves);
        self.unretired.range(..retired).for_each(|entry| medium.flush_entry(*entry));
        medium.fence()?;
        self.unretired.drain(..retired);
        self.head += moves.len() as u64;
        medium.store_head(self.head);
        medium.store_tail(self.head - (self.unretired.len() + moves.len()) as u64);
        medium.flush_cursors();
        medium.fence()?;
        for to in moves {
            if to.fresh {
                medium.store_lba(to.entry, to.lba);
            }
            medium.store_state(to.entry, CacheEntry::holding_word(to.block, to.counter, false));
            self.unretired.push_back(to.entry);
        }
        Ok(())
    }

    /// Makes every entry durable, so that no element counts any more: two fences, or none if there is nothing to do.
    pub(crate) fn retire<R: Region>(&mut self, medium: &Medium<R>) -> Result<(), Sealed> {
        if self.unretired.is_empty() {
            return Ok(());
        }
        self.unretired.iter().for_each(|entry| medium.flush_entry(*entry));
        medium.fence()?;
        self.unretired.clear();
        medium.store_tail(self.head);
        medium.flush_cursors();
        medium.fence()
    }

    /// How many of the oldest elements go by a commit of `moves`: so many that half of the ring stays free for the next one.
    fn to_retire<R>(&self, medium: &Medium<R>, moves: &[Move]) -> usize {
        if moves.iter().any(|to| to.counter.is_multiple_of(COUNTER_STRIDE)) {
            return self.unretired.len();
        }
        let kept_max = medium.plan.ring_slots as usize / 2;
        (self.unretired.len() + moves.len()).saturating_sub(kept_max).min(self.unretired.len())
    }
}
