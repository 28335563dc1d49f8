//! The map of one arena: entries of 4 bytes, stored as halves of aligned 8-byte words, and locked
//! by stripes: every 1024th word.
//!
//! 1. A word of the map is stored to only under its stripe's lock; readers load it without.
//! 2. A stripe remembers the last store to its words that may not be durable yet, and which lane
//!    made it. A lane that logs an entry it read there makes that store durable by the same fence.
//! 3. A stripe counts the entries that were replaced, behind each. Whoever copied a block out looks
//!    whether the count is what it was.

use crate::lanes::{LaneStore, Lanes, Padded};
use tidegate_layout::btt::MapEntry;
use tidegate_media::sync::{AtomicU64, Ordering, SpinGuard, SpinLock, fence};
use tidegate_media::{Poison, Region};

/// What is stored at once: two entries.
const MAP_WORD_BYTES: u64 = 8;

/// More stripes, fewer lanes that meet; each is one line of DRAM.
const STRIPES: u64 = 1024;

/// The words of one arena's map: locks over them for writers, and for readers how often an entry
/// was replaced.
pub(crate) struct Stripes {
    stripes: Box<[Padded<MapStripe>]>,
}

/// Some words of the map.
#[derive(Debug, Default)]
struct MapStripe {
    last: SpinLock<Option<LaneStore>>,
    /// Grows after each replacement; changed under the lock only.
    replacements: AtomicU64,
}

/// How many replacements a stripe had seen.
#[derive(Clone, Copy)]
pub(crate) struct Replacements(u64);

/// A locked stripe of the map.
pub(crate) struct LockedStripe<'a> {
    last: SpinGuard<'a, Option<LaneStore>>,
    replacements: &'a AtomicU64,
}

impl Stripes {
    pub(crate) fn new() -> Stripes {
        Stripes { stripes: (0..STRIPES).map(|_| Padded::default()).collect() }
    }

    /// Locks the stripe that the entry at `at` lies in.
    #[track_caller]
    pub(crate) fn lock(&self, at: u64) -> LockedStripe<'_> {
        let stripe = self.of(at);
        LockedStripe { last: stripe.last.lock(), replacements: &stripe.replacements }
    }

    /// How often entries of the stripe of the entry at `at` were replaced. To be asked before the
    /// entry is loaded.
    pub(crate) fn replacements(&self, at: u64) -> Replacements {
        // Acquire pairs with the Release of `replace`: who sees the count sees the entry that it
        // counts.
        Replacements(self.of(at).replacements.load(Ordering::Acquire))
    }

    /// Whether no entry of the stripe was replaced since it had seen `before`, so that no block
    /// that its entries named then was written to before this call.
    #[track_caller]
    pub(crate) fn unchanged_since(&self, at: u64, before: Replacements) -> bool {
        // Pairs with the fence before a block is streamed to: who copied one byte of that finds the
        // count as it was at that fence, or later.
        fence(Ordering::Acquire);
        self.of(at).replacements.load(Ordering::Relaxed) == before.0
    }

    fn of(&self, at: u64) -> &MapStripe {
        let stripe = at / MAP_WORD_BYTES % STRIPES;
        &self.stripes[usize::try_from(stripe).expect("less than STRIPES")]
    }
}

impl LockedStripe<'_> {
    /// Flushes what another lane than `lane` stored to this stripe last, if no fence of that lane
    /// has made it durable; the fence of the caller's data then does. Every earlier such store was
    /// settled before the one remembered was made.
    #[inline]
    pub(crate) fn settle<R: Region>(&self, region: &R, lanes: &Lanes, lane: u32) {
        if let Some(store) = *self.last
            && store.lane != lane
            && !lanes.fenced_since(store.lane, store.fences)
        {
            region.flush(store.at, 8);
        }
    }

    /// Stores `word`, whose entry names another block than before, and says where. Readers who
    /// began before find out.
    #[inline]
    pub(crate) fn replace<R: Region>(&self, region: &R, word: MapWord) -> u64 {
        let at = word.store(region);
        // A plain store: the lock is held. Release: behind the entry, so that nobody takes the new
        // count and the old entry.
        self.replacements.store(self.replacements.load(Ordering::Relaxed) + 1, Ordering::Release);
        at
    }

    /// Remembers `store`, not fenced.
    #[inline]
    pub(crate) fn remember(&mut self, store: LaneStore) {
        *self.last = Some(store);
    }
}

/// The aligned word of the map that holds an entry, as loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapWord {
    /// Where the entry lies in the region.
    at: u64,
    word: u64,
}

impl MapWord {
    /// Loads the word that holds the entry at `at`.
    #[track_caller]
    pub(crate) fn load<R: Region + ?Sized>(region: &R, at: u64) -> Result<MapWord, Poison> {
        Ok(MapWord { at, word: region.load_u64(at & !7)? })
    }

    /// The entry.
    #[expect(clippy::cast_possible_truncation, reason = "the entry is half of the word")]
    pub(crate) fn entry(self) -> MapEntry {
        MapEntry::from_raw((self.word >> self.shift()) as u32)
    }

    /// Returns this word with another entry.
    pub(crate) fn with(self, entry: MapEntry) -> MapWord {
        let others = self.word & !(u64::from(u32::MAX) << self.shift());
        MapWord { word: others | u64::from(entry.raw()) << self.shift(), ..self }
    }

    /// Stores the word, and says where. The caller has the stripe's lock, and loaded the word under
    /// it.
    pub(crate) fn store<R: Region + ?Sized>(self, region: &R) -> u64 {
        let at = self.at & !7;
        region.store_u64(at, self.word);
        at
    }

    /// Stores the word and begins its write-back, under the same lock.
    pub(crate) fn store_and_flush<R: Region + ?Sized>(self, region: &R) {
        region.flush(self.store(region), 8);
    }

    fn shift(self) -> u64 {
        (self.at & 4) * 8
    }
}
