//! Both sides, one side, and the ways from one to the other.

use crate::page::{self, Page};
use crate::{Liveness, Mirror, MirrorError, create, open, open_alone, rebuild, view};
use std::sync::Arc;
use tidegate_layout::mirror::{MIRROR_PAGE_BYTES, MIRROR_SLOTS_AT, OpeningId, SideState};
use tidegate_media::{Poison, Region as Medium, Sealed};
use tidegate_sim::{PoisonedStore, Reduction, Region};

const BYTES: u64 = 5 * 4096;
const PAGE_AT: u64 = BYTES - MIRROR_PAGE_BYTES;
type Side = Arc<Region>;

fn regions() -> [Side; 2] {
    [Arc::new(Region::new(BYTES)), Arc::new(Region::new(BYTES))]
}

fn made(regions: &[Side; 2]) -> Mirror<Side> {
    create(regions.clone(), [7; 16], |_| Ok(())).expect("two regions of one length")
}

fn opened(regions: [&Side; 2]) -> Result<Mirror<Side>, MirrorError> {
    let regions = regions.map(Arc::clone);
    opened_as([1; 6], regions)
}

fn opened_as(opening: [u8; 6], regions: [Side; 2]) -> Result<Mirror<Side>, MirrorError> {
    open(regions, OpeningId(opening), |_| Ok(()), &mut |_, _| {}).map(|(mirror, _)| mirror)
}

fn copies(sides: &[Side; 2]) -> [Side; 2] {
    sides.each_ref().map(|side| Arc::new(Region::from_image(side.visible())))
}

#[test]
fn sides_that_were_served_alone_in_turn_have_diverged() {
    let sides = regions();
    drop(made(&sides));
    for side in &sides {
        let mirror = alone(side);
        mirror.stream(0, &[5; 64]);
        mirror.fence().unwrap();
    }
    assert_eq!(opened([&sides[0], &sides[1]]).err(), Some(MirrorError::Diverged));
}

#[test]
fn a_side_does_not_pass_for_that_of_a_copy_with_as_many_openings() {
    let sides = regions();
    drop(made(&sides));
    let forks = copies(&sides);
    for (number, pair) in [(2, &sides), (3, &forks)] {
        let mirror = opened_as([number; 6], pair.clone()).expect("both are there");
        mirror.stream(0, &[number; 64]);
        mirror.fence().unwrap();
    }
    for mixed in [[&sides[0], &forks[1]], [&sides[1], &forks[0]]] {
        assert_eq!(opened(mixed).err(), Some(MirrorError::Diverged));
    }
    // One opening more, and a side of the copy that went on alone.
    drop(opened_as([4; 6], sides.clone()).expect("they have one history"));
    assert_eq!(opened([&sides[0], &forks[1]]).err(), Some(MirrorError::Diverged));
    let [first, second] = copies(&forks);
    alone(&first).go_alone().unwrap();
    assert_eq!(opened([&first, &sides[1]]).err(), Some(MirrorError::Diverged));
    assert_eq!(opened([&first, &second]).err(), Some(MirrorError::Stale { region: 1 }));
    drop(opened([&forks[0], &forks[1]]).expect("they have one history"));
}

#[test]
fn a_cut_amid_an_opening_is_completed_by_its_own_twin_alone() {
    let sides = regions();
    drop(made(&sides));
    let forks = copies(&sides);
    for (number, pair) in [(2, &sides), (3, &forks)] {
        drop(opened_as([number; 6], pair.clone()).expect("both are there"));
    }
    let before = copies(&sides);
    sides.iter().for_each(|side| side.record_cuts());
    drop(opened_as([4; 6], sides.clone()).expect("both are there"));
    let begun = sides[1].take_cuts().into_iter().map(|cut| Arc::new(Region::from_image(cut.most())));
    let begun = begun.filter(|side| state(side) == SideState::Opening).collect::<Vec<_>>();
    assert!(!begun.is_empty(), "an opening that began");
    for second in &begun {
        for first in [&before[0], &sides[0]] {
            let pair = copies(&[Arc::clone(first), Arc::clone(second)]);
            assert!(opened([&pair[0], &pair[1]]).is_ok(), "its own twin, before or behind the step");
        }
        assert!(opened([&forks[0], second]).is_err(), "another one");
    }
}

