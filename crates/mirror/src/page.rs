//! The page of a side: which record of its two slots counts, and how the next one is written.
//!
//! [`write`] stores a record to both slots, one after the other, and only then is anything done
//! that rests on it. So a slot that goes bad takes no record back: the other one says as much, or
//! a cut interrupted the write, and nothing was done yet.

use std::io;
use tidegate_layout::mirror::{
    MIRROR_PAGE_BYTES, MIRROR_SLOTS_AT, MirrorRecord, MirrorSide, OpeningId, REDO_HEAD_AT, RedoHead, SideState,
};
use tidegate_media::{LINE_BYTES, Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// Makes durable what was stored to a side and fenced, where fences alone do not: in an ordinary
/// file.
pub type SyncSide<R> = fn(&R) -> io::Result<()>;

/// What the page at the end of a region says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The region is a side of a mirror.
    Side(MirrorSide),
    /// The region claims to be a side, and no record of its page is sound.
    Damaged,
    /// The page cannot be read, so the region may be a side or not.
    Unreadable,
    /// The region is not a side.
    Absent,
}

/// Where the page of a region of `bytes` begins; `None` if it has no room for a page and whole
/// lines before it.
pub(crate) fn page_at(bytes: u64) -> Option<u64> {
    bytes.checked_sub(MIRROR_PAGE_BYTES).filter(|at| *at > 0 && at.is_multiple_of(LINE_BYTES))
}

/// Where the page of `region` begins, a side.
pub(crate) fn page_of<R: Region>(region: &R) -> u64 {
    page_at(region.len()).expect("a side has room for its page")
}

/// Reads the page at the end of `region`.
pub fn read<R: Region + ?Sized>(region: &R) -> Page {
    let Some(at) = page_at(region.len()) else { return Page::Absent };
    let slots = records(region, at);
    if let Some((_, side)) = newest(region.len(), &slots) {
        return Page::Side(side);
    }
    match slots {
        _ if slots.iter().flatten().any(MirrorRecord::has_magic) => Page::Damaged,
        [Some(_), Some(_)] => Page::Absent,
        _ => Page::Unreadable,
    }
}

/// Makes `side` what both slots of the page of `region` say, durably. A cut leaves the former
/// record or this one.
pub(crate) fn write<R: Region>(region: &R, side: &MirrorSide, sync: SyncSide<R>) -> Result<(), Sealed> {
    let at = page_of(region);
    let slots = records(region, at);
    let kept = newest(region.len(), &slots).map_or(1, |(slot, _)| slot);
    for slot in [1 - kept, kept] {
        region.stream(at + MIRROR_SLOTS_AT[slot], side.record().as_bytes());
        settle(region, sync)?;
    }
    Ok(())
}

/// Makes both slots of the page of `region`, of which `side` is the newest, say that it goes on
/// alone, durably. Returns what they say.
pub(crate) fn go_alone<R: Region>(region: &R, side: MirrorSide, sync: SyncSide<R>) -> Result<MirrorSide, Sealed> {
    let alone = match side.state {
        SideState::Alone => side,
        _ => MirrorSide {
            generation: side.generation + 1,
            state: SideState::Alone,
            opening: OpeningId::ABSENT,
            former: side.opening.beginning(),
            ..side
        },
    };
    if !has_twice(region, &alone) {
        write(region, &alone, sync)?;
    }
    Ok(alone)
}

/// Whether both slots of the page of `region` say `side`.
fn has_twice<R: Region>(region: &R, side: &MirrorSide) -> bool {
    let says_so = |slot: &Option<MirrorRecord>| slot.as_ref().and_then(|slot| slot.check().ok()) == Some(*side);
    records(region, page_of(region)).iter().all(says_so)
}

/// Makes the redo in the page of `region` void, durably.
pub(crate) fn drop_redo<R: Region>(region: &R, sync: SyncSide<R>) -> Result<(), Sealed> {
    let at = page_of(region);
    region.stream(at + REDO_HEAD_AT, RedoHead::new_zeroed().as_bytes());
    settle(region, sync)
}

/// Makes the page of `region` say nothing, durably.
pub(crate) fn erase<R: Region>(region: &R, sync: SyncSide<R>) -> Result<(), Sealed> {
    let at = page_of(region);
    for slot in MIRROR_SLOTS_AT {
        region.stream(at + slot, MirrorRecord::new_zeroed().as_bytes());
    }
    drop_redo(region, sync)
}

/// Fences and syncs `region`.
pub(crate) fn settle<R: Region>(region: &R, sync: SyncSide<R>) -> Result<(), Sealed> {
    region.fence()?;
    sync(region).map_err(|error| Sealed::by_failed_sync(&error))
}

