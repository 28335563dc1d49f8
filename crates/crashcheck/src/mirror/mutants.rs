//! The sides of a mirror, whose cuts are taken together, and the mistakes that a campaign must
//! notice.

use std::sync::{Arc, Mutex};
use tidegate_layout::mirror::{MIRROR_PAGE_BYTES, MIRROR_SLOTS_AT, MirrorSide, OpeningId, SideState};
use tidegate_media::{LineOrder, Poison, Region as Medium, Sealed};
use tidegate_sim::{Cut, Region};
use zerocopy::IntoBytes;

/// A mistake in a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorBug {
    /// Fences are made on side 0 only.
    OneSideFenced,
    /// A side goes on alone, and its page does not say so.
    AloneNotRecorded,
    /// A side that is opened alone says so before its engine is open.
    AloneEarly,
    /// What the page of a side says of its generation is not looked at: a stale side is taken.
    StaleTaken,
    /// The sides are not made equal when they are opened.
    NotMadeEqual,
    /// Stores reach side 0 only.
    OneSideStored,
}

/// Both sides, and the joint cuts of them.
pub(crate) struct Power {
    /// The memory of both sides.
    pub(crate) sides: [Arc<Region>; 2],
    cuts: Arc<Mutex<Option<Vec<[Cut; 2]>>>>,
    bug: Option<MirrorBug>,
}

impl Power {
    pub(crate) fn new(sides: [Arc<Region>; 2], bug: Option<MirrorBug>) -> Power {
        Power { sides, cuts: Arc::default(), bug }
    }

    /// From now on, keeps a joint cut for the instant before each fence of either side.
    pub(crate) fn record(&self) {
        self.cuts.lock().expect("no access panics").get_or_insert_default();
    }

    /// The joint cuts kept, after which no more are.
    pub(crate) fn take(&self) -> Vec<[Cut; 2]> {
        self.cuts.lock().expect("no access panics").take().unwrap_or_default()
    }

    /// The power fails for both sides now.
    pub(crate) fn cut(&self) -> [Cut; 2] {
        [self.sides[0].cut(), self.sides[1].cut()]
    }

    /// One side, as the mirror sees it.
    pub(crate) fn side(&self, number: usize) -> CutSide {
        let power = Power { sides: self.sides.clone(), cuts: Arc::clone(&self.cuts), bug: self.bug };
        CutSide { power, number }
    }
}

/// A side that records a joint cut before each fence, with a mistake or without.
pub struct CutSide {
    power: Power,
    number: usize,
}

impl CutSide {
    fn region(&self) -> &Region {
        &self.power.sides[self.number]
    }

    fn has(&self, bug: MirrorBug) -> bool {
        self.power.bug == Some(bug)
    }

    fn page_at(&self) -> u64 {
        self.region().len() - MIRROR_PAGE_BYTES
    }

    /// Whether a store there does not arrive.
    fn drops(&self, at: u64) -> bool {
        let is_page = at >= self.page_at();
        is_page && self.has(MirrorBug::AloneNotRecorded)
            || !is_page && self.number == 1 && self.has(MirrorBug::OneSideStored)
    }

    /// One record in both slots of the page, whatever was written there.
    fn first_record(&self, at: u64, out: &mut [u8]) -> bool {
        let slots = MIRROR_SLOTS_AT.map(|slot| self.page_at() + slot);
        let is_slot = slots.contains(&at) && out.len() == size_of_val(&self.whole().record());
        if is_slot {
            out.copy_from_slice(self.whole().record().as_bytes());
        }
        is_slot
    }

    fn whole(&self) -> MirrorSide {
        let side = u32::from(self.number == 1);
        MirrorSide {
            set: [3; 16],
            generation: 99,
            region_bytes: self.region().len(),
            side,
            state: SideState::Mirrored,
            opening: OpeningId::ABSENT,
            former: [0; 3],
        }
    }
}

impl Medium for CutSide {
    fn len(&self) -> u64 {
        self.region().len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        if self.has(MirrorBug::StaleTaken) && self.first_record(at, out) {
            return Ok(());
        }
        // The copy finds side 1 equal.
        if self.has(MirrorBug::NotMadeEqual) && self.number == 1 && at < self.page_at() {
            let other = &self.power.sides[0];
            return other.read(at, out);
        }
        self.region().read(at, out)
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.region().load_u64(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        if !self.drops(at) {
            self.region().write(at, bytes);
        }
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        if !self.drops(at) {
            self.region().stream(at, bytes);
        }
    }

    fn store_u64(&self, at: u64, word: u64) {
        if !self.drops(at) {
            self.region().store_u64(at, word);
        }
    }

    fn flush(&self, at: u64, len: u64) {
        self.region().flush(at, len);
    }

    fn fence(&self) -> Result<(), Sealed> {
        if let Some(cuts) = self.power.cuts.lock().expect("no access panics").as_mut() {
            cuts.push(self.power.cut());
        }
        if self.number == 1 && self.has(MirrorBug::OneSideFenced) {
            return Ok(());
        }
        self.region().fence()
    }

    fn line_order(&self) -> LineOrder {
        self.region().line_order()
    }
}