fn rebuilt(source: &Side, target: &Side) -> Result<u64, MirrorError> {
    rebuild([source, target], [8; 16], |_| Ok(()), &mut |_, _| {}).map(|rebuilt| rebuilt.copied_lines)
}

fn line_at(region: &impl Medium, at: u64) -> Result<[u8; 64], Poison> {
    let mut line = [0; 64];
    region.read(at, &mut line)?;
    Ok(line)
}

fn state(region: &Side) -> SideState {
    match page::read(region) {
        Page::Side(side) => side.state,
        other => panic!("not a side: {other:?}"),
    }
}

#[test]
fn what_a_fence_covered_is_durable_on_both_sides() {
    let sides = regions();
    let mirror = made(&sides);
    assert_eq!(mirror.len(), PAGE_AT);
    mirror.write(0, &[1; 64]);
    mirror.flush(0, 64);
    mirror.stream(64, &[2; 64]);
    mirror.store_u64(128, u64::from_le_bytes([3; 8]));
    mirror.flush(128, 8);
    mirror.fence().unwrap();
    for side in &sides {
        let durable = Region::from_image(side.cut().least().clone());
        assert_eq!(line_at(&durable, 0), Ok([1; 64]));
        assert_eq!(line_at(&durable, 64), Ok([2; 64]));
        assert_eq!(durable.load_u64(128), Ok(u64::from_le_bytes([3; 8])));
    }
}

#[test]
fn a_lost_side_is_stale_before_a_fence_succeeds() {
    for lost in [0, 1] {
        let sides = regions();
        let mirror = made(&sides);
        sides[lost].poison(0, 64, PoisonedStore::Lost);
        mirror.stream(0, &[5; 64]);
        mirror.fence().expect("the other side has it");
        assert_eq!(mirror.liveness(), if lost == 0 { Liveness::Second } else { Liveness::First });
        assert_eq!((state(&sides[lost]), state(&sides[1 - lost])), (SideState::Mirrored, SideState::Alone));
        assert_eq!(line_at(&mirror, 0), Ok([5; 64]));
        mirror.stream(64, &[6; 64]);
        mirror.fence().unwrap();
        assert_eq!(line_at(&sides[1 - lost], 64), Ok([6; 64]));
        drop(mirror);
        let [first, second] = [&sides[0], &sides[1]];
        assert_eq!(opened([first, second]).err(), Some(MirrorError::Stale { region: lost }));
        assert_eq!(opened([second, first]).err(), Some(MirrorError::Stale { region: 1 - lost }));
    }
}

#[test]
fn a_survivor_with_a_bad_slot_still_makes_the_other_side_stale() {
    for (lost, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let sides = regions();
        let mirror = made(&sides);
        sides[lost].poison(0, 64, PoisonedStore::Lost);
        mirror.stream(0, &[5; 64]);
        mirror.fence().expect("the other side has it");
        drop(mirror);
        sides[1 - lost].poison(PAGE_AT + MIRROR_SLOTS_AT[slot], 4096, PoisonedStore::Heals);
        let reopened = [0, 1].map(|side| Arc::new(Region::from_image(sides[side].visible())));
        reopened[1 - lost].poison(PAGE_AT + MIRROR_SLOTS_AT[slot], 4096, PoisonedStore::Heals);
        assert_eq!(opened([&reopened[0], &reopened[1]]).err(), Some(MirrorError::Stale { region: lost }));
        drop(open_alone(Arc::clone(&reopened[1 - lost]), |_| Ok(())).expect("the memory takes the record again"));
        reopened[1 - lost].poison(PAGE_AT + MIRROR_SLOTS_AT[1 - slot], 4096, PoisonedStore::Heals);
        assert_eq!(opened([&reopened[0], &reopened[1]]).err(), Some(MirrorError::Stale { region: lost }));
    }
}

