//! What every staging cache owes its users, and what each rule lets go of when.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use super::*;
use crate::raw::RawPmem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_media::{MappedRegion, Region};
use tidegate_sim::Rng;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
const SLOTS: u32 = 16;

/// A device in memory that counts its writes.
struct Below {
    bytes: MappedRegion,
    writes: AtomicU64,
    flushes: AtomicU64,
}

impl Below {
    fn new() -> Arc<Below> {
        let bytes = MappedRegion::anonymous(BLOCKS * BLOCK as u64).unwrap();
        Arc::new(Below { bytes, writes: AtomicU64::new(0), flushes: AtomicU64::new(0) })
    }

    fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

impl BlockDevice for Below {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: 512,
            blocks: BLOCKS,
            atomic_blocks: 1,
            volatile_cache: false,
            read_only: false,
            fast_zeroes: false,
        }
    }
    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        Ok(self.bytes.read(at.0 * BLOCK as u64, out)?)
    }
    fn write(&self, at: Lba, data: &[u8], _: Durability) -> Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.write(at.0 * BLOCK as u64, data);
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn discard(&self, _: LbaRange) -> Result<()> {
        Ok(())
    }
    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        range.iter().try_for_each(|lba| self.write(lba, &[0; BLOCK], durability))
    }
    fn extent(&self, range: LbaRange) -> Result<Extent> {
        Ok(Extent { blocks: range.blocks, kind: ExtentKind::Hole })
    }
}

fn put(device: &dyn BlockDevice, lba: u64, byte: u8) {
    device.write(Lba(lba), &[byte; BLOCK], Durability::Volatile).unwrap();
}

fn get(device: &dyn BlockDevice, lba: u64) -> u8 {
    let mut block = [0; BLOCK];
    device.read(Lba(lba), &mut block).unwrap();
    assert!(block.iter().all(|byte| *byte == block[0]), "block {lba} is torn");
    block[0]
}

/// A random script against a map; after each flush the device below has everything.
fn keeps_what_it_was_given<P: Rule>() {
    let below = Below::new();
    let cache = Staging::<P>::new(below.clone(), SLOTS).unwrap();
    let (mut model, mut random) = (HashMap::new(), Rng::new(7));
    for _ in 0..20_000 {
        let (lba, byte) = (random.below(BLOCKS), (random.below(255) + 1) as u8);
        match random.below(100) {
            0..60 => {
                put(&cache, lba, byte);
                model.insert(lba, byte);
            }
            60..70 => {
                cache.write(Lba(lba), &[byte; BLOCK], Durability::Fua).unwrap();
                model.insert(lba, byte);
                assert_eq!(get(&*below, lba), byte, "a write with FUA is in the device when it returns");
            }
            70..90 => assert_eq!(get(&cache, lba), model.get(&lba).copied().unwrap_or(0)),
            90..94 => {
                cache.background_step().unwrap();
            }
            94..98 => {
                let range = LbaRange { first: Lba(lba), blocks: 3.min(BLOCKS - lba) };
                cache.write_zeroes(range, Durability::Volatile).unwrap();
                model.extend(range.iter().map(|lba| (lba.0, 0)));
            }
            _ => {
                cache.flush().unwrap();
                model.iter().for_each(|(lba, byte)| assert_eq!(get(&*below, *lba), *byte));
            }
        }
        assert!(cache.cached() <= SLOTS);
    }
}

/// Writers that each own every fourth block, a reader, and the thread beside the cache.
fn keeps_it_under_four_writers<P: Rule>() {
    let cache = Staging::<P>::new(Below::new(), SLOTS).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cache.background_step().unwrap();
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let cache = &cache;
                scope.spawn(move || {
                    let (mut last, mut random) = (HashMap::new(), Rng::new(writer));
                    for turn in 0..3_000_u32 {
                        let lba = random.below(BLOCKS / 4) * 4 + writer;
                        let byte = (turn % 255 + 1) as u8;
                        put(cache, lba, byte);
                        last.insert(lba, byte);
                        let other = random.below(BLOCKS / 4) * 4 + writer;
                        assert_eq!(get(cache, other), last.get(&other).copied().unwrap_or(0));
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::<(), _>::is_ok));
    });
}

