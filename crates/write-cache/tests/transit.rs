//! The cache as its users see it: what is read, what is in the device when, what is counted, what a
//! failure does.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_layout::write_cache::CacheHead;
use tidegate_media::{
    BlockDevice, Durability, Error, Extent, ExtentKind, Geometry, Lba, LbaRange, MappedRegion, Poison, Region, Result,
};
use tidegate_sim::{Disk, DiskFault, Intercept, Intercepted, SharedMemory};
use tidegate_write_cache::{
    CompleteError, Counters, CreateError, Doorbell, DrainStep, Fill, Options, WriteCache, bytes_for, complete,
};
use zerocopy::IntoBytes;

const BLOCK: usize = 512;
const BLOCKS: u64 = 1000;
const VOLUME: [u8; 16] = [7; 16];

/// What a thread may take for what needs a moment.
const PATIENCE: Duration = Duration::from_secs(20);

fn options(slots: u32) -> Options {
    Options::new(VOLUME, slots)
}

fn memory(slots: u32) -> MappedRegion {
    MappedRegion::anonymous(bytes_for(slots, BLOCK as u32)).unwrap()
}

fn cache_with(options: Options) -> (WriteCache<MappedRegion>, Arc<Disk>) {
    let disk = Arc::new(Disk::new(BLOCKS, BLOCK as u32));
    (WriteCache::create(memory(options.slots), disk.clone(), options).unwrap(), disk)
}