#[test]
fn a_copy_of_a_side_from_before_an_opening_is_stale() {
    for replaced in [0, 1] {
        let sides = regions();
        drop(made(&sides));
        let copy = Arc::new(Region::from_image(sides[replaced].visible()));
        let mirror = opened([&sides[0], &sides[1]]).expect("both are there");
        mirror.stream(0, &[5; 64]);
        mirror.fence().unwrap();
        drop(mirror);
        let mut pair = [&sides[0], &sides[1]];
        pair[replaced] = &copy;
        assert_eq!(opened(pair).err(), Some(MirrorError::Stale { region: replaced }));
        assert_eq!(rebuilt(&sides[1 - replaced], &copy), Ok(1), "the line that the copy lacks");
        assert_eq!(line_at(&opened(pair).expect("both have every write"), 0), Ok([5; 64]));
    }
}

/// One of `sides`, opened alone as a server with clients opens it.
fn alone(side: &Side) -> Mirror<Side> {
    let mirror = open_alone(Arc::clone(side), |_| Ok(())).expect("a side that has every write");
    mirror.engine_is_open();
    mirror
}

#[test]
fn a_side_that_is_opened_alone_and_left_makes_no_side_stale() {
    for opened_alone in [0, 1] {
        let sides = regions();
        drop(made(&sides));
        let mirror = open_alone(Arc::clone(&sides[opened_alone]), |_| Ok(())).expect("a side");
        // The engine finishes what a cut interrupted.
        mirror.stream(0, &[5; 64]);
        mirror.fence().unwrap();
        mirror.engine_is_open();
        assert!(mirror.is_unsaid() && line_at(&mirror, 0) == Ok([5; 64]));
        drop(mirror);
        let mirror = opened([&sides[0], &sides[1]]).expect("both have every write");
        let right = if opened_alone == 0 { [5; 64] } else { [0; 64] };
        assert_eq!(line_at(&mirror, 0), Ok(right));
        assert_eq!(line_at(&sides[1], 0), Ok(right));
    }
}

#[test]
fn a_side_opened_alone_says_so_before_a_store_is_durable() {
    for opened_alone in [0, 1] {
        let sides = regions();
        drop(made(&sides));
        let mirror = alone(&sides[opened_alone]);
        sides[opened_alone].record_cuts();
        mirror.stream(0, &[5; 64]);
        assert_eq!((mirror.is_unsaid(), state(&sides[opened_alone])), (false, SideState::Alone));
        mirror.fence().unwrap();
        let cuts = sides[opened_alone].take_cuts();
        assert_eq!(cuts.len(), 3, "two slots, and the store");
        for image in cuts.iter().flat_map(|cut| cut.images(&Reduction::none())) {
            let mut pair = sides.clone();
            pair[opened_alone] = Arc::new(Region::from_image(image));
            let has_store = line_at(&pair[opened_alone], 0) != Ok([0; 64]);
            assert!(
                !has_store
                    || opened([&pair[0], &pair[1]]).err() == Some(MirrorError::Stale { region: 1 - opened_alone })
            );
        }
        assert_eq!(opened([&sides[0], &sides[1]]).err(), Some(MirrorError::Stale { region: 1 - opened_alone }));
    }
}

#[test]
fn a_side_opened_alone_that_cannot_say_so_seals() {
    let sides = regions();
    drop(made(&sides));
    let mirror = alone(&sides[1]);
    sides[1].poison(PAGE_AT, MIRROR_PAGE_BYTES, PoisonedStore::Lost);
    mirror.stream(0, &[5; 64]);
    assert!(mirror.fence().is_err() && mirror.fence().is_err() && mirror.go_alone().is_err());
}

#[test]
fn the_loss_of_both_sides_seals() {
    let sides = regions();
    let mirror = made(&sides);
    sides.iter().for_each(|side| side.poison(0, 64, PoisonedStore::Lost));
    mirror.stream(0, &[5; 64]);
    assert_eq!(mirror.fence(), Err(Sealed::StoreLost { at: 0 }));
    assert_eq!(mirror.fence(), Err(Sealed::StoreLost { at: 0 }));
    assert_eq!((state(&sides[0]), state(&sides[1])), (SideState::Mirrored, SideState::Mirrored));
}

