//! PMDK's judgement of our images, and PMDK's block pools here.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::path::Path;
use tidegate_btt::{FormatSpec, Repair};
use tidegate_layout::btt::{FlogHalf, MapEntry, SlotPair, Version, newest_slot};
use tidegate_media::{BlockDevice, Error, Lba};
use tidegate_trials::golden;
use tidegate_trials::namespace::Namespace;
use tidegate_trials::pmdk::{self, Pool};
use tidegate_trials::sectors::{self, Dice, Model};
use tidegate_trials::surgery::Opened;

const BYTES: u64 = 32 << 20;

fn spec(sector_size: u32) -> FormatSpec {
    FormatSpec { version: Version::V1_1, sector_size, uuid: [0x77; 16], parent_uuid: [0; 16] }
}

/// An image of ours with writes, zeroed blocks and discarded ones.
fn written(folder: &Path, sector_size: u32) -> std::path::PathBuf {
    let image = folder.join(format!("ours-{sector_size}"));
    let namespace = Namespace::create(&image, BYTES);
    namespace.format(&spec(sector_size));
    let btt = namespace.into_btt();
    let (mut model, mut dice) = (Model::default(), Dice::new(u64::from(sector_size)));
    for _ in 0..2000 {
        model.write(&btt, dice.below(btt.geometry().blocks));
    }
    model.write_zeroes(&btt, 10, 500);
    model.discard(&btt, 3000, 500);
    image
}

/// Rules that we find broken; an image that cannot be checked at all breaks one.
fn our_findings(image: &Path) -> usize {
    tidegate_btt::check(&Namespace::open(image, 0), Repair::No).map_or(1, |report| report.findings.len())
}

#[test]
fn pmdk_finds_our_images_consistent() {
    let folder = tempfile::tempdir().unwrap();
    for sector_size in tidegate_layout::btt::SECTOR_SIZES {
        let image = written(folder.path(), sector_size);
        let verdict = pmdk::check(&image).unwrap();
        assert!(verdict.consistent, "sector size {sector_size}: {}", verdict.said);
        assert_eq!(our_findings(&image), 0, "sector size {sector_size}");
    }
    let fresh = folder.path().join("fresh");
    Namespace::create(&fresh, BYTES).format(&spec(4096));
    assert!(pmdk::check(&fresh).unwrap().consistent);
    let linuxs = folder.path().join("linuxs");
    golden::V1_1.unpack(&linuxs).unwrap();
    assert!(pmdk::check(&linuxs).unwrap().consistent);
}

type Damage = (&'static str, fn(&Opened));

/// Damage that both checkers have to see.
const DAMAGE: [Damage; 8] = [
    ("a map entry past the last block", |image| image.set_map(42, MapEntry::normal(1 << 29))),
    ("two map entries of one block", |image| image.set_map(4000, MapEntry::normal(image.map(10).block(10)))),
    ("a map entry of a lane's free block", |image| image.set_map(7, MapEntry::normal(free_block(image, 9)))),
    ("a free block past the last block", |image| {
        image.set_slot(200, 0, FlogHalf::new(200, 1 << 29, 1 << 29, 1));
    }),
    ("two lanes with one free block", |image| {
        let block = free_block(image, 9);
        image.set_slot(200, 0, FlogHalf::new(200, block, block, 1));
    }),
    ("equal sequence numbers", |image| {
        image.set_slot(201, 1, image.flog(201).slots[0]);
    }),
    ("a wrong checksum in the first info block", |image| image.write(image.arena().start() + 200, b"x")),
    ("a first info block without its signature", |image| image.write(image.arena().start(), b"XX")),
];

fn free_block(image: &Opened, lane: u32) -> u32 {
    let pair = SlotPair::Adjacent.of(&image.flog(lane));
    MapEntry::strip(pair[newest_slot(&pair).unwrap()].old.get())
}

#[test]
fn pmdk_and_we_both_find_damage() {
    let folder = tempfile::tempdir().unwrap();
    let master = written(folder.path(), 4096);
    for (name, damage) in DAMAGE {
        let image = folder.path().join("damaged");
        std::fs::copy(&master, &image).unwrap();
        damage(&Opened::first_arena(&image, Version::V1_1));
        let verdict = pmdk::check(&image).unwrap();
        assert!(!verdict.consistent, "{name}: {}", verdict.said);
        assert!(our_findings(&image) > 0, "{name}");
    }
}

/// What was done to a pool: writes of two generations, zeroed blocks, blocks in error, blocks never
/// written.
struct PoolModel {
    model: Model,
    errors: Vec<u64>,
}

fn fill_pool(pool: &Pool) -> PoolModel {
    let (mut model, mut dice) = (Model::default(), Dice::new(5));
    let plan: String =
        model.plan(&mut dice, 1500, 1000).lines().map(|line| format!("write {line}\n")).collect::<String>();
    let zeroed: Vec<u64> = (100..150).chain([2000, 2001]).collect();
    let errors: Vec<u64> = (200..210).chain([2100]).collect();
    zeroed.iter().for_each(|block| model.set(*block, 0));
    let states = zeroed.iter().map(|block| format!("zero {block}\n"));
    let states: String = states.chain(errors.iter().map(|block| format!("error {block}\n"))).collect();
    pool.apply(&(plan + &states)).unwrap();
    PoolModel { model, errors }
}

impl PoolModel {
    fn assert_reads_in(&self, device: &dyn BlockDevice) {
        let mut bytes = vec![0; device.geometry().block_size as usize];
        for block in 0..device.geometry().blocks {
            match self.errors.contains(&block) {
                true => {
                    let answer = device.read(Lba(block), &mut bytes);
                    assert!(matches!(answer, Err(Error::Media(_))), "block {block}: {answer:?}");
                }
                false => assert_eq!(sectors::read_generation(device, block), self.model.generation(block), "{block}"),
            }
        }
    }
}

#[test]
fn a_pool_of_libpmemblk_opens_here_and_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    for block_size in [512, 4096] {
        let pool = Pool::create(&folder.path().join(format!("pool-{block_size}")), block_size, BYTES).unwrap();
        let mut expected = fill_pool(&pool);
        let image = folder.path().join(format!("raw-{block_size}"));
        pool.export(&image).unwrap();
        assert_eq!(our_findings(&image), 0);
        let btt = Namespace::open(&image, 0).into_btt();
        expected.assert_reads_in(&btt);
        write_here(&btt, &mut expected);
        expected.assert_reads_in(&btt);
        drop(btt);
        pool.import(&image).unwrap();
        assert!(pool.is_consistent().unwrap());
        assert_pool_reads(&pool, block_size, &expected);
    }
}

/// Writes over data, over zeroed blocks, over errors and over blocks never written.
fn write_here(btt: &dyn BlockDevice, expected: &mut PoolModel) {
    for block in (0..1200).step_by(3).chain([104, 201, 2000, 5000]) {
        expected.model.write(btt, block);
        expected.errors.retain(|error| *error != block);
    }
    expected.model.write_zeroes(btt, 300, 7);
}

fn assert_pool_reads(pool: &Pool, block_size: u32, expected: &PoolModel) {
    let contents = pool.read().unwrap();
    assert_eq!(contents.errors, expected.errors);
    for (block, bytes) in (0..).zip(contents.bytes.chunks(block_size as usize)) {
        let generation = if expected.errors.contains(&block) { 0 } else { expected.model.generation(block) };
        assert_eq!(sectors::generation(bytes, block), Ok(generation), "block {block} as PMDK reads it");
    }
}
