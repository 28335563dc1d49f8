//! Damage to a volume's structures: every bit of its metadata flipped, one at a time. In every case
//! no thread panics, no sector reads as another sector's data, and a repair leaves a volume that
//! works.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use tidegate_btt::{
    Btt, Contents, FormatSpec, OpenError, OpenOptions, PlannedArena, Repair, Writes, check, format_arenas,
};
use tidegate_layout::btt::{ArenaGeometry, Version};
use tidegate_media::{BlockDevice, Durability, Error, Lba, MappedRegion, Region};

const ARENA_BYTES: u64 = 6 * 4096;
const NFREE: u32 = 4;
const BLOCK: usize = 512;

fn geometry() -> ArenaGeometry {
    ArenaGeometry::of(ARENA_BYTES, 512, NFREE).unwrap()
}

/// A small volume in which every sector holds its own number, each written twice.
fn image() -> Vec<u8> {
    let region = Arc::new(MappedRegion::anonymous(ARENA_BYTES).unwrap());
    let spec = FormatSpec { version: Version::V2_0, sector_size: 512, uuid: [1; 16], parent_uuid: [0; 16] };
    let plan = [PlannedArena { start: 0, geometry: geometry() }];
    format_arenas(&*region, &spec, &plan, Contents::Zeroed).unwrap();
    let volume = Btt::open(Arc::clone(&region), &OpenOptions::default()).unwrap();
    for _ in 0..2 {
        for lba in 0..volume.geometry().blocks {
            volume.write(Lba(lba), &contents(lba), Durability::Fua).unwrap();
        }
    }
    let mut bytes = vec![0; usize::try_from(ARENA_BYTES).unwrap()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

fn contents(lba: u64) -> [u8; BLOCK] {
    [u8::try_from(lba + 1).unwrap(); BLOCK]
}

/// What one flipped bit came to.
#[derive(Debug, Default)]
struct Outcomes {
    unharmed: u32,
    refused: u32,
    /// Of those that were read, how many take no writes.
    unwritable: u32,
    old_data: u32,
    read_error: u32,
}

#[test]
fn every_flipped_bit_of_the_metadata_is_harmless_or_noticed() {
    let good = image();
    let geometry = geometry();
    let parts = [
        ("signature of the first info block", 0..16, false),
        ("first info block", 16..128, true),
        ("map", geometry.mapoff..geometry.mapoff + u64::from(geometry.external_nlba) * 4, false),
        ("flog", geometry.logoff..geometry.logoff + u64::from(NFREE) * 64, false),
        ("second info block", geometry.info2off..geometry.info2off + 128, true),
    ];
    for (name, range, is_doubled) in parts {
        let mut outcomes = Outcomes::default();
        for bit in range.start * 8..range.end * 8 {
            let mut bytes = good.clone();
            bytes[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8);
            judge(&bytes, &mut outcomes);
        }
        println!("{name}: {outcomes:?}");
        assert!(!is_doubled || outcomes.refused + outcomes.old_data + outcomes.read_error == 0, "{name} is kept twice");
    }
}

fn judge(bytes: &[u8], outcomes: &mut Outcomes) {
    let region = Arc::new(MappedRegion::anonymous(ARENA_BYTES).unwrap());
    region.write(0, bytes);
    let sound = check(&*region, Repair::No).map(|report| report.findings.is_empty());
    match Btt::open(Arc::clone(&region), &OpenOptions::default()) {
        Err(OpenError::Corrupt(_) | OpenError::FirstCopyForeign { .. }) => outcomes.refused += 1,
        Err(OpenError::Unwritable(_)) => {
            outcomes.unwritable += 1;
            assert_ne!(sound, Ok(true), "a sound volume takes writes");
            let only_read = OpenOptions { writes: Writes::Refused, ..OpenOptions::default() };
            read_all(&Btt::open(Arc::clone(&region), &only_read).unwrap(), false, outcomes);
        }
        Err(other) => panic!("{other}"),
        Ok(volume) => read_all(&volume, sound == Ok(true), outcomes),
    }
    let report = check(&*region, Repair::Yes).unwrap();
    assert!(report.is_sound());
    assert!(check(&*region, Repair::No).unwrap().findings.is_empty(), "a repair is complete");
    use_every_block(&region);
}

/// A sector shows its own data, or zeroes or the block before where a bit of its map entry says so
/// and no redundancy could tell, or fails; where the check was clean it must at least be its own.
fn read_all(volume: &Btt<Arc<MappedRegion>>, clean: bool, outcomes: &mut Outcomes) {
    let mut worst = 0;
    for lba in 0..volume.geometry().blocks {
        let mut out = [0; BLOCK];
        worst = worst.max(match volume.read(Lba(lba), &mut out) {
            Ok(()) if out == contents(lba) => 0,
            Ok(()) if clean => {
                assert_eq!(out, [0; BLOCK], "sector {lba} shows another's data in a volume that checks clean");
                1
            }
            Ok(()) => 1,
            Err(Error::Corrupt(_) | Error::Media(_)) => 2,
            Err(other) => panic!("{other}"),
        });
    }
    match worst {
        0 => outcomes.unharmed += 1,
        1 => outcomes.old_data += 1,
        _ => outcomes.read_error += 1,
    }
}

/// After a repair every sector takes writes, more of them than there are free blocks, and keeps
/// them apart.
fn use_every_block(region: &Arc<MappedRegion>) {
    let volume = Btt::open(Arc::clone(region), &OpenOptions::default()).unwrap();
    for _ in 0..=NFREE {
        for lba in 0..volume.geometry().blocks {
            volume.write(Lba(lba), &contents(lba), Durability::Fua).unwrap();
        }
    }
    for lba in 0..volume.geometry().blocks {
        let mut out = [0; BLOCK];
        volume.read(Lba(lba), &mut out).unwrap();
        assert_eq!(out, contents(lba));
    }
    assert!(check(&**region, Repair::No).unwrap().findings.is_empty());
}