#[test]
fn all_of_them_keep_what_they_were_given() {
    keeps_what_it_was_given::<Pmbd>();
    keeps_what_it_was_given::<Pmbd70>();
    keeps_what_it_was_given::<Lru>();
    keeps_what_it_was_given::<Coa>();
}

#[test]
fn all_of_them_keep_it_under_many_writers() {
    keeps_it_under_four_writers::<Pmbd>();
    keeps_it_under_four_writers::<Pmbd70>();
    keeps_it_under_four_writers::<Lru>();
    keeps_it_under_four_writers::<Coa>();
}

fn filled<P: Rule>() -> (Staging<P>, Arc<Below>) {
    let below = Below::new();
    let cache = Staging::<P>::new(below.clone(), SLOTS).unwrap();
    (0..u64::from(SLOTS)).for_each(|lba| put(&cache, lba, 1));
    assert_eq!((below.writes(), cache.cached()), (0, SLOTS), "nothing is let go of before the cache is full");
    (cache, below)
}

#[test]
fn pmbd_lets_go_of_everything_when_nothing_is_free() {
    let (cache, below) = filled::<Pmbd>();
    put(&cache, 3, 2);
    assert_eq!(below.writes(), 0, "a hit needs no slot");
    put(&cache, 40, 1);
    assert_eq!((below.writes(), cache.cached()), (u64::from(SLOTS), 1));
}

/// A device of 32 stripes, two for each buffer.
fn wide<P: Rule>(slots: u32) -> (Buffers<P>, Arc<RawPmem<MappedRegion>>) {
    let below = MappedRegion::anonymous(32 * 1024 * BLOCK as u64).unwrap();
    let below = Arc::new(RawPmem::new(below, BLOCK as u32).unwrap());
    let memory = MappedRegion::anonymous(u64::from(slots) * BLOCK as u64).unwrap();
    (Buffers::over(Arc::new(memory), below.clone(), slots).unwrap(), below)
}

#[test]
fn only_the_sub_buffer_that_is_full_lets_go() {
    let (cache, below) = wide::<Pmbd>(16 * 4);
    // Four blocks for each of the first two buffers; then one more for the first.
    (0..4).chain(1024..1028).for_each(|lba| put(&cache, lba, 1));
    assert_eq!((cache.cached(), get(&*below, 0), get(&*below, 1024)), (8, 0, 0));
    put(&cache, 16 * 1024, 1);
    assert_eq!((cache.cached(), get(&*below, 0), get(&*below, 1024)), (5, 1, 0), "the second one keeps its own");
    let mut across = [0; 4 * BLOCK];
    cache.write(Lba(1022), &[7; 4 * BLOCK], Durability::Volatile).unwrap();
    cache.read(Lba(1022), &mut across).unwrap();
    assert_eq!(across, [7; 4 * BLOCK], "a request may cross from one buffer to the next");
    cache.flush().unwrap();
    assert_eq!((get(&*below, 1023), get(&*below, 1025)), (7, 7));
}

#[test]
fn metadata_are_counted_from_what_the_code_has() {
    let each = |bytes: usize| bytes / 4096;
    let filled = |cache: &dyn BlockDevice| (0..32 * 1024).for_each(|lba| put(cache, lba, 1));
    let (pmbd, lru, coa) = (wide::<Pmbd>(4096).0, wide::<Lru>(4096).0, wide::<Coa>(4096).0);
    [&pmbd as &dyn BlockDevice, &lru, &coa].into_iter().for_each(filled);
    let [pmbd, lru, coa] = [pmbd.metadata_bytes(), lru.metadata_bytes(), coa.metadata_bytes()].map(each);
    // A state of 24 bytes and more, a place in the table of 17; a list has links of 12.
    assert!(pmbd > 40 && lru >= pmbd - 20 && coa >= lru + 12, "{pmbd} {lru} {coa}");
}

