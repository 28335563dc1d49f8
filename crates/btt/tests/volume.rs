//! The volume as its users see it: format, open, read, write, zeroes, check, repair; on plain
//! memory.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_btt::{
    Btt, Contents, FormatSpec, Identity, OpenError, OpenOptions, Repair, Writes, check, format, identify, survey,
};
use tidegate_layout::btt::{InfoBlock, SECTOR_SIZES, Version};
use tidegate_media::{
    BlockDevice, Durability, Error, Extent, ExtentKind, Lba, LbaRange, Misuse, Poison, Region, Sealed,
};

type Interruption = Box<dyn FnMut() -> bool + Send>;

/// Memory without any of the medium's doubts.
struct Ram {
    bytes: Mutex<Vec<u8>>,
    /// How often blocks were streamed to each place.
    streams: Mutex<HashMap<u64, u64>>,
    /// What happens in the middle of each read of a block, until it answers false.
    amid_read: Mutex<Option<Interruption>>,
    /// How many fences go well before one fails, and how.
    failing_fence: Mutex<Option<(u32, Sealed)>>,
}

impl Ram {
    fn new(len: usize, fill: u8) -> Ram {
        Ram::of(vec![fill; len])
    }

    fn of(bytes: Vec<u8>) -> Ram {
        Ram {
            bytes: Mutex::new(bytes),
            streams: Mutex::default(),
            amid_read: Mutex::default(),
            failing_fence: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().expect("no test panics while it has the memory")
    }

    fn copy(&self) -> Ram {
        Ram::of(self.lock().clone())
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.lock()[at..at + len].to_vec()
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.lock()[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn interrupt_reads(&self, interruption: impl FnMut() -> bool + Send + 'static) {
        *self.amid_read.lock().expect("no test panics") = Some(Box::new(interruption));
    }

    fn flip(&self, at: u64) {
        self.lock()[at as usize] ^= 0x10;
    }
}

impl Region for Ram {
    fn len(&self) -> u64 {
        self.lock().len() as u64
    }
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let copy = |at: usize, out: &mut [u8]| out.copy_from_slice(&self.lock()[at..at + out.len()]);
        let (first, second) = out.split_at_mut(out.len() / 2);
        copy(at as usize, first);
        let interruption = if first.len() < 256 { None } else { self.amid_read.lock().expect("no test panics").take() };
        if let Some(mut interrupt) = interruption
            && interrupt()
        {
            *self.amid_read.lock().expect("no test panics") = Some(interrupt);
        }
        copy(at as usize + first.len(), second);
        Ok(())
    }
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.put(at, bytes);
    }
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.put(at, bytes);
        if bytes.len() < 512 {
            return;
        }
        *self.streams.lock().expect("no test panics while it has it").entry(at).or_default() += 1;
    }
    fn store_u64(&self, at: u64, word: u64) {
        assert!(at.is_multiple_of(8));
        self.put(at, &word.to_le_bytes());
    }
    fn flush(&self, _at: u64, _len: u64) {}
    fn fence(&self) -> Result<(), Sealed> {
        let mut failing = self.failing_fence.lock().expect("no test panics while it has it");
        match failing.take() {
            Some((0, loss)) => return Err(loss),
            Some((left, loss)) => *failing = Some((left - 1, loss)),
            None => {}
        }
        Ok(())
    }
}

const BYTES: usize = (16 << 20) + 4096;

fn spec(sector_size: u32, version: Version) -> FormatSpec {
    FormatSpec { version, sector_size, uuid: [7; 16], parent_uuid: [0; 16] }
}

fn fresh(sector_size: u32) -> Ram {
    let ram = Ram::new(BYTES, 0);
    format(&ram, &spec(sector_size, Version::V1_1), Contents::Zeroed).unwrap();
    ram
}

fn open(ram: Ram) -> Btt<Ram> {
    Btt::open(ram, &OpenOptions::default()).unwrap()
}

fn block(device: &impl BlockDevice, lba: u64) -> Vec<u8> {
    let mut out = vec![0x55; device.geometry().block_size as usize];
    device.read(Lba(lba), &mut out).unwrap();
    out
}