fn cache(slots: u32) -> (WriteCache<MappedRegion>, Arc<Disk>) {
    cache_with(options(slots))
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

fn drain(cache: &WriteCache<MappedRegion>, budget: u32) -> DrainStep {
    cache.drain_step(budget, &mut 0, &mut [0; BLOCK]).unwrap()
}

#[test]
fn a_write_is_read_at_once_and_reaches_the_device_by_draining() {
    for fill in [Fill::Copy, Fill::Stream] {
        let (cache, disk) = cache_with(Options { fill, ..options(8) });
        put(&cache, 3, 1);
        put(&cache, 4, 2);
        assert_eq!((get(&cache, 3), get(&cache, 4), get(&cache, 5)), (1, 2, 0));
        assert_eq!((get(&*disk, 3), get(&*disk, 4)), (0, 0), "nothing is evicted but by draining");
        assert_eq!(cache.bytes_left(), 2 * BLOCK as u64);
        assert_eq!(drain(&cache, 1), DrainStep { evicted: 1, more: true });
        assert_eq!(drain(&cache, 9), DrainStep { evicted: 1, more: false });
        assert_eq!((get(&*disk, 3), get(&*disk, 4), cache.bytes_left()), (1, 2, 0));
        assert_eq!((get(&cache, 3), get(&cache, 4)), (1, 2));
    }
}

#[test]
fn every_count_is_exact() {
    let (cache, _) = cache(4);
    cache.set_doorbell(Box::new(Rings::default()));
    for lba in 0..4 {
        put(&cache, lba, 1);
    }
    get(&cache, 0);
    get(&cache, 77);
    put(&cache, 4, 1); // No slot is left.
    cache.write(Lba(5), &[9; 2 * BLOCK], Durability::Fua).unwrap();
    assert_eq!(drain(&cache, 3).evicted, 3);
    put(&cache, 3, 2); // Block 3 is the one that is left: the sets are drained in the order of their arrival here.
    cache.flush().unwrap();
    assert!(cache.may_sleep());
    put(&cache, 8, 1);
    let expected = Counters {
        cached: 6,
        replaced: 1,
        bypassed: 1,
        forced: 2,
        evicted: 4,
        stalled: 0,
        stalled_ns: 0,
        read_hits: 1,
        wake_ups: 1,
        flushes: 1,
        slots_used: 1,
        slots_limit: 4,
    };
    assert_eq!(cache.counters(), expected);
}

#[test]
fn a_hit_takes_the_place_of_the_older_version() {
    let (cache, disk) = cache(4);
    for byte in 1..=100 {
        put(&cache, 7, byte);
    }
    assert_eq!(get(&cache, 7), 100);
    let counters = cache.counters();
    assert_eq!((counters.cached, counters.replaced, counters.slots_used), (100, 99, 1));
    cache.flush().unwrap();
    assert_eq!((get(&*disk, 7), cache.counters().evicted), (100, 1), "one version reaches the device");
}

#[test]
fn with_no_slot_free_writes_go_to_the_device_and_in_order() {
    let (cache, disk) = cache(2);
    put(&cache, 1, 1);
    put(&cache, 2, 1);
    put(&cache, 3, 1);
    assert_eq!(get(&*disk, 3), 1);
    put(&cache, 1, 2);
    assert_eq!((get(&*disk, 1), get(&cache, 1)), (2, 2), "the older version went before");
    drain(&cache, 9);
    assert_eq!((get(&*disk, 1), get(&*disk, 2)), (2, 1), "and nothing older comes after");
    let counters = cache.counters();
    assert_eq!((counters.bypassed, counters.stalled, counters.evicted), (2, 1, 2));
}

#[test]
fn without_bypass_a_writer_evicts() {
    /// A clock that goes on by a microsecond each time somebody looks at it.
    fn now_ns() -> u64 {
        static LOOKS: AtomicU64 = AtomicU64::new(0);
        LOOKS.fetch_add(1, Ordering::Relaxed) * 1000
    }
    let (cache, disk) = cache_with(Options { bypass: false, ..options(2) });
    cache.set_clock(now_ns);
    for lba in 0..5 {
        put(&cache, lba, 1);
    }
    let counters = cache.counters();
    assert_eq!((counters.bypassed, counters.evicted, counters.stalled), (0, 3, 3));
    assert_eq!(counters.stalled_ns, 3000, "each stall is looked at when it begins and when it ends");
    assert_eq!((0..5).filter(|lba| get(&*disk, *lba) == 1).count(), 3);
}

#[test]
fn without_eager_eviction_nothing_is_drained_before_the_cache_is_full() {
    let (cache, _) = cache_with(Options { eager: false, ..options(2) });
    put(&cache, 1, 1);
    put(&cache, 2, 1);
    assert_eq!(drain(&cache, 9).evicted, 0);
    put(&cache, 3, 1);
    assert_eq!(drain(&cache, 9).evicted, 2);
    put(&cache, 1, 1);
    assert_eq!(drain(&cache, 9).evicted, 0, "it is not full any more");
}

#[test]
fn a_flush_makes_everything_before_it_durable() {
    let (cache, disk) = cache(3);
    for lba in 0..6 {
        put(&cache, lba, 1); // Half in slots, half past them.
    }
    put(&cache, 0, 2);
    cache.flush().unwrap();
    let durable = disk.cut();
    assert_eq!(durable.cached_sectors(), 0, "nothing is left in the disk's cache");
    assert_eq!((0..6).map(|lba| get(&*disk, lba)).collect::<Vec<_>>(), [2, 1, 1, 1, 1, 1]);
}

#[test]
fn discard_and_zeroes_come_after_what_was_cached() {
    let (cache, disk) = cache(8);
    for lba in 0..8 {
        put(&cache, lba, 1);
    }
    cache.write_zeroes(LbaRange { first: Lba(2), blocks: 3 }, Durability::Volatile).unwrap();
    cache.discard(LbaRange { first: Lba(6), blocks: 1 }).unwrap();
    cache.flush().unwrap();
    let found: Vec<u8> = (0..8).map(|lba| get(&*disk, lba)).collect();
    assert_eq!(found, [1, 1, 0, 0, 0, 1, 1, 1]);
    assert_eq!(found, (0..8).map(|lba| get(&cache, lba)).collect::<Vec<_>>());
}

#[test]
fn reads_of_many_blocks_mix_slots_and_device() {
    let (cache, _) = cache(4);
    for (lba, byte) in [(10, 1), (11, 2), (13, 3), (14, 4)] {
        put(&cache, lba, byte);
    }
    drain(&cache, 2);
    put(&cache, 12, 9);
    let mut out = vec![0xff; 6 * BLOCK];
    cache.read(Lba(10), &mut out).unwrap();
    let firsts: Vec<u8> = out.chunks(BLOCK).map(|block| block[0]).collect();
    assert_eq!(firsts, [1, 2, 9, 3, 4, 0]);
}

#[test]
fn the_limit_of_slots_moves_both_ways() {
    let (cache, _) = cache(8);
    cache.limit_slots(3);
    (0..8).for_each(|lba| put(&cache, lba, 1));
    assert_eq!((cache.counters().slots_used, cache.counters().bypassed), (3, 5));
    cache.limit_slots(6);
    (10..18).for_each(|lba| put(&cache, lba, 1));
    assert_eq!(cache.counters().slots_used, 6);
    cache.limit_slots(2);
    drain(&cache, 6);
    (20..28).for_each(|lba| put(&cache, lba, 1));
    assert_eq!(cache.counters().slots_used, 2, "slots in use were withheld as they came free");
}

#[test]
fn a_block_in_a_full_cache_is_overwritten_there() {
    let (cache, disk) = cache(4);
    cache.limit_slots(2);
    put(&cache, 1, 1);
    put(&cache, 2, 1);
    put(&cache, 3, 1); // Past the cache.
    for byte in 2..9 {
        put(&cache, 1, byte);
    }
    let expected =
        Counters { cached: 9, replaced: 7, bypassed: 1, slots_used: 2, slots_limit: 2, ..Counters::default() };
    assert_eq!(cache.counters(), expected);
    assert_eq!((get(&cache, 1), get(&*disk, 1), get(&*disk, 3)), (8, 0, 1));
    cache.flush().unwrap();
    assert_eq!((get(&*disk, 1), get(&*disk, 2)), (8, 1));
    (10..14).for_each(|lba| put(&cache, lba, 1));
    assert_eq!(cache.counters().slots_used, 2, "what was lent is kept out of use again");
}

/// Something happens in the middle of the next write.
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Intercept for Meanwhile {
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let meanwhile = self.0.lock().unwrap().take();
        meanwhile.into_iter().for_each(|happens| happens());
        device.write(at, data, durability)
    }
}