/// The slot whose record counts in a region of `bytes`, and what it says.
fn newest(bytes: u64, slots: &[Option<MirrorRecord>; 2]) -> Option<(usize, MirrorSide)> {
    let sides = slots.iter().enumerate().filter_map(|(slot, record)| Some((slot, record.as_ref()?.check().ok()?)));
    let sides = sides.filter(|(_, side)| side.region_bytes == bytes);
    // An opening gives its generation to the record that begins it and to the one that ends it.
    sides.max_by_key(|(_, side)| (side.generation, side.state != SideState::Opening))
}

/// The bytes of the slots of a page at `at`; `None` where the memory does not give them.
fn records<R: Region + ?Sized>(region: &R, at: u64) -> [Option<MirrorRecord>; 2] {
    MIRROR_SLOTS_AT.map(|slot| {
        let mut record = MirrorRecord::new_zeroed();
        region.read(at + slot, record.as_mut_bytes()).ok().map(|()| record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::{PoisonedStore, Reduction, Region as Simulated, power_cuts};

    const BYTES: u64 = 4 * 4096;
    const PAGE_AT: u64 = BYTES - MIRROR_PAGE_BYTES;

    fn side(generation: u64) -> MirrorSide {
        MirrorSide {
            set: [7; 16],
            generation,
            region_bytes: BYTES,
            side: 0,
            state: SideState::Mirrored,
            opening: OpeningId::ABSENT,
            former: [0; 3],
        }
    }

    fn written(generations: &[u64]) -> Simulated {
        let region = Simulated::new(BYTES);
        generations.iter().for_each(|generation| write(&region, &side(*generation), |_| Ok(())).unwrap());
        region
    }

    #[test]
    fn a_cut_within_a_write_leaves_the_former_record_or_the_new_one() {
        for before in [&[][..], &[1], &[1, 2], &[1, 2, 3]] {
            let start = written(before).visible();
            let old = before.last().map_or(Page::Absent, |last| Page::Side(side(*last)));
            let cuts = power_cuts(&start, |region| write(&**region, &side(9), |_| Ok(())).unwrap());
            let reduction = Reduction::none();
            for cut in &cuts[..cuts.len() - 1] {
                for image in cut.images(&reduction) {
                    let found = read(&Simulated::from_image(image));
                    let torn = found == Page::Damaged && before.is_empty();
                    assert!(torn || found == old || found == Page::Side(side(9)), "{found:?} after {before:?}");
                }
            }
            let end = cuts.last().expect("a cut at the end").least().clone();
            assert_eq!(read(&Simulated::from_image(end)), Page::Side(side(9)));
        }
    }

    #[test]
    fn either_slot_alone_says_what_was_written_last() {
        for (bad, other) in [(0, 1), (1, 0)] {
            let region = written(&[1, 2]);
            region.poison(PAGE_AT + MIRROR_SLOTS_AT[bad], 4096, PoisonedStore::Kept);
            assert_eq!(read(&region), Page::Side(side(2)));
            assert!(!has_twice(&region, &side(2)));
            region.poison(PAGE_AT + MIRROR_SLOTS_AT[other], 64, PoisonedStore::Kept);
            assert_eq!(read(&region), Page::Unreadable);
        }
        assert!(has_twice(&written(&[1, 2]), &side(2)));
    }

    #[test]
    fn a_cut_between_both_slots_leaves_the_new_record_and_the_next_write_completes_it() {
        let start = written(&[1]).visible();
        let cuts = power_cuts(&start, |region| write(&**region, &side(2), |_| Ok(())).unwrap());
        let between = Simulated::from_image(cuts[1].least().clone());
        assert_eq!((read(&between), has_twice(&between, &side(2))), (Page::Side(side(2)), false));
        write(&between, &side(2), |_| Ok(())).unwrap();
        assert!(has_twice(&between, &side(2)));
    }

    #[test]
    fn the_end_of_an_opening_counts_over_its_beginning() {
        let begun = MirrorSide { side: 1, state: SideState::Opening, ..side(2) };
        let ended = MirrorSide { state: SideState::Mirrored, ..begun };
        let region = Simulated::new(BYTES);
        write(&region, &begun, |_| Ok(())).unwrap();
        let cuts = power_cuts(&region.visible(), |region| write(&**region, &ended, |_| Ok(())).unwrap());
        let found = [&cuts[0], &cuts[1]].map(|cut| read(&Simulated::from_image(cut.least().clone())));
        assert_eq!(found, [Page::Side(begun), Page::Side(ended)]);
    }

    #[test]
    fn a_page_of_another_length_is_damaged_and_zeroes_are_absent() {
        let mut longer = side(1);
        longer.region_bytes += 4096;
        let region = Simulated::new(BYTES);
        assert_eq!(read(&region), Page::Absent);
        write(&region, &longer, |_| Ok(())).unwrap();
        assert_eq!(read(&region), Page::Damaged);
        erase(&region, |_| Ok(())).unwrap();
        assert_eq!(read(&region), Page::Absent);
        assert_eq!(read(&Simulated::new(MIRROR_PAGE_BYTES)), Page::Absent);
    }
}