fn assert_sound(ram: &Ram) {
    let report = check(ram, Repair::No).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn every_sector_size_and_version_keeps_what_was_written() {
    for version in Version::ALL {
        for sector_size in SECTOR_SIZES {
            let ram = Ram::new(BYTES, 0xa7);
            format(&ram, &spec(sector_size, version), Contents::Unknown).unwrap();
            let volume = open(ram);
            let geometry = volume.geometry();
            let last = geometry.blocks - 1;
            let size = geometry.block_size as usize;
            assert_eq!(size, if sector_size >= 4096 { 4096 } else { 512 });
            assert_eq!(block(&volume, 5), vec![0; size], "a fresh volume reads zeroes");
            for round in 0..600u64 {
                volume.write(Lba(round % 7), &vec![round as u8; size], Durability::Fua).unwrap();
            }
            volume.write(Lba(last), &vec![0xee; size], Durability::Volatile).unwrap();
            let ram = volume.into_region();
            assert_sound(&ram);
            let volume = open(ram);
            for lba in 0..7 {
                let newest = (0..600u64).rev().find(|round| round % 7 == lba).unwrap();
                assert_eq!(block(&volume, lba), vec![newest as u8; size]);
            }
            assert_eq!(block(&volume, last), vec![0xee; size]);
            assert_eq!(block(&volume, last - 1), vec![0; size]);
        }
    }
}

#[test]
fn ranges_of_blocks() {
    let volume = open(fresh(4096));
    let data: Vec<u8> = (0..5 * 4096u32).map(|byte| (byte / 4096 + 1) as u8).collect();
    volume.write(Lba(10), &data, Durability::Volatile).unwrap();
    let mut out = vec![0; data.len()];
    volume.read(Lba(10), &mut out).unwrap();
    assert_eq!(out, data);
    volume.discard(LbaRange { first: Lba(11), blocks: 2 }).unwrap();
    volume.write_zeroes(LbaRange { first: Lba(14), blocks: 1 }, Durability::Fua).unwrap();
    let firsts: Vec<u8> = (10..15).map(|lba| block(&volume, lba)[0]).collect();
    assert_eq!(firsts, [1, 0, 0, 4, 0]);
    volume.write(Lba(11), &[9; 4096], Durability::Volatile).unwrap();
    assert_eq!(block(&volume, 11), [9; 4096]);
    let ram = volume.into_region();
    let counts = check(&ram, Repair::No).unwrap().counts;
    assert_eq!((counts.normal, counts.zero, counts.free), (3, 2, 256));
    assert_sound(&ram);
}

#[test]
fn zeroed_blocks_are_holes_and_end_extents() {
    let volume = open(fresh(4096));
    let extent = |first, blocks| volume.extent(LbaRange { first: Lba(first), blocks }).unwrap();
    volume.discard(LbaRange { first: Lba(10), blocks: 4 }).unwrap();
    assert_eq!(extent(0, 100), Extent { blocks: 10, kind: ExtentKind::Data });
    assert_eq!(extent(10, 100), Extent { blocks: 4, kind: ExtentKind::Hole });
    assert_eq!(extent(10, 3), Extent { blocks: 3, kind: ExtentKind::Hole }, "no more than was asked for");
    volume.write(Lba(11), &[7; 4096], Durability::Fua).unwrap();
    assert_eq!(extent(10, 100), Extent { blocks: 1, kind: ExtentKind::Hole });
    assert_eq!(extent(14, 2), Extent { blocks: 2, kind: ExtentKind::Data });
}

#[test]
fn small_sectors_are_zeroed_by_writing() {
    let volume = open(fresh(512));
    volume.write(Lba(3), &[1; 512 * 3], Durability::Volatile).unwrap();
    volume.discard(LbaRange { first: Lba(3), blocks: 1 }).unwrap();
    volume.write_zeroes(LbaRange { first: Lba(4), blocks: 1 }, Durability::Volatile).unwrap();
    let firsts: Vec<u8> = (3..6).map(|lba| block(&volume, lba)[0]).collect();
    assert_eq!(firsts, [1, 0, 1], "discard does nothing, write-zeroes writes");
    assert_eq!(check(volume.region(), Repair::No).unwrap().counts.zero, 0);
}

#[test]
fn misuse_changes_nothing() {
    let volume = open(fresh(4096));
    let blocks = volume.geometry().blocks;
    let past = Misuse::OutOfRange { first: blocks - 1, end: blocks + 1, blocks };
    assert_eq!(volume.write(Lba(blocks - 1), &[1; 8192], Durability::Fua), Err(Error::Misuse(past)));
    let partial = Misuse::PartialBlock { len: 100, block_size: 4096 };
    assert_eq!(volume.read(Lba(0), &mut [0; 100]), Err(Error::Misuse(partial)));
    let far = LbaRange { first: Lba(u64::MAX), blocks: 2 };
    assert!(matches!(volume.discard(far), Err(Error::Misuse(Misuse::OutOfRange { .. }))));
    assert_eq!(block(&volume, blocks - 1), [0; 4096]);
}

#[test]
fn an_interrupted_write_is_finished_on_open() {
    let volume = open(fresh(4096));
    volume.write(Lba(2), &[1; 4096], Durability::Fua).unwrap();
    let before = volume.region().copy();
    volume.write(Lba(2), &[2; 4096], Durability::Fua).unwrap();
    let after = volume.into_region();
    let map_at = 4096 + 0xff7000;
    after.put(map_at, &before.bytes(map_at as usize, 64));
    assert_eq!(check(&after, Repair::No).unwrap().counts.interrupted, 1);
    let volume = open(after);
    assert_eq!(block(&volume, 2), [2; 4096]);
    assert_eq!(check(volume.region(), Repair::No).unwrap().counts.interrupted, 0);
}

/// The block of sector 0 is copied by halves; in between its sector is written twice, so that the
/// second write goes to that block.
#[test]
fn a_block_that_is_written_to_while_it_is_copied_is_read_anew() {
    let volume = Arc::new(open(fresh(4096)));
    for interruptions in 1..6u8 {
        let write = |byte: u8| volume.write(Lba(0), &[byte; 4096], Durability::Fua).unwrap();
        write(100);
        let within = Arc::downgrade(&volume);
        let mut left = interruptions;
        volume.region().interrupt_reads(move || {
            left -= 1;
            let volume = within.upgrade().expect("it is read");
            // From another thread: past the third time the reader has the sector's word of the map
            // locked.
            let writer = std::thread::spawn(move || {
                for byte in [left, 50 + left] {
                    volume.write(Lba(0), &[byte; 4096], Durability::Fua).unwrap();
                }
            });
            let deadline = Instant::now() + Duration::from_millis(if left + 3 < interruptions { 50 } else { 10_000 });
            while !writer.is_finished() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            left > 0
        });
        let read = block(&*volume, 0);
        assert!(read.iter().all(|byte| *byte == read[0]), "torn after {interruptions} interruptions");
    }
}

/// The fence of a flog entry fails. Whether the entry is durable nobody knows, so no lane writes
/// any more.
#[test]
fn after_a_store_was_lost_nothing_is_written() {
    let volume = open(fresh(4096));
    volume.write(Lba(0), &[1; 4096], Durability::Fua).unwrap();
    let lost = Sealed::StoreLost { at: 77 };
    *volume.region().failing_fence.lock().unwrap() = Some((1, lost));
    assert_eq!(volume.write(Lba(0), &[2; 4096], Durability::Fua), Err(lost.into()));
    let before = volume.region().bytes(0, BYTES);
    for lba in [0, 1] {
        let elsewhere = || volume.write(Lba(lba), &[3; 4096], Durability::Fua);
        assert_eq!(elsewhere(), Err(lost.into()));
        assert_eq!(
            std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap()),
            Err(lost.into()),
            "by another lane"
        );
    }
    assert!(volume.region().bytes(0, BYTES) == before, "nothing was stored");
    assert_eq!(block(&volume, 0), [1; 4096]);
}