#[test]
fn a_survivor_whose_page_is_lost_seals() {
    let sides = regions();
    let mirror = made(&sides);
    sides[0].poison(0, 64, PoisonedStore::Lost);
    sides[1].poison(PAGE_AT, MIRROR_PAGE_BYTES, PoisonedStore::Lost);
    mirror.stream(0, &[5; 64]);
    assert!(mirror.fence().is_err());
    assert!(mirror.fence().is_err());
}

#[test]
fn bad_lines_are_read_from_the_other_side_and_repaired() {
    let sides = regions();
    let mirror = made(&sides);
    mirror.stream(0, &[1; 256]);
    mirror.fence().unwrap();
    sides[0].poison(64, 128, PoisonedStore::Heals);
    let mut bytes = [0; 200];
    mirror.read(20, &mut bytes).expect("the other side has them");
    assert_eq!((bytes, mirror.repaired_lines()), ([1; 200], 2));
    assert_eq!(mirror.load_u64(72), Ok(u64::from_le_bytes([1; 8])));
    assert_eq!(mirror.liveness(), Liveness::Both);
    for line in [64, 128] {
        assert_eq!(line_at(&sides[0], line), Ok([1; 64]), "repaired");
        assert_eq!(line_at(&Region::from_image(sides[0].cut().least().clone()), line), Ok([1; 64]), "durably");
    }
}

#[test]
fn a_line_bad_on_both_sides_is_told_and_harms_no_other() {
    let sides = regions();
    let mirror = made(&sides);
    sides.iter().for_each(|side| side.poison(64, 64, PoisonedStore::Kept));
    assert_eq!(line_at(&mirror, 64), Err(Poison { at: 64, len: 64 }));
    assert_eq!(line_at(&mirror, 128), Ok([0; 64]));
    assert_eq!(mirror.repaired_lines(), 0);
}

#[test]
fn memory_that_refuses_a_repair_loses_its_side() {
    let sides = regions();
    let mirror = made(&sides);
    sides[0].poison(64, 64, PoisonedStore::Lost);
    assert_eq!(line_at(&mirror, 64), Ok([0; 64]));
    assert_eq!((mirror.liveness(), state(&sides[1])), (Liveness::Second, SideState::Alone));
}

#[test]
fn too_many_bad_lines_lose_their_side() {
    let sides = regions().map(|_| Arc::new(Region::new(17 * 4096)));
    let mirror = made(&sides);
    sides[0].poison(0, 15 * 4096, PoisonedStore::Heals);
    let mut bytes = vec![0; 15 * 4096];
    mirror.read(0, &mut bytes).expect("the other side has them");
    assert_eq!((mirror.liveness(), state(&sides[1])), (Liveness::Second, SideState::Alone));
    assert_eq!(line_at(&mirror, 0), Ok([0; 64]));
}

#[test]
fn a_fence_makes_a_repaired_line_equal_again() {
    let sides = regions();
    let mirror = made(&sides);
    sides[0].poison(64, 64, PoisonedStore::Heals);
    line_at(&mirror, 64).unwrap();
    // A stream that became visible on side 0 before the repair stored there.
    sides[1].stream(64, &[9; 64]);
    mirror.fence().unwrap();
    assert_eq!(line_at(&sides[0], 64), Ok([9; 64]));
}

#[test]
fn after_a_cut_both_sides_are_what_the_first_one_is() {
    let sides = regions();
    let mirror = made(&sides);
    mirror.stream(0, &[1; 64]);
    mirror.fence().unwrap();
    mirror.stream(0, &[2; 64]);
    let reduction = Reduction::none();
    let cuts = [sides[0].cut(), sides[1].cut()];
    for first in cuts[0].images(&reduction).take(40) {
        for second in [cuts[1].least().clone(), cuts[1].most()] {
            let after = [Arc::new(Region::from_image(first.clone())), Arc::new(Region::from_image(second))];
            let found = line_at(&after[0], 0).unwrap();
            let mirror = opened([&after[1], &after[0]]).expect("both are there");
            assert_eq!(line_at(&mirror, 0), Ok(found));
            let durable = Region::from_image(after[1].cut().least().clone());
            assert_eq!(line_at(&durable, 0), Ok(found));
        }
    }
}

