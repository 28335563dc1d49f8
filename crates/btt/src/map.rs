//! The map of one arena: entries of 4 bytes, stored as halves of aligned 8-byte words, locked by the line.
//!
//! 1. A line of the map is stored to only under its stripe's lock; it is loaded without.
//! 2. A stripe remembers the last store to its lines that may not be durable yet, and which lane made it. A lane that is about to
//!    log an entry it read there first makes that store durable.

use crate::lanes::{LaneFences, Lanes};
use crate::padded::Padded;
use tidegate_layout::btt::MapEntry;
use tidegate_media::sync::{SpinGuard, SpinLock};
use tidegate_media::{LINE_BYTES, Poison, Region, Sealed};

/// More stripes, fewer lanes that meet; each is one line of DRAM.
const STRIPES: u64 = 1024;

/// Locks over the lines of one arena's map.
pub(crate) struct MapLocks {
    stripes: Box<[Padded<SpinLock<Stripe>>]>,
}

/// A locked stripe of the map.
pub(crate) type StripeGuard<'a> = SpinGuard<'a, Stripe>;

/// What a stripe remembers.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    last: Option<LaneStore>,
}

/// A store to the map by a lane, not yet known to be fenced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneStore {
    /// Where the stored word lies in the region.
    pub(crate) at: u64,
    /// The lane, and how many fences it had passed when it stored.
    pub(crate) lane: u32,
    pub(crate) fences: LaneFences,
}

impl MapLocks {
    pub(crate) fn new() -> MapLocks {
        MapLocks { stripes: (0..STRIPES).map(|_| Padded::default()).collect() }
    }

    /// Locks the line that the entry at `at` lies in.
    #[track_caller]
    pub(crate) fn lock(&self, at: u64) -> StripeGuard<'_> {
        let stripe = at / LINE_BYTES % STRIPES;
        self.stripes[usize::try_from(stripe).expect("less than STRIPES")].lock()
    }
}

impl Stripe {
    /// Makes durable what another lane than `lane` stored to this stripe, if no fence of that lane has done so, by a fence that is passed if
    /// it is `due` anyway. Every earlier such store was settled before the one remembered was made.
    pub(crate) fn settle<R: Region>(&mut self, region: &R, lanes: &Lanes, lane: u32, due: bool) -> Result<(), Sealed> {
        let unsettled = self.last.filter(|store| store.lane != lane && !lanes.fenced_since(store.lane, store.fences));
        if let Some(store) = unsettled {
            region.flush(store.at, 8);
        }
        if due || unsettled.is_some() {
            region.fence()?;
        }
        self.last = None;
        Ok(())
    }

    /// Remembers `store`, not fenced.
    pub(crate) fn remember(&mut self, store: LaneStore) {
        debug_assert!(self.last.is_none(), "the last store is settled before the next");
        self.last = Some(store);
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

    /// The same word with another entry.
    pub(crate) fn with(self, entry: MapEntry) -> MapWord {
        let others = self.word & !(u64::from(u32::MAX) << self.shift());
        MapWord { word: others | u64::from(entry.raw()) << self.shift(), ..self }
    }

    /// Stores the word, and says where. The caller has the line's lock, and loaded the word under it.
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