#[test]
fn a_lost_first_info_block_comes_back_from_its_twin() {
    for damage in [|ram: &Ram| ram.put(4096, &[0; 4096]), |ram: &Ram| ram.flip(4096 + 60)] {
        let ram = fresh(4096);
        let good = ram.bytes(4096, 4096);
        damage(&ram);
        assert!(matches!(identify(&ram).unwrap(), Identity::Damaged { twin: Some(_), .. }));
        assert_eq!(open(ram).into_region().bytes(4096, 4096), good);
    }
}

#[test]
fn a_first_info_block_of_somebody_else_is_left_alone() {
    let ram = fresh(4096);
    ram.put(4096, &[0x33; 4096]);
    let foreign = ram.bytes(4096, 4096);
    let error = Btt::open(ram.copy(), &OpenOptions::default()).err().unwrap();
    assert!(matches!(error, OpenError::FirstCopyForeign { at: 4096, .. }), "{error}");
    assert_eq!(ram.bytes(4096, 4096), foreign);
    let leave = OpenOptions { first_copy: tidegate_btt::FirstCopy::Leave, ..OpenOptions::default() };
    assert_eq!(Btt::open(ram.copy(), &leave).unwrap().into_region().bytes(4096, 4096), foreign);
    let report = check(&ram, Repair::Yes).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert_sound(&ram);
    assert_eq!(block(&open(ram), 0), [0; 4096]);
}