#[test]
fn a_rebuild_copies_and_makes_whole() {
    let sides = regions();
    let mirror = made(&sides);
    mirror.stream(4096, &[4; 128]);
    mirror.fence().unwrap();
    drop(mirror);
    let new = Arc::new(Region::new(BYTES));
    let alone = alone(&sides[1]);
    alone.stream(0, &[5; 64]);
    alone.fence().unwrap();
    drop(alone);
    assert_eq!(rebuilt(&sides[1], &new), Ok(3), "lines that differ");
    let mirror = opened([&new, &sides[1]]).unwrap();
    assert_eq!((line_at(&mirror, 0), line_at(&new, 4096)), (Ok([5; 64]), Ok([4; 64])));
    assert_eq!(opened([&sides[0], &sides[1]]).err(), Some(MirrorError::OtherSet));
    assert_eq!(rebuilt(&sides[1], &new), Ok(0));
}

#[test]
fn a_rebuild_is_safe_at_any_cut() {
    let sides = regions();
    let mirror = made(&sides);
    mirror.stream(0, &[4; 128]);
    mirror.fence().unwrap();
    drop(mirror);
    let target = Arc::new(Region::new(BYTES));
    sides[0].record_cuts();
    target.record_cuts();
    rebuilt(&sides[0], &target).unwrap();
    let (source_cuts, target_cuts) = (sides[0].take_cuts(), target.take_cuts());
    assert!(source_cuts.len() >= 2 && target_cuts.len() >= 4);
    for source in source_cuts.iter().flat_map(|cut| [cut.least().clone(), cut.most()]) {
        for target in target_cuts.iter().flat_map(|cut| [cut.least().clone(), cut.most()]) {
            let pair = [Arc::new(Region::from_image(source.clone())), Arc::new(Region::from_image(target))];
            if let Ok(mirror) = opened([&pair[0], &pair[1]]) {
                assert_eq!(line_at(&mirror, 64), Ok([4; 64]));
                assert_eq!(line_at(&pair[1], 64), Ok([4; 64]));
                continue;
            }
            let target = open_alone(Arc::clone(&pair[1]), |_| Ok(()));
            assert!(target.is_err() || line_at(&pair[1], 64) == Ok([4; 64]), "an incomplete copy was opened");
            rebuilt(&pair[0], &pair[1]).expect("it begins anew");
            let mirror = opened([&pair[0], &pair[1]]).expect("it is whole");
            assert_eq!((line_at(&mirror, 64), line_at(&pair[1], 64)), (Ok([4; 64]), Ok([4; 64])));
        }
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let sides = regions();
    drop(made(&sides));
    let [first, second] = &sides;
    let plain = Arc::new(Region::new(BYTES));
    let long = Arc::new(Region::new(2 * BYTES));
    let copy = Arc::new(Region::from_image(first.visible()));
    let other = regions();
    drop(create(other.clone(), [9; 16], |_| Ok(())).unwrap());
    let refused = |regions| opened(regions).err();
    assert_eq!(refused([first, &plain]), Some(MirrorError::NotASide { region: 1 }));
    assert_eq!(refused([&plain, first]), Some(MirrorError::NotASide { region: 0 }));
    assert_eq!(refused([first, &long]), Some(MirrorError::Lengths { lengths: [BYTES, 2 * BYTES] }));
    assert_eq!(refused([first, &copy]), Some(MirrorError::SameSide { side: 0 }));
    assert_eq!(refused([first, &other[1]]), Some(MirrorError::OtherSet));
    for side in [first, second] {
        alone(side).go_alone().unwrap();
    }
    assert_eq!(refused([first, second]), Some(MirrorError::Diverged));
    second.poison(PAGE_AT, MIRROR_PAGE_BYTES, PoisonedStore::Kept);
    assert_eq!(refused([first, second]), Some(MirrorError::DamagedPage { region: 1 }));
}

#[test]
fn a_view_changes_nothing() {
    let sides = regions();
    drop(made(&sides));
    let before = sides[1].visible().to_vec();
    let view = view(Arc::clone(&sides[1]));
    let mirror = view.mirror().expect("a side");
    assert_eq!((view.len(), mirror.liveness(), mirror.page().generation), (PAGE_AT, Liveness::Second, 1));
    assert_eq!(sides[1].visible().to_vec(), before);
}