#[test]
fn no_write_waits_for_the_eviction_of_another_block() {
    let disk = Disk::new(BLOCKS, BLOCK as u32);
    let disk = Arc::new(Intercepted { device: Arc::new(disk), by: Meanwhile(Mutex::new(None)) });
    let cache = Arc::new(WriteCache::create(memory(4), disk.clone(), options(4)).unwrap());
    cache.limit_slots(1);
    put(&*cache, 1, 1);
    let (done, written) = channel();
    let writer = cache.clone();
    let while_it_is_evicted = move || {
        let (began, ended) = channel();
        std::thread::spawn(move || {
            put(&*writer, 2, 2);
            let _ = began.send(());
        });
        done.send(ended.recv_timeout(PATIENCE).is_ok()).unwrap();
    };
    *disk.by.0.lock().unwrap() = Some(Box::new(while_it_is_evicted));
    drain(&cache, 1);
    assert!(written.recv().unwrap(), "the write ended before the eviction did");
    let counters = cache.counters();
    assert_eq!((counters.cached, counters.bypassed, counters.evicted), (2, 0, 1));
    assert_eq!((get(&*disk, 1), get(&*disk, 2), get(&*cache, 2)), (1, 0, 2));
    assert_eq!((counters.slots_used, counters.slots_limit), (1, 1), "the slot that came free is kept out of use");
}

