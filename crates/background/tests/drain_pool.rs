//! Threads of a pool on a real cache: everything reaches the device, sleepers are woken, the end
//! leaves no thread behind.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_background::{DrainPool, Setup};
use tidegate_media::{BlockDevice, Durability, Error, Lba, MappedRegion, Result};
use tidegate_sim::{Disk, DiskFault, Intercept, Intercepted};
use tidegate_write_cache::{Options, WriteCache, bytes_for};

type Cache = Arc<WriteCache<MappedRegion>>;

fn cache(slots: u32) -> (Cache, Arc<Disk>) {
    let disk = Arc::new(Disk::new(4096, 512));
    let memory = MappedRegion::anonymous(bytes_for(slots, 512)).unwrap();
    (Arc::new(WriteCache::create(memory, disk.clone(), Options::new([1; 16], slots)).unwrap()), disk)
}

fn setup(threads: usize) -> Setup {
    Setup { threads, drain_within: Duration::MAX }
}

fn put(cache: &Cache, lba: u64, byte: u8) {
    cache.write(Lba(lba), &[byte; 512], Durability::Volatile).unwrap();
}

fn byte_of(device: &dyn BlockDevice, lba: u64) -> u8 {
    let mut block = [0; 512];
    device.read(Lba(lba), &mut block).unwrap();
    block[0]
}

/// Waits for what threads do, on a condition and not on time; a minute without it is a failure.
fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_written_reaches_the_device_by_itself() {
    for threads in [1, 3] {
        let (cache, disk) = cache(64);
        let _pool = DrainPool::start(&cache, setup(threads)).unwrap();
        for round in 1..=50 {
            (0..40).for_each(|lba| put(&cache, lba * 3, round));
        }
        await_that("everything is drained", || cache.bytes_left() == 0);
        assert!((0..40).all(|lba| byte_of(&*disk, lba * 3) == 50));
    }
}

#[test]
fn a_parked_pool_is_woken_by_one_write_and_only_once() {
    let (cache, disk) = cache(64);
    let pool = DrainPool::start(&cache, setup(1)).unwrap();
    for round in 1..=3 {
        await_that("the pool sleeps", || pool.is_asleep());
        put(&cache, 7, round);
        await_that("it was woken", || byte_of(&*disk, 7) == round);
        assert_eq!((pool.wake_ups(), cache.counters().wake_ups), (u64::from(round), u64::from(round)));
    }
}

#[test]
fn finishing_drains_and_flushes() {
    let (cache, disk) = cache(1024);
    let pool = DrainPool::start(&cache, setup(1)).unwrap();
    (0..1000).for_each(|lba| put(&cache, lba, 9));
    let mut told = Vec::new();
    let drained = pool.finish(&cache, |left| told.push(left));
    assert_eq!((drained.bytes_left, drained.flushed), (0, Ok(())));
    assert!(told.is_sorted_by(|before, after| before >= after));
    assert!((0..1000).all(|lba| byte_of(&*disk, lba) == 9));
    assert_eq!(disk.cut().cached_sectors(), 0);
}

#[test]
fn a_device_that_fails_ends_draining_and_hangs_nobody() {
    let (cache, disk) = cache(64);
    disk.fail(DiskFault::WriteFails(5..6));
    let pool = DrainPool::start(&cache, setup(2)).unwrap();
    put(&cache, 5, 1);
    await_that("the failure is known", || cache.write(Lba(1), &[1; 512], Durability::Volatile).is_err());
    let drained = pool.finish(&cache, |_| ());
    assert!(drained.bytes_left >= 512, "the block that the device refused is still there");
    assert!(matches!(drained.flushed, Err(Error::Media(_))), "{:?}", drained.flushed);
}

#[test]
fn the_limit_follows_the_drain_time() {
    let (cache, _) = cache(4096);
    let _pool = DrainPool::start(&cache, Setup { threads: 1, drain_within: Duration::from_nanos(1) }).unwrap();
    (0..4000).for_each(|lba| put(&cache, lba, 1));
    await_that("the limit is down to one slot", || cache.counters().slots_limit == 1);
}

/// A write needs a core for 20 µs.
struct Laborious;

impl Intercept for Laborious {
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(20) {}
        device.write(at, data, durability)
    }
}

/// The writer and the thread that drains share one core, and both could use all of it.
#[test]
fn without_an_idle_core_blocks_go_past_the_cache_until_there_is_one() {
    let slots = 2048;
    let memory = MappedRegion::anonymous(bytes_for(slots, 512)).unwrap();
    let device = Arc::new(Intercepted { device: Arc::new(Disk::new(1 << 16, 512)), by: Laborious });
    let cache = Arc::new(WriteCache::create(memory, device.clone(), Options::new([1; 16], slots)).unwrap());
    let everywhere = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|core| everywhere.is_set(*core)).unwrap());
    sched_setaffinity(None, &one).unwrap();
    let _pool = DrainPool::start(&cache, setup(1)).unwrap(); // Its threads stay on the core of the one who starts them.
    // No pause and no yielding: a writer that gives its core away leaves it to the thread that
    // drains.
    let begin = Instant::now();
    let mut lbas = (0..1 << 16).cycle();
    while !cache.turns_away() {
        assert!(begin.elapsed() < Duration::from_secs(60), "in vain: blocks are turned away");
        put(&cache, lbas.next().expect("a cycle has no end"), 1);
    }
    let before = cache.counters();
    await_that("what was in the cache is drained all the same", || cache.bytes_left() == 0);
    await_that("blocks are taken in again", || !cache.turns_away());
    put(&cache, 7, 2);
    await_that("it is drained", || byte_of(&*device, 7) == 2);
    let after = cache.counters();
    assert_eq!((after.cached - before.cached, after.bypassed - before.bypassed), (1, 0));
}