#[test]
fn regions_without_a_volume_say_what_they_hold() {
    let blank = Ram::new(BYTES, 0);
    assert_eq!(identify(&blank).unwrap(), Identity::Blank);
    assert_eq!(Btt::open(blank.copy(), &OpenOptions::default()).err(), Some(OpenError::Blank));
    let ext4 = Ram::new(BYTES, 0);
    ext4.put(0x438, b"\x53\xef");
    let what = "an ext2, ext3 or ext4 file system";
    assert_eq!(Btt::open(ext4, &OpenOptions::default()).err(), Some(OpenError::Foreign { what }));
    let short = Ram::new(BYTES - 8192, 0);
    short.put(4096, &fresh(4096).bytes(4096, 4096));
    let error = Btt::open(short, &OpenOptions::default()).err();
    assert_eq!(error, Some(OpenError::CutShort { needs: BYTES as u64, has: BYTES as u64 - 8192 }));
}

#[test]
fn check_names_each_damage_and_repair_mends_it() {
    const INFO2: u64 = 4096 + 0xfff000;
    type Damage = fn(&Ram);
    let cases: [(&str, Damage); 12] = [
        ("the first info block is good", |ram| ram.flip(4096 + 200)),
        ("the second info block is good", |ram| ram.flip(INFO2 + 200)),
        ("a map entry names a block of its arena", |ram| ram.put(MAP + 8, &0xc000_ffffu32.to_le_bytes())),
        ("no two map entries name one block", |ram| ram.put(MAP + 8, &0xc000_0007u32.to_le_bytes())),
        ("a lane's free block is named nowhere else", |ram| {
            ram.put(MAP + 8, &(0xc000_0000u32 | (3829 + 100)).to_le_bytes())
        }),
        ("the two sequence numbers follow each other", |ram| ram.put(FLOG + 64 * 9 + 12, &9u32.to_le_bytes())),
        ("a flog entry names a sector of its arena", |ram| ram.put(FLOG + 64 * 9, &99999u32.to_le_bytes())),
        ("a flog entry names the block it replaced", |ram| ram.put(FLOG + 64 * 9 + 4, &99999u32.to_le_bytes())),
        ("a flog entry names the block it wrote", |ram| ram.put(FLOG + 64 * 9 + 8, &99999u32.to_le_bytes())),
        ("slot 3 of each lane is zero", |ram| ram.put(FLOG + 64 * 9 + 48, &[1])),
        ("a lane uses two slots", |ram| ram.put(FLOG + 64 * 9 + 16, &[1; 32])),
        ("slot 0 of each lane was written", |ram| ram.put(FLOG + 64 * 9, &[0; 16])),
    ];
    for (rule, damage) in cases {
        let volume = open(fresh(4096));
        for lba in 0..600u64 {
            volume.write(Lba(lba % 200), &[lba as u8; 4096], Durability::Fua).unwrap();
        }
        let ram = volume.into_region();
        damage(&ram);
        let damaged = ram.copy();
        let report = check(&ram, Repair::No).unwrap();
        assert!(report.findings.iter().any(|finding| finding.corrupt.rule == rule), "{rule}: {:?}", report.findings);
        assert!(!report.is_sound());
        assert_eq!(ram.bytes(0, BYTES), damaged.bytes(0, BYTES), "a check changes nothing");
        assert!(check(&ram, Repair::Yes).unwrap().is_sound());
        assert_sound(&ram);
        let volume = open(ram);
        for lba in 10..600u64 {
            volume.write(Lba(lba), &[0xab; 4096], Durability::Fua).unwrap();
            assert_eq!(block(&volume, lba), [0xab; 4096]);
        }
        assert_sound(volume.region());
    }
}