#[test]
fn what_is_turned_away_goes_past_free_slots_and_in_order() {
    let (cache, disk) = cache(8);
    put(&cache, 1, 1);
    cache.turn_away();
    put(&cache, 1, 2);
    put(&cache, 2, 2);
    assert_eq!((get(&*disk, 1), get(&*disk, 2)), (2, 2));
    cache.take_in();
    put(&cache, 1, 3);
    let expected = Counters {
        cached: 2,
        bypassed: 2,
        evicted: 1,
        stalled: 1,
        slots_used: 1,
        slots_limit: 8,
        ..Counters::default()
    };
    assert_eq!(cache.counters(), expected);
    assert_eq!((get(&cache, 1), get(&*disk, 1)), (3, 2));
    let (writers_wait, _) = cache_with(Options { bypass: false, ..options(8) });
    writers_wait.turn_away();
    put(&writers_wait, 1, 1);
    assert_eq!((writers_wait.turns_away(), writers_wait.counters().cached), (false, 1), "nothing goes past it");
}

#[test]
fn a_hole_with_a_cached_block_is_data_there() {
    struct Holes;
    impl BlockDevice for Holes {
        fn geometry(&self) -> Geometry {
            let (block_size, blocks) = (BLOCK as u32, BLOCKS);
            Geometry {
                block_size,
                blocks,
                atomic_blocks: 4,
                volatile_cache: false,
                read_only: false,
                fast_zeroes: true,
            }
        }
        fn read(&self, _: Lba, out: &mut [u8]) -> Result<()> {
            out.fill(0);
            Ok(())
        }
        fn write(&self, _: Lba, _: &[u8], _: Durability) -> Result<()> {
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
        fn discard(&self, _: LbaRange) -> Result<()> {
            Ok(())
        }
        fn write_zeroes(&self, _: LbaRange, _: Durability) -> Result<()> {
            Ok(())
        }
        fn extent(&self, range: LbaRange) -> Result<Extent> {
            Ok(Extent { blocks: range.blocks, kind: ExtentKind::Hole })
        }
    }
    let cache = WriteCache::create(memory(4), Arc::new(Holes), options(4)).unwrap();
    put(&cache, 5, 1);
    let extent = |first, blocks| cache.extent(LbaRange { first: Lba(first), blocks }).unwrap();
    assert_eq!(extent(0, 100), Extent { blocks: 5, kind: ExtentKind::Hole });
    assert_eq!(extent(5, 100), Extent { blocks: 1, kind: ExtentKind::Data });
    assert_eq!(extent(6, 100), Extent { blocks: 100, kind: ExtentKind::Hole });
    let geometry = cache.geometry();
    assert_eq!((geometry.volatile_cache, geometry.atomic_blocks, geometry.fast_zeroes), (true, 1, true));
}

#[test]
fn a_device_that_fails_is_reported_by_every_later_write_and_flush() {
    let (cache, disk) = cache(4);
    put(&cache, 1, 1);
    put(&cache, 2, 2);
    disk.fail(DiskFault::WriteFails(1..2));
    let failed = cache.flush().unwrap_err();
    assert!(matches!(failed, Error::Media(Poison { at: 512, .. })), "{failed}");
    disk.mend();
    assert_eq!(cache.flush().unwrap_err(), failed, "the next flush does not pretend");
    assert_eq!(cache.write(Lba(9), &[1; BLOCK], Durability::Volatile).unwrap_err(), failed);
    assert_eq!(cache.write(Lba(9), &[1; BLOCK], Durability::Fua).unwrap_err(), failed);
    assert_eq!(cache.drain_step(9, &mut 0, &mut [0; BLOCK]).unwrap_err(), failed, "draining ends");
    assert_eq!((get(&cache, 1), cache.counters().slots_used > 0), (1, true), "what was acknowledged is still there");
}

/// Whoever evicts: a thread that drains, a flush, and a request that must not be cached.
#[test]
fn what_was_evicted_before_a_failure_counts() {
    type Evicts = fn(&WriteCache<MappedRegion>) -> Result<()>;
    let evicts: [Evicts; 3] = [
        |cache| cache.drain_step(9, &mut 0, &mut [0; BLOCK]).map(drop),
        BlockDevice::flush,
        |cache| cache.discard(LbaRange { first: Lba(4), blocks: 1 }),
    ];
    for (which, evict) in evicts.into_iter().enumerate() {
        let (cache, disk) = cache(6);
        (1..6).for_each(|lba| put(&cache, lba, 1));
        disk.fail(DiskFault::WriteFails(4..5));
        evict(&cache).unwrap_err();
        put_fails(&cache, 9, Durability::Fua);
        put_fails(&cache, 9, Durability::Volatile);
        let expected = Counters {
            cached: 5,
            evicted: 3,
            stalled: u64::from(which == 2),
            flushes: u64::from(which == 1),
            slots_used: 2,
            slots_limit: 6,
            ..Counters::default()
        };
        assert_eq!(cache.counters(), expected, "evicted by {which}");
    }
}

/// Nobody was told that these were written, so the cache goes on.
#[test]
fn a_write_past_the_cache_that_failed_fails_by_itself() {
    let (cache, disk) = cache(1);
    put(&cache, 1, 1);
    disk.fail(DiskFault::WriteFails(4..6));
    put_fails(&cache, 4, Durability::Volatile);
    put_fails(&cache, 5, Durability::Fua);
    put(&cache, 6, 1);
    let expected = Counters { cached: 1, bypassed: 2, forced: 1, slots_used: 1, slots_limit: 1, ..Counters::default() };
    assert_eq!(cache.counters(), expected);
}

/// It may have covered what was evicted of the block before: a flush that then goes well would
/// promise what a power cut takes.
#[test]
fn a_write_that_the_device_could_not_make_durable_is_reported_by_every_later_flush() {
    type Forces = fn(&WriteCache<MappedRegion>) -> Result<()>;
    let forces: [Forces; 2] = [
        |cache| cache.write(Lba(1), &[2; BLOCK], Durability::Fua),
        |cache| cache.write_zeroes(LbaRange { first: Lba(1), blocks: 1 }, Durability::Fua),
    ];
    for force in forces {
        let (cache, disk) = cache(4);
        put(&cache, 1, 1);
        disk.fail(DiskFault::NextFlushFails);
        let failed = force(&cache).unwrap_err();
        assert_eq!(cache.flush().unwrap_err(), failed, "the next flush does not pretend");
        put_fails(&cache, 9, Durability::Volatile);
    }
}

fn put_fails(device: &dyn BlockDevice, lba: u64, durability: Durability) {
    device.write(Lba(lba), &[1; BLOCK], durability).unwrap_err();
}

#[test]
fn the_doorbell_rings_once_for_each_sleep() {
    let (cache, _) = cache(8);
    let rings = Rings::default();
    cache.set_doorbell(Box::new(rings.clone()));
    put(&cache, 1, 1);
    assert!(!cache.may_sleep(), "there is something to drain");
    drain(&cache, 9);
    assert!(cache.may_sleep());
    (1..8).for_each(|lba| put(&cache, lba, 1));
    assert_eq!(rings.0.load(Ordering::SeqCst), 1);
}

#[derive(Clone, Default)]
struct Rings(Arc<AtomicU32>);

impl Doorbell for Rings {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_metadata_of_a_slot_fits_into_32_bytes() {
    for slots in [64, 100, 1024, 131_072] {
        let disk = Arc::new(Disk::new(BLOCKS, 512));
        let cache = WriteCache::create(memory(slots), disk, options(slots)).unwrap();
        assert!(cache.metadata_per_slot() <= 32.0, "{} bytes with {slots} slots", cache.metadata_per_slot());
    }
}

#[test]
fn memory_that_is_no_cache_or_of_another_volume_is_refused() {
    let disk = Disk::new(BLOCKS, 512);
    assert!(matches!(
        WriteCache::create(memory(4), Arc::new(Disk::new(9, 512)), options(5)),
        Err(CreateError::TooSmall { .. })
    ));
    assert!(matches!(
        WriteCache::create(memory(4), Arc::new(Disk::new(9, 512)), options(0)),
        Err(CreateError::NoSlots)
    ));
    let region = memory(4);
    assert_eq!(complete(&region, VOLUME, &disk).unwrap(), 0, "zeroes are a cache never begun");
    Region::write(&region, 0, b"something else");
    assert!(matches!(complete(&region, VOLUME, &disk), Err(CompleteError::Foreign(_))));
    let region = Arc::new(memory(4));
    drop(WriteCache::create(region.clone(), Arc::new(Disk::new(9, 512)), options(4)).unwrap());
    let error = complete(&region, VOLUME, &disk).unwrap_err();
    assert!(error.to_string().contains("9 × 512 bytes"), "{error}");
    let error = complete(&region, [1; 16], &Disk::new(9, 512)).unwrap_err();
    assert!(matches!(error, CompleteError::OtherVolume { .. }), "{error}");
}

#[test]
fn what_lies_in_the_slots_is_completed() {
    let disk = Arc::new(Disk::new(BLOCKS, 512));
    let region = Arc::new(memory(8));
    let cache = WriteCache::create(region.clone(), disk.clone(), options(8)).unwrap();
    for (lba, byte) in [(1, 1), (2, 2), (1, 3), (5, 5)] {
        put(&cache, lba, byte);
    }
    cache.drain_step(1, &mut 0, &mut [0; BLOCK]).unwrap();
    drop(cache);
    assert_eq!(complete(&region, VOLUME, &*disk).unwrap(), 2);
    assert_eq!([1, 2, 5].map(|lba| get(&*disk, lba)), [3, 2, 5]);
    assert_eq!(disk.cut().cached_sectors(), 0, "and flushed");
}

/// Of two slots for one block the newer was cleared first, the process was killed, and the next one
/// completed the older.
#[test]
fn a_kill_while_a_cache_is_made_brings_no_older_version_back() {
    let head = CacheHead::new(VOLUME, BLOCK as u32, BLOCKS, 2);
    let plan = head.check().unwrap();
    let left = SharedMemory::new(plan.bytes());
    left.write(0, head.as_bytes());
    for (slot, version, byte) in [(0, 2, b'n'), (1, 1, b'o')] {
        left.store_u64(plan.head_at(slot), 3);
        left.store_u64(plan.head_at(slot) + 8, version);
        left.write(plan.block_at(slot), &[byte; BLOCK]);
    }
    for access in 0..16 {
        let disk = Arc::new(Disk::new(BLOCKS, BLOCK as u32));
        let memory = Arc::new(SharedMemory::of(left.left()));
        complete(&memory, VOLUME, &*disk).unwrap();
        assert_eq!(get(&*disk, 3), b'n');
        let read = memory.accesses();
        memory.lose_stores_from(read + access);
        let made = WriteCache::create(memory.clone(), disk.clone(), options(2)).is_ok();
        complete(&SharedMemory::of(memory.left()), VOLUME, &*disk).unwrap();
        assert_eq!(get(&*disk, 3), b'n', "killed before access {access}");
        assert_eq!(made, access >= 7, "two slots and a head take seven stores");
    }
}

/// The store of the version follows the fence that would have told of its loss. A debug build
/// panicked when the block was read.
#[test]
fn a_block_whose_version_was_lost_is_read_and_the_next_write_fails() {
    let disk = Arc::new(Disk::new(BLOCKS, BLOCK as u32));
    let memory = Arc::new(SharedMemory::new(bytes_for(4, BLOCK as u32)));
    let copying = Options { fill: Fill::Copy, ..options(4) };
    let cache = WriteCache::create(memory.clone(), disk.clone(), copying).unwrap();
    put(&cache, 1, b'a');
    // A write stores the number of its block, the block, and after a fence the version.
    memory.lose_stores_from(memory.accesses() + 3);
    put(&cache, 2, b'b');
    assert!(memory.has_lost());
    assert_eq!([1, 2].map(|lba| get(&cache, lba)), [b'a', b'b']);
    put_fails(&cache, 3, Durability::Volatile);
    assert_eq!([1, 2, 3].map(|lba| get(&cache, lba)), [b'a', b'b', 0]);
}
