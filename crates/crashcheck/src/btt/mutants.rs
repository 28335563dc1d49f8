//! Regions that betray the engine: each drops or swaps one of its stores, flushes or fences.
//!
//! The engine is not changed. A [`Faulty`] region recognises each site by where it stores, and by
//! what the same core has done since its last fence. A campaign that does not fail on such a region
//! is blind to that mistake.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tidegate_layout::btt::ArenaGeometry;
use tidegate_media::sync::thread_token;
use tidegate_media::{LineOrder, Poison, Region as Medium, Sealed};
use tidegate_sim::Region;

/// A mistake in the order of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// One word of each block is never written back.
    TornWord,
    /// The fence after the data is missing.
    DataFenceMissing,
    /// The flog's line is not written back.
    FlogFlushMissing,
    /// The fence between flog and map is missing.
    FlogFenceMissing,
    /// The second word of a flog slot is stored before the first.
    FlogHalvesSwapped,
    /// The map is stored, and durable, before the flog.
    MapBeforeFlog,
    /// The map is never written back.
    MapFlushMissing,
    /// What another lane stored to the map is not made durable before it is logged as replaced.
    SettlingMissing,
    /// A lane that changed its thread does not write its last map entry back again.
    SecondFlushMissing,
    /// What a recovery stores is not fenced.
    RecoveryFenceMissing,
    /// A recovery acts on flog entries that a killed process has left in the caches only.
    FlogOnOpenNotFlushed,
}

/// A region in which one site of the engine is broken.
pub struct Faulty {
    region: Arc<Region>,
    bug: Bug,
    geometry: ArenaGeometry,
    cores: Mutex<Vec<Core>>,
    /// Where each lane stored to the map last.
    last_stores: Mutex<BTreeMap<u64, u64>>,
}

/// What a core did since its last fence.
#[derive(Clone, Debug, Default)]
struct Core {
    token: u32,
    streamed: bool,
    flog_flushed: bool,
    /// The lane whose flog entry it began.
    lane: Option<u64>,
    /// The one whose flog entry it had begun or ended before that fence.
    last_lane: Option<u64>,
    map_stored: bool,
    /// Stores held back, to come after the next.
    held: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Data,
    Map,
    Flog,
    Info,
}

impl Faulty {
    /// `region`, with `bug` in each write to the arena of `geometry` at its start.
    pub fn new(region: Arc<Region>, geometry: ArenaGeometry, bug: Bug) -> Faulty {
        Faulty { region, bug, geometry, cores: Mutex::default(), last_stores: Mutex::default() }
    }

    fn part(&self, at: u64) -> Part {
        match at {
            at if at < self.geometry.dataoff || at >= self.geometry.info2off => Part::Info,
            at if at < self.geometry.mapoff => Part::Data,
            at if at < self.geometry.logoff => Part::Map,
            _ => Part::Flog,
        }
    }

    fn core<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let token = thread_token();
        let mut cores = self.cores.lock().expect("no access panics");
        if let Some(core) = cores.iter_mut().find(|core| core.token == token) {
            return act(core);
        }
        cores.push(Core { token, ..Core::default() });
        act(cores.last_mut().expect("just pushed"))
    }

    fn drops_flush(&self, part: Part, at: u64, len: u64, core: &Core) -> bool {
        match self.bug {
            Bug::FlogOnOpenNotFlushed => part == Part::Flog && len > 64,
            Bug::FlogFlushMissing => part == Part::Flog,
            Bug::MapFlushMissing => part == Part::Map,
            Bug::SettlingMissing => part == Part::Map && core.lane.is_some() && !self.was_stored_by(core.lane, at),
            Bug::SecondFlushMissing => part == Part::Map && self.was_stored_by(core.lane, at),
            _ => false,
        }
    }

    fn was_stored_by(&self, lane: Option<u64>, at: u64) -> bool {
        let last_stores = self.last_stores.lock().expect("no access panics");
        lane.is_some_and(|lane| last_stores.get(&lane) == Some(&at))
    }

    fn drops_fence(&self, core: &Core) -> bool {
        match self.bug {
            Bug::DataFenceMissing => core.streamed,
            Bug::FlogFenceMissing => core.flog_flushed,
            Bug::MapBeforeFlog => !core.held.is_empty(),
            Bug::RecoveryFenceMissing => core.map_stored && !core.streamed,
            _ => false,
        }
    }

    /// Streams a word of a flog entry, in the order of the bug.
    fn stream_flog(&self, at: u64, word: u64) {
        let first_half = at.is_multiple_of(16);
        self.core(|core| {
            core.flog_flushed |= !first_half;
            core.lane = Some((at - self.geometry.logoff) / 64);
        });
        match self.bug {
            Bug::FlogHalvesSwapped if first_half => self.core(|core| core.held = vec![(at, word)]),
            Bug::MapBeforeFlog => self.core(|core| core.held.push((at, word))),
            Bug::FlogFlushMissing => self.region.store_u64(at, word),
            _ => self.region.stream(at, &word.to_le_bytes()),
        }
        if self.bug == Bug::FlogHalvesSwapped && !first_half {
            let held = self.core(|core| std::mem::take(&mut core.held));
            held.into_iter().for_each(|(at, word)| self.region.stream(at, &word.to_le_bytes()));
        }
    }

    /// The map's store is on its way: make it durable, then store what was held back.
    fn release_held(&self) {
        let held = self.core(|core| std::mem::take(&mut core.held));
        if held.is_empty() {
            return;
        }
        self.region.fence().expect("the region is sound");
        for (at, word) in held {
            self.region.store_u64(at, word);
            self.region.flush(at, 8);
        }
        self.region.fence().expect("the region is sound");
    }
}

impl Medium for Faulty {
    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(at, out)
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.region.load_u64(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write(at, bytes);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        if let (Part::Flog, Ok(word)) = (self.part(at), bytes.try_into()) {
            return self.stream_flog(at, u64::from_le_bytes(word));
        }
        self.core(|core| core.streamed |= self.part(at) == Part::Data);
        if self.bug == Bug::TornWord && self.part(at) == Part::Data {
            self.region.stream(at, &bytes[..64]);
            self.region.write(at + 64, &bytes[64..72]);
            self.region.stream(at + 72, &bytes[72..]);
        } else {
            self.region.stream(at, bytes);
        }
    }

    fn store_u64(&self, at: u64, word: u64) {
        let part = self.part(at);
        let lane = self.core(|core| {
            core.map_stored |= part == Part::Map;
            core.last_lane
        });
        if let (Part::Map, Some(lane)) = (part, lane) {
            self.last_stores.lock().expect("no access panics").insert(lane, at);
        }
        self.region.store_u64(at, word);
    }

    fn flush(&self, at: u64, len: u64) {
        let part = self.part(at);
        let dropped = self.core(|core| {
            let dropped = self.drops_flush(part, at, len, core);
            core.flog_flushed |= part == Part::Flog;
            dropped
        });
        if !dropped {
            self.region.flush(at, len);
        }
        if self.bug == Bug::MapBeforeFlog && part == Part::Map {
            self.release_held();
        }
    }

    fn fence(&self) -> Result<(), Sealed> {
        let dropped = self.core(|core| {
            let dropped = self.drops_fence(core);
            let held = std::mem::take(&mut core.held);
            *core = Core { token: core.token, held, last_lane: core.lane, ..Core::default() };
            dropped
        });
        if dropped { Ok(()) } else { self.region.fence() }
    }

    fn line_order(&self) -> LineOrder {
        self.region.line_order()
    }
}