#[test]
fn the_error_flag_stops_writes_until_it_is_repaired() {
    let ram = fresh(4096);
    let mut info = <InfoBlock as zerocopy::FromBytes>::read_from_bytes(&ram.bytes(4096, 4096)).unwrap();
    info = info.with_error(true);
    for at in [4096, 4096 + 0xfff000] {
        ram.put(at, zerocopy::IntoBytes::as_bytes(&info));
    }
    let volume = only_readable(ram, "the arena's error flag is clear");
    assert_eq!(block(&volume, 0), [0; 4096]);
    let ram = volume.into_region();
    assert_eq!(check(&ram, Repair::Yes).unwrap().findings.len(), 1);
    open(ram).write(Lba(0), &[1; 4096], Durability::Fua).unwrap();
}

/// Opens for reading the volume in `ram`, which is not opened for writing because of `rule`;
/// neither changes a byte.
fn only_readable(ram: Ram, rule: &str) -> Btt<Ram> {
    let before = ram.bytes(0, BYTES);
    let refused = Btt::open(ram.copy(), &OpenOptions::default()).err().unwrap();
    assert!(matches!(&refused, OpenError::Unwritable(corrupt) if corrupt.rule == rule), "{rule}: {refused}");
    assert_eq!(survey(&ram).unwrap().unwritable.unwrap().rule, rule);
    let volume = Btt::open(ram, &OpenOptions { writes: Writes::Refused, ..OpenOptions::default() }).unwrap();
    assert!(volume.geometry().read_only);
    let range = LbaRange { first: Lba(0), blocks: 1 };
    let refusals = [
        volume.write(Lba(0), &[1; 4096], Durability::Fua),
        volume.write(Lba(0), &[1; 8192], Durability::Fua),
        volume.write_zeroes(range, Durability::Fua),
        volume.discard(range),
        volume.rehearse(&[1; 4096]).map(|_| ()),
    ];
    assert!(refusals.iter().all(|refusal| *refusal == Err(Error::Misuse(Misuse::ReadOnly))), "{refusals:?}");
    assert!(volume.region().bytes(0, BYTES) == before, "{rule}: something was stored");
    volume
}

const MAP: u64 = 4096 + 0xff7000;
const FLOG: u64 = 4096 + 0xffb000;

/// A volume in which every sector below 100 holds its number.
fn numbered() -> Ram {
    let volume = open(fresh(4096));
    (0..100).for_each(|lba| volume.write(Lba(lba), &[lba as u8; 4096], Durability::Fua).unwrap());
    volume.into_region()
}

/// A power cut may leave a stale line of the flog; kernels whose processors shared lanes left such
/// blocks too.
#[test]
fn a_volume_whose_free_block_is_a_sectors_too_is_not_written() {
    let ram = numbered();
    let block_of_7: [u8; 4] = ram.bytes(MAP as usize + 4 * 7, 4).try_into().unwrap();
    let free = (u32::from_le_bytes(block_of_7) & 0x3fff_ffff).to_le_bytes();
    // Lane 200 never wrote: its slot says that its block is this one, before and after.
    ram.put(FLOG + 64 * 200 + 4, &[free, free].concat());
    let volume = only_readable(ram, "a lane's free block is named nowhere else");
    assert_eq!(block(&volume, 7), [7; 4096]);
    let ram = volume.into_region();
    let found = check(&ram, Repair::No).unwrap();
    let seven = LbaRange { first: Lba(7), blocks: 1 };
    assert_eq!((found.at_stake, found.doubtful), (vec![], vec![seven]));
    let repaired = check(&ram, Repair::Yes).unwrap();
    assert!(repaired.is_sound() && repaired.given_up == 0);
    let volume = open(ram);
    assert_eq!((block(&volume, 7), volume.rehearse(&[1; 4096])), (vec![7; 4096], Ok(256)));
    assert_eq!(block(&volume, 7), [7; 4096]);
}

#[test]
fn a_volume_two_of_whose_lanes_own_one_block_is_not_written() {
    let ram = numbered();
    ram.put(FLOG + 64 * 200, &ram.bytes(FLOG as usize + 64 * 201, 64));
    assert_eq!(block(&only_readable(ram, "a lane's free block is named nowhere else"), 7), [7; 4096]);
}