#[test]
fn pmbd_70_lets_go_from_seven_tenths_down_to_one() {
    let below = Below::new();
    let cache = Staging::<Pmbd70>::new(below.clone(), SLOTS).unwrap();
    (0..11).for_each(|lba| put(&cache, lba, 1));
    assert!(!cache.background_step().unwrap());
    assert_eq!(below.writes(), 0, "11 of 16 are 69 %");
    put(&cache, 11, 1);
    while cache.background_step().unwrap() {}
    assert_eq!((below.writes(), cache.cached()), (12, 0), "two of 16 are more than a tenth, and a batch");
    (0..17).for_each(|lba| put(&cache, lba, 1));
    assert_eq!(below.writes(), 14, "a writer that finds nothing free flushes a batch, here two slots");
}

#[test]
fn a_batch_of_pmbd_70_is_a_part_of_the_whole_cache_whatever_buffer_it_is_of() {
    // A 128th of 256 slots are two, of the 16 that the first buffer has.
    let (cache, below) = wide::<Pmbd70>(256);
    (0..16).for_each(|lba| put(&cache, lba, 1));
    assert_eq!((cache.cached(), get(&*below, 0)), (16, 0), "full, and no writer needs room");
    put(&cache, 16, 1);
    assert_eq!((cache.cached(), get(&*below, 0), get(&*below, 1), get(&*below, 2)), (15, 1, 1, 0));
}

#[test]
fn a_flush_of_all_buffers_flushes_the_device_once() {
    let below = Below::new();
    let memory = MappedRegion::anonymous(64 * BLOCK as u64).unwrap();
    let cache = Buffers::<Pmbd>::over(Arc::new(memory), below.clone(), 64).unwrap();
    put(&cache, 7, 1);
    cache.flush().unwrap();
    assert_eq!((get(&*below, 7), below.writes(), below.flushes.load(Ordering::Relaxed)), (1, 1, 1));
}

#[test]
fn lru_lets_go_of_the_block_used_longest_ago() {
    let (cache, below) = filled::<Lru>();
    put(&cache, 0, 2);
    get(&cache, 1);
    put(&cache, 40, 1);
    assert_eq!((below.writes(), cache.cached()), (1, SLOTS));
    assert_eq!((get(&*below, 0), get(&*below, 1), get(&*below, 2)), (0, 0, 1));
    cache.flush().unwrap();
    assert_eq!((below.writes(), cache.cached()), (1 + u64::from(SLOTS), SLOTS), "a flush keeps what it cleans");
    put(&cache, 41, 1);
    assert_eq!(below.writes(), 1 + u64::from(SLOTS), "a clean block goes without a write");
}

#[test]
fn coa_lets_go_of_clean_then_cold_blocks_and_cleans_when_idle() {
    let (cache, below) = filled::<Coa>();
    put(&cache, 0, 2);
    put(&cache, 40, 1);
    assert_eq!((get(&*below, 0), get(&*below, 1)), (0, 1), "block 0 is hot, block 1 the oldest cold one");
    cache.rule.begin();
    assert!(cache.background_step().unwrap(), "it is to look again");
    assert_eq!(below.writes(), 1, "nothing is cleaned beside a request");
    cache.rule.end();
    while cache.background_step().unwrap() {}
    assert_eq!((below.writes(), get(&*below, 0)), (u64::from(SLOTS), 0), "all but the hot one are clean");
    put(&cache, 41, 1);
    assert_eq!((below.writes(), cache.cached()), (u64::from(SLOTS), SLOTS), "a clean one goes without a write");
}

#[test]
fn a_hole_with_a_cached_block_is_data_there() {
    let (cache, _) = filled::<Lru>();
    let range = |first| LbaRange { first: Lba(first), blocks: 40 };
    assert_eq!(cache.extent(range(0)).unwrap(), Extent { blocks: 16, kind: ExtentKind::Data });
    assert_eq!(cache.extent(range(20)).unwrap(), Extent { blocks: 40, kind: ExtentKind::Hole });
}
