//! Volumes whose map the medium does not give back in places: what still works, what a repair
//! saves, and what it says where it cannot.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use tidegate_btt::{Btt, Contents, FormatSpec, OpenError, OpenOptions, PlannedArena, Repair, check, format_arenas};
use tidegate_layout::btt::{ArenaGeometry, Version};
use tidegate_media::{BlockDevice, Durability, Lba, Sealed};
use tidegate_sim::{PoisonedStore, Reduction, Region};

const ARENA_BYTES: u64 = 7 * 4096;
const NFREE: u32 = 4;
const BLOCK: usize = 512;
/// Entries of the map in one line.
const LINE: u64 = 16;

fn geometry() -> ArenaGeometry {
    ArenaGeometry::of(ARENA_BYTES, 512, NFREE).unwrap()
}

/// An empty volume.
fn empty() -> Arc<Region> {
    let region = Arc::new(Region::new(ARENA_BYTES));
    let spec = FormatSpec { version: Version::V2_0, sector_size: 512, uuid: [1; 16], parent_uuid: [0; 16] };
    let plan = [PlannedArena { start: 0, geometry: geometry() }];
    format_arenas(&*region, &spec, &plan, Contents::Zeroed).unwrap();
    region
}

fn open(region: &Arc<Region>) -> Result<Btt<Arc<Region>>, OpenError> {
    Btt::open(Arc::clone(region), &OpenOptions::default())
}

fn contents(lba: u64) -> [u8; BLOCK] {
    [lba as u8 + 1; BLOCK]
}

fn write(volume: &Btt<Arc<Region>>, lba: u64) {
    volume.write(Lba(lba), &contents(lba), Durability::Fua).unwrap();
}

/// What the sector shows; None: an error.
fn read(volume: &Btt<Arc<Region>>, lba: u64) -> Option<[u8; BLOCK]> {
    let mut out = [0; BLOCK];
    volume.read(Lba(lba), &mut out).is_ok().then_some(out)
}

/// A volume in which each sector holds its own number, those of the map's first line written last:
/// the lanes name them.
fn full() -> Arc<Region> {
    let region = empty();
    let volume = open(&region).unwrap();
    (0..volume.geometry().blocks).rev().for_each(|lba| write(&volume, lba));
    drop(volume);
    region
}

fn lose_first_line(region: &Region, stores: PoisonedStore) {
    region.poison(geometry().mapoff, 1, stores);
}

/// Every sector takes writes, more of them than there are free blocks, and keeps them apart.
fn use_every_block(region: &Arc<Region>) {
    let volume = open(region).unwrap();
    let blocks = volume.geometry().blocks;
    (0..=NFREE).for_each(|_| (0..blocks).for_each(|lba| write(&volume, lba)));
    assert!((0..blocks).all(|lba| read(&volume, lba) == Some(contents(lba))));
    assert!(check(&**region, Repair::No).unwrap().findings.is_empty());
}

#[test]
fn a_volume_opens_whose_lanes_have_nothing_to_finish_in_the_unreadable_line() {
    let region = empty();
    lose_first_line(&region, PoisonedStore::Kept);
    let volume = open(&region).unwrap();
    assert_eq!((read(&volume, 0), read(&volume, LINE)), (None, Some([0; BLOCK])));
}

#[test]
fn a_repair_gives_up_the_sectors_of_an_unreadable_line_and_keeps_the_others() {
    let region = full();
    let blocks = u64::from(geometry().external_nlba);
    assert!((LINE + 1..4 * LINE).contains(&blocks), "{blocks} sectors");
    lose_first_line(&region, PoisonedStore::Heals);
    assert!(matches!(open(&region).err(), Some(OpenError::Media(_))), "a lane may have something to finish there");
    let found = check(&*region, Repair::No).unwrap();
    let unreadable = |rule: &str| rule == "the medium gives the map entry back";
    assert_eq!(found.findings.iter().filter(|finding| unreadable(finding.corrupt.rule)).count(), 16);
    assert!(!found.is_sound() && found.given_up == 0);
    let report = check(&*region, Repair::Yes).unwrap();
    assert!(report.is_sound() && report.findings.len() == found.findings.len(), "{:?}", report.findings);
    assert_eq!((report.given_up, report.counts.error, report.counts.normal), (LINE, LINE, blocks - LINE));
    let again = check(&*region, Repair::Yes).unwrap();
    assert_eq!((again.findings.len(), again.given_up, again.counts.error), (0, 0, LINE));
    let volume = open(&region).unwrap();
    for lba in 0..blocks {
        assert_eq!(read(&volume, lba), (lba >= LINE).then(|| contents(lba)), "sector {lba}");
    }
    drop(volume);
    use_every_block(&region);
}

#[test]
fn a_medium_that_refuses_the_line_is_not_called_repaired() {
    let region = full();
    lose_first_line(&region, PoisonedStore::Kept);
    assert!(matches!(check(&*region, Repair::Yes), Err(OpenError::Media(_))));
    let region = full();
    lose_first_line(&region, PoisonedStore::Lost);
    assert!(matches!(check(&*region, Repair::Yes), Err(OpenError::Sealed(Sealed::StoreLost { .. }))));
}

#[test]
fn a_repair_that_a_power_cut_ends_is_finished_by_the_next() {
    let region = full();
    lose_first_line(&region, PoisonedStore::Heals);
    region.record_cuts();
    check(&*region, Repair::Yes).unwrap();
    let mut images = 0;
    for cut in region.take_cuts() {
        let mut left = cut.images(&Reduction::none());
        while let Some(image) = left.advance() {
            images += 1;
            let region = Arc::new(Region::from_image(image.clone()));
            assert!(check(&*region, Repair::Yes).unwrap().is_sound());
            assert!(check(&*region, Repair::No).unwrap().findings.is_empty());
            let volume = open(&region).unwrap();
            for lba in 0..volume.geometry().blocks {
                let seen = read(&volume, lba);
                assert!(seen == Some(contents(lba)) || (lba < LINE && seen.is_none()), "sector {lba}");
            }
        }
    }
    assert!(images > 256, "{images}");
}

#[test]
fn an_interrupted_write_that_a_repair_finished_is_not_called_pending() {
    let region = full();
    let before = region.visible();
    write(&open(&region).unwrap(), LINE + 1);
    let mut image = region.visible();
    let mut map = vec![0; geometry().external_nlba as usize * 4];
    before.read(geometry().mapoff, &mut map);
    image.write(geometry().mapoff, &map);
    let region = Region::from_image(image);
    assert_eq!(check(&region, Repair::No).unwrap().counts.interrupted, 1);
    let report = check(&region, Repair::Yes).unwrap();
    assert_eq!((report.counts.interrupted, report.given_up, report.findings.len()), (0, 0, 0));
}