#[test]
fn a_repair_says_beforehand_what_it_gives_up() {
    let ram = numbered();
    let entry_of_3 = ram.bytes(MAP as usize + 4 * 3, 4);
    [20, 21, 22].into_iter().for_each(|lba| ram.put(MAP + 4 * lba, &entry_of_3));
    ram.put(MAP + 4 * 60, &0xc000_ffff_u32.to_le_bytes());
    let ram = only_readable(ram, "no two map entries name one block").into_region();
    let range = |first, blocks| LbaRange { first: Lba(first), blocks };
    let at_stake = vec![range(3, 1), range(20, 3), range(60, 1)];
    let found = check(&ram, Repair::No).unwrap();
    assert_eq!((&found.at_stake, found.given_up), (&at_stake, 0));
    let repaired = check(&ram, Repair::Yes).unwrap();
    assert_eq!((&repaired.at_stake, repaired.given_up, repaired.counts.error), (&at_stake, 5, 5));
    let volume = open(ram);
    for lba in 0..100 {
        let lost = at_stake.iter().any(|range| (range.first.0..range.end()).contains(&lba));
        assert_eq!(volume.read(Lba(lba), &mut [0; 4096]).is_err(), lost, "sector {lba}");
    }
}

#[test]
fn a_survey_tells_what_an_opening_would_restore_and_who_has_the_first_block_instead() {
    let ram = fresh(4096);
    ram.flip(4096 + 60);
    let found = survey(&ram).unwrap();
    assert_eq!((found.broken, found.findings[0].rule, &found.unwritable), (1, "the first info block is good", &None));
    assert_eq!(open(ram.copy()).survey(), &found);
    ram.put(4096, &[0x33; 4096]);
    assert!(matches!(survey(&ram), Err(OpenError::FirstCopyForeign { .. })));
}

/// How often the most written block was written, of one sector that is written 50,000 times beside
/// a hundred that are not.
fn most_written(level_wear_every: Option<NonZeroU32>) -> u64 {
    const WRITES: u64 = 50_000;
    let ram = open(fresh(4096)).into_region();
    let volume = Btt::open(ram, &OpenOptions { level_wear_every, ..OpenOptions::default() }).unwrap();
    let content = |lba: u64| vec![lba as u8; 4096];
    for lba in 0..100 {
        volume.write(Lba(lba), &content(lba), Durability::Fua).unwrap();
    }
    for _ in 0..WRITES {
        volume.write(Lba(3), &content(3), Durability::Fua).unwrap();
    }
    let moves = level_wear_every.map_or(0, |every| WRITES / u64::from(every.get()));
    assert!(volume.moved() >= moves * 9 / 10 && volume.moved() <= moves * 11 / 10, "{} of {moves}", volume.moved());
    (0..100).for_each(|lba| assert_eq!(block(&volume, lba), content(lba), "sector {lba} moved with what it had"));
    let ram = volume.into_region();
    assert_sound(&ram);
    let streams = ram.streams.lock().unwrap();
    streams.values().copied().max().unwrap()
}

#[test]
fn levelling_spreads_the_writes_of_one_sector_over_all_blocks() {
    let worn = most_written(None);
    assert!(worn >= 25_000, "the sector has two blocks in turn: {worn}");
    let levelled = most_written(NonZeroU32::new(10));
    assert!(levelled < worn / 50, "{levelled} of {worn}");
}

/// What was streamed for a write that fails might else reach the lane's block after the data of the
/// lane's next holder.
#[test]
fn a_write_that_finds_its_map_entry_corrupt_passes_a_fence_all_the_same() {
    let volume = open(fresh(4096));
    let map_at = 4096 + 0xff7000;
    volume.region().store_u64(map_at, u64::MAX);
    *volume.region().failing_fence.lock().unwrap() = Some((9, Sealed::StoreLost { at: 0 }));
    let refused = volume.write(Lba(0), &[1; 4096], Durability::Fua).unwrap_err();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
    let left = volume.region().failing_fence.lock().unwrap().take().unwrap();
    assert_eq!(left.0, 8, "one fence");
    volume.write(Lba(7), &[2; 4096], Durability::Fua).unwrap();
    assert_eq!(block(&volume, 7), [2; 4096]);
}
