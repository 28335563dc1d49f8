//! A cache on simulated memory in front of a simulated disk: reads, writes, transactions,
//! destaging, errors.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod damage;
mod forgotten;
mod guard;
mod order;
mod sweeps;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use tidegate_disk_cache::{
    Checksums, Conflicts, Contents, DiskCache, Doorbell, Finding, FormatSpec, Journaling, Mode, NoDisk, Occupancy,
    OpenError, Options, Reads, TransactionError, check, format, format_with, identify,
};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{BlockDevice, Durability, Error, InTurn, Lba, Misuse, Result};
use tidegate_policy::admit::Admit;
use tidegate_sim::{Disk, DiskFault, Image, Intercept, Intercepted, PoisonedStore, Region};

const BLOCK: usize = 512;
const DISK_BLOCKS: u64 = 64;

fn spec() -> FormatSpec {
    FormatSpec { block_size: 512, disk_blocks: DISK_BLOCKS, ring_slots: 16, uuid: [7; 16], disk: [9; 32] }
}

/// Room for so many blocks.
fn region(blocks: u64) -> Arc<Region> {
    let head = 12288 + 16 * 16;
    let region = Arc::new(Region::new((head + blocks * 16_u64).next_multiple_of(512) + blocks * 512));
    format(&*region, &spec(), Contents::Zeroed).unwrap();
    assert_eq!(identify(&*region).unwrap().unwrap().blocks, u32::try_from(blocks).unwrap());
    region
}

fn open(region: &Arc<Region>, disk: &Arc<Disk>) -> DiskCache<Arc<Region>> {
    DiskCache::open(region.clone(), Arc::new(InTurn(disk.clone())), Options::default()).unwrap()
}

fn disk() -> Arc<Disk> {
    Arc::new(Disk::new(DISK_BLOCKS, 512))
}

fn block(tag: u8) -> [u8; BLOCK] {
    [tag; BLOCK]
}

fn read<D: BlockDevice>(device: &D, lba: u64) -> u8 {
    let mut out = block(0xee);
    device.read(Lba(lba), &mut out).unwrap();
    assert!(out.iter().all(|byte| *byte == out[0]), "block {lba} is torn");
    out[0]
}

fn write<D: BlockDevice>(device: &D, lba: u64, tag: u8) {
    device.write(Lba(lba), &block(tag), Durability::Volatile).unwrap();
}

#[test]
fn what_is_written_is_read_and_survives_an_opening() {
    let (region, disk) = (region(8), disk());
    write(&*disk, 5, 50);
    let cache = open(&region, &disk);
    write(&cache, 3, 1);
    write(&cache, 3, 2);
    assert_eq!([read(&cache, 3), read(&cache, 5), read(&cache, 4)], [2, 50, 0]);
    assert_eq!(cache.fill(), Occupancy { blocks: 8, clean: 2, dirty: 1, free: 5, kept: 0 });
    assert_eq!(read(&*disk, 3), 0, "the disk has not heard of it");
    drop(cache);
    let cache = open(&region, &disk);
    assert_eq!([read(&cache, 3), read(&cache, 5)], [2, 50]);
    assert_eq!(check(&*region).unwrap().findings, []);
}

#[test]
fn draining_brings_everything_to_the_disk_in_order() {
    let (region, disk) = (region(16), disk());
    let cache = open(&region, &disk);
    for lba in [9, 3, 4, 30, 5] {
        write(&cache, lba, u8::try_from(lba).unwrap());
    }
    let first = cache.destage_step(4);
    assert_eq!((first.written, first.cleaned, first.runs, first.more), (4, 4, 2, true), "3 to 5 together, 9");
    let second = cache.destage_step(4);
    assert_eq!((second.written, second.cleaned, second.more), (1, 1, false));
    assert_eq!((cache.dirty_blocks(), cache.fill().clean), (0, 5));
    assert_eq!([3, 4, 5, 9, 30].map(|lba| read(&*disk, lba)), [3, 4, 5, 9, 30]);
    assert_eq!(disk.cut().cached_sectors(), 0, "and it is flushed");
    assert_eq!(cache.destage_step(4).written, 0);
}

#[test]
fn a_full_cache_gives_clean_blocks_up_and_destages_dirty_ones() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    for lba in 0..DISK_BLOCKS {
        write(&cache, lba, u8::try_from(lba).unwrap() + 1);
    }
    for lba in (0..DISK_BLOCKS).rev() {
        assert_eq!(u64::from(read(&cache, lba)), lba + 1);
    }
    let counters = cache.counters();
    assert!(counters.helps > 0 && counters.evictions >= DISK_BLOCKS - 8, "{counters:?}");
    assert_eq!(check(&*region).unwrap().findings, []);
}

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does_until_it_commits() {
    let (region, disk) = (region(16), disk());
    let cache = open(&region, &disk);
    write(&cache, 2, 1);
    let mut transaction = cache.begin();
    transaction.write(Lba(2), &[block(10), block(11)].concat()).unwrap();
    transaction.write(Lba(40), &block(12)).unwrap();
    let mut seen = vec![0; 3 * BLOCK];
    transaction.read(Lba(1), &mut seen).unwrap();
    assert_eq!([0, 1, 2].map(|index| seen[index * BLOCK]), [0, 10, 11]);
    assert_eq!([2, 3, 40].map(|lba| read(&cache, lba)), [1, 0, 0]);
    transaction.commit().unwrap();
    assert_eq!([2, 3, 40].map(|lba| read(&cache, lba)), [10, 11, 12]);

    let mut aborted = cache.begin();
    aborted.write(Lba(2), &block(99)).unwrap();
    aborted.abort();
    assert_eq!(read(&cache, 2), 10);
}

#[test]
fn of_two_transactions_the_last_wins_each_block() {
    let (region, disk) = (region(16), disk());
    let cache = open(&region, &disk);
    let (mut first, mut second) = (cache.begin(), cache.begin());
    first.write(Lba(1), &[block(1), block(1)].concat()).unwrap();
    second.write(Lba(2), &[block(2), block(2)].concat()).unwrap();
    second.commit().unwrap();
    first.commit().unwrap();
    assert_eq!([1, 2, 3].map(|lba| read(&cache, lba)), [1, 1, 2]);
}

#[test]
fn conflicts_are_refused_if_asked_for() {
    let (region, disk) = (region(16), disk());
    let options = Options { conflicts: Conflicts::Refuse, ..Options::default() };
    let cache = DiskCache::open(region.clone(), Arc::new(InTurn(disk.clone())), options).unwrap();
    let conflict = |lba| Err(TransactionError::Conflict { lba: Lba(lba) });

    let (mut first, mut second) = (cache.begin(), cache.begin());
    first.write(Lba(1), &[block(1), block(1)].concat()).unwrap();
    second.write(Lba(2), &[block(2), block(2)].concat()).unwrap();
    second.commit().unwrap();
    assert_eq!(first.commit(), conflict(2), "both wrote it");
    assert_eq!([1, 2, 3].map(|lba| read(&cache, lba)), [0, 2, 2], "nothing of the refused one is there");

    let mut reader = cache.begin();
    reader.read(Lba(3), &mut block(0)).unwrap();
    reader.write(Lba(9), &block(9)).unwrap();
    write(&cache, 3, 3);
    assert_eq!(reader.commit(), conflict(3), "what it read is no longer so");

    let mut later = cache.begin();
    later.read(Lba(3), &mut block(0)).unwrap();
    later.write(Lba(3), &block(4)).unwrap();
    write(&cache, 5, 5);
    later.commit().unwrap();
    assert_eq!([3, 5, 9].map(|lba| read(&cache, lba)), [4, 5, 0]);
    let fill = cache.fill();
    assert_eq!((fill.dirty, fill.clean + fill.dirty + fill.free), (3, 16), "no block is lost by refusing");
}

#[test]
fn a_transaction_that_is_too_large_changes_nothing() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    let mut transaction = cache.begin();
    for lba in 0..4 {
        transaction.write(Lba(lba), &block(1)).unwrap();
    }
    let refused = transaction.write(Lba(4), &block(1));
    assert_eq!(refused, Err(TransactionError::TooLarge { blocks: 5, max: 4 }));
    transaction.write(Lba(3), &block(2)).unwrap();
    transaction.commit().unwrap();
    assert_eq!([0, 3, 4].map(|lba| read(&cache, lba)), [1, 2, 0]);
}

#[test]
fn a_bad_sector_keeps_its_block_dirty_and_the_rest_goes_on() {
    let (region, disk) = (region(16), disk());
    let cache = open(&region, &disk);
    for lba in 10..16 {
        write(&cache, lba, 7);
    }
    disk.fail(DiskFault::WriteFails(12..13));
    let progress = cache.destage_step(64);
    assert_eq!((progress.written, progress.cleaned), (5, 5));
    assert_eq!(progress.failed.iter().map(|(lba, _)| lba.0).collect::<Vec<_>>(), [12]);
    assert_eq!((cache.dirty_blocks(), read(&cache, 12), read(&*disk, 12), read(&*disk, 13)), (1, 7, 0, 7));
    disk.mend();
    assert_eq!((cache.destage_step(64).cleaned, read(&*disk, 12)), (1, 7));
}

#[test]
fn a_failed_flush_makes_everything_dirty_again_and_it_is_written_anew() {
    let (region, disk) = (region(16), disk());
    let cache = open(&region, &disk);
    write(&cache, 1, 1);
    write(&cache, 2, 2);
    disk.fail(DiskFault::NextFlushFails);
    let failed = cache.destage_step(64);
    assert_eq!((failed.written, failed.cleaned, failed.flush_failed.is_some()), (2, 0, true));
    assert_eq!(cache.dirty_blocks(), 2);
    // What the failed flush covered may never arrive: only writing it again makes it durable.
    let again = cache.destage_step(64);
    assert_eq!((again.written, again.cleaned), (2, 2));
    let mut kept = [0; BLOCK];
    let platter = disk.cut().images(1 << 12).unwrap();
    assert!(platter.iter().all(|image| {
        image.read(512, &mut kept);
        kept == block(1)
    }));
}

#[test]
fn a_dead_disk_is_an_error_for_writers_without_room_and_loses_nothing() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    disk.fail(DiskFault::WriteFails(0..DISK_BLOCKS));
    for lba in 0..8 {
        write(&cache, lba, 3);
    }
    let refused = cache.write(Lba(20), &block(4), Durability::Volatile);
    assert!(matches!(refused, Err(Error::Media(_))), "{refused:?}");
    assert_eq!(cache.write(Lba(0), &block(4), Durability::Volatile), refused, "a hit needs a free block too");
    assert!((0..8).all(|lba| read(&cache, lba) == 3));
    disk.mend();
    write(&cache, 20, 4);
    assert_eq!(read(&cache, 20), 4);
}

#[test]
fn a_write_through_is_on_the_disk() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    cache.set_mode(Mode::WriteThrough);
    cache.write(Lba(3), &[block(5), block(6)].concat(), Durability::Volatile).unwrap();
    assert_eq!((cache.dirty_blocks(), read(&*disk, 3), read(&*disk, 4)), (0, 5, 6));
    assert_eq!(disk.cut().cached_sectors(), 0);
    disk.fail(DiskFault::WriteFails(3..4));
    assert!(cache.write(Lba(3), &block(7), Durability::Volatile).is_err());
    assert_eq!((cache.dirty_blocks(), read(&cache, 3)), (1, 7), "it is safe, and dirty");
}

#[test]
fn writes_around_go_to_the_disk_but_for_cached_blocks() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    write(&cache, 3, 1);
    for (mode, tag) in [(Mode::WriteAround, 10), (Mode::PassThrough, 20)] {
        cache.set_mode(mode);
        assert_eq!(cache.geometry().atomic_blocks, 0, "the disk's promise");
        let blocks = [block(tag), block(tag + 1), block(tag + 2)].concat();
        cache.write(Lba(2), &blocks, Durability::Volatile).unwrap();
        assert_eq!([2, 3, 4].map(|lba| read(&*disk, lba)), [tag, tag + 1, tag + 2]);
        assert_eq!([cache.fill().clean, cache.fill().dirty], [1, 0], "{mode}: nothing came in");
        assert_eq!(disk.cut().cached_sectors(), 0);
        assert_eq!(read(&cache, 3), tag + 1);
    }
    assert_eq!([read(&cache, 2), read(&cache, 4)], [20, 22]);
    assert_eq!(cache.fill().clean, 1, "nor by reading");
    cache.set_mode(Mode::WriteAround);
    assert_eq!((read(&cache, 2), cache.fill().clean), (20, 2));
}

#[test]
fn write_only_takes_no_reads_in_and_read_only_no_writes() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    cache.set_mode(Mode::WriteOnly);
    write(&cache, 1, 1);
    assert_eq!([read(&cache, 1), read(&cache, 5)], [1, 0]);
    assert_eq!([cache.fill().clean, cache.fill().dirty], [0, 1]);
    cache.set_mode(Mode::ReadOnly);
    assert!(cache.geometry().read_only);
    assert_eq!(cache.write(Lba(1), &block(2), Durability::Volatile), Err(Error::Misuse(Misuse::ReadOnly)));
    assert_eq!([read(&cache, 1), read(&cache, 5)], [1, 0]);
    assert_eq!([cache.fill().clean, cache.fill().dirty], [1, 1]);
    assert_eq!(cache.destage_step(8).cleaned, 1, "what is dirty goes to the disk in every mode");
}

#[test]
fn without_its_disk_a_cache_gives_what_only_it_has() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    for lba in [9, 2, 30] {
        write(&cache, lba, 7);
    }
    assert_eq!(read(&cache, 5), 0);
    drop(cache);
    let none = Arc::new(NoDisk::new(DISK_BLOCKS, 512));
    let salvaged = DiskCache::open(region.clone(), none, Options::default()).unwrap();
    assert_eq!(salvaged.dirty_lbas(), [Lba(2), Lba(9), Lba(30)]);
    assert!(salvaged.dirty_lbas().iter().all(|lba| read(&salvaged, lba.0) == 7));
    assert!(matches!(salvaged.read(Lba(3), &mut block(0)), Err(Error::Media(_))));
    let progress = salvaged.destage_step(8);
    assert_eq!((progress.cleaned, progress.failed.len()), (0, 3));
}

#[test]
fn the_doorbell_is_rung_for_whoever_sleeps() {
    struct Bell(AtomicU32);
    impl Doorbell for Bell {
        fn ring(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    let bell = Arc::new(Bell(AtomicU32::new(0)));
    let rung = || bell.0.load(Ordering::Relaxed);
    cache.set_doorbell(bell.clone());
    write(&cache, 1, 1);
    assert_eq!((rung(), cache.may_sleep()), (0, false), "nobody sleeps, and there is something to drain");
    cache.destage_step(8);
    assert!(cache.may_sleep());
    write(&cache, 1, 2);
    write(&cache, 2, 2);
    assert_eq!(rung(), 1, "once");
}

#[test]
fn blocks_may_be_larger_than_the_disks() {
    let disk = disk();
    let region = Arc::new(Region::new(65536));
    let spec = FormatSpec { block_size: 2048, disk_blocks: 16, ..spec() };
    format(&*region, &spec, Contents::Unknown).unwrap();
    write(&*disk, 9, 4);
    let cache = open(&region, &disk);
    let mut out = vec![0; 2048];
    cache.read(Lba(2), &mut out).unwrap();
    assert_eq!([0, 512, 1024].map(|at| out[at]), [0, 4, 0]);
    cache.write(Lba(15), &[8; 2048], Durability::Volatile).unwrap();
    cache.destage_step(1);
    assert_eq!([59, 60, 63].map(|lba| read(&*disk, lba)), [0, 8, 8]);
}

#[test]
fn what_is_no_cache_or_not_its_disk_is_refused() {
    let disk = disk();
    let nothing = Arc::new(Region::new(65536));
    let options = Options::default();
    let over = |disk: &Arc<Disk>| Arc::new(InTurn(disk.clone()));
    assert!(matches!(DiskCache::open(nothing.clone(), over(&disk), options), Err(OpenError::NoSuperblock(_))));
    assert_eq!(identify(&*nothing), Ok(None));
    let small = Arc::new(Disk::new(DISK_BLOCKS - 1, 512));
    assert!(matches!(DiskCache::open(region(8), over(&small), options), Err(OpenError::Disk { .. })));
    let coarse = Arc::new(Disk::new(DISK_BLOCKS, 4096));
    assert!(matches!(DiskCache::open(region(8), over(&coarse), options), Err(OpenError::Disk { .. })));
}

#[test]
fn either_superblock_will_do() {
    let (region, disk) = (region(8), disk());
    write(&open(&region, &disk), 1, 1);
    for at in [0, 4096] {
        let mut image: Image = region.visible();
        image.write(at + 70, &[1]);
        let damaged = Arc::new(Region::from_image(image));
        assert_eq!(check(&*damaged).unwrap().findings.len(), 1);
        assert_eq!(read(&open(&damaged, &disk), 1), 1);
    }
}

fn open_with(region: &Arc<Region>, disk: &Arc<Disk>, options: Options) -> DiskCache<Arc<Region>> {
    DiskCache::open(region.clone(), Arc::new(InTurn(disk.clone())), options).unwrap()
}

#[test]
fn long_runs_of_reads_go_past_the_cache_and_hits_do_not_end_them() {
    let (region, disk) = (region(32), disk());
    (0..DISK_BLOCKS).for_each(|lba| write(&*disk, lba, 3));
    let cache = open_with(&region, &disk, Options { sequential_blocks: 8, ..Options::default() });
    write(&cache, 12, 4);
    let seen: Vec<u8> = (0..20).map(|lba| read(&cache, lba)).collect();
    assert!(seen.iter().enumerate().all(|(lba, tag)| *tag == if lba == 12 { 4 } else { 3 }), "{seen:?}");
    let counters = cache.counters();
    assert_eq!((counters.fills, counters.past_in_runs), (8, 11), "blocks 8 to 19 but the cached one went past");
    // Elsewhere, and again where the run began.
    assert_eq!([40, 50, 0].map(|lba| read(&cache, lba)), [3; 3]);
    assert_eq!((cache.counters().fills, cache.counters().read_hits), (10, 2));
    // One request can be a run; what is written is not.
    cache.read(Lba(48), &mut [0; 9 * BLOCK]).unwrap();
    cache.write(Lba(20), &[5; 12 * BLOCK], Durability::Volatile).unwrap();
    let counters = cache.counters();
    assert_eq!((counters.past_in_runs, counters.write_misses, cache.dirty_blocks()), (19, 13, 13));
}

#[test]
fn who_is_turned_away_comes_in_the_second_time_or_never() {
    for (admit, fills) in [(Admit::Always, [1, 1]), (Admit::SecondMiss, [0, 1]), (Admit::Never, [0, 0])] {
        let (region, disk) = (region(8), disk());
        write(&*disk, 5, 7);
        let cache = open_with(&region, &disk, Options { admit, ..Options::default() });
        let seen = [0, 1].map(|_| (read(&cache, 5), cache.counters().fills).1);
        assert_eq!(seen, fills, "{admit}");
        let turned_away = fills.into_iter().filter(|fills| *fills == 0).count() as u64;
        assert_eq!(cache.counters().turned_away, turned_away);
        write(&cache, 5, 8);
        assert_eq!((read(&cache, 5), cache.dirty_blocks()), (8, 1), "writes come in");
    }
}

#[test]
fn what_a_killed_process_wrote_past_the_cache_is_flushed_before_it_is_taken_in() {
    let (region, disk) = (region(8), disk());
    drop(open(&region, &disk));
    // A process was killed between its write of the disk and the flush.
    write(&*disk, 5, 9);
    let cache = open(&region, &disk);
    assert_eq!((read(&cache, 5), cache.fill().clean), (9, 1));
    assert_eq!(disk.cut().cached_sectors(), 0, "no power cut makes the clean block another than the disk's");
}

#[test]
fn nothing_is_taken_in_while_a_disk_does_not_flush() {
    let (region, disk) = (region(8), disk());
    write(&*disk, 5, 9);
    disk.fail(DiskFault::NextFlushFails);
    let cache = open(&region, &disk);
    assert_eq!((read(&cache, 5), cache.fill().clean), (9, 0));
    write(&cache, 1, 1);
    assert_eq!(cache.destage_step(8).cleaned, 1, "the disk flushes again");
    assert_eq!((read(&cache, 5), cache.fill().clean), (9, 2));
}

/// Whoever evicts and takes in brings an entry's counter on, too. An element left in the ring must
/// not become the newer one of both by that.
#[test]
fn reads_alone_do_not_bring_an_old_element_back() {
    let (region, disk) = (region(4), disk());
    (0..8).for_each(|lba| write(&*disk, lba, 50));
    let cache = open(&region, &disk);
    cache.write(Lba(0), &[1; 2 * BLOCK], Durability::Volatile).unwrap();
    while cache.dirty_blocks() > 0 {
        cache.destage_step(8);
    }
    // More than half of the numbers that a counter has, two for each time that a block goes and
    // another comes; and no commit.
    for round in 0..16_500 * 4 {
        read(&cache, 2 + round % 5);
    }
    drop(cache);
    let cut = Arc::new(Region::from_image(region.cut().least().clone()));
    for region in [cut, region] {
        assert_eq!(check(&*region).unwrap().findings, []);
        let cache = open(&region, &disk);
        assert_eq!((0..8).map(|lba| read(&cache, lba)).collect::<Vec<u8>>(), [1, 1, 50, 50, 50, 50, 50, 50]);
    }
}

/// Whoever writes meets somebody before, and once more when he may go on.
struct Meeting(Barrier);

impl Intercept for Meeting {
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.0.wait();
        self.0.wait();
        device.write(at, data, durability)
    }
}

#[test]
fn a_sweep_is_not_over_while_somebody_else_writes_one_of_its_blocks() {
    let (region, disk) = (region(8), disk());
    let met = Arc::new(Intercepted { device: disk.clone(), by: Meeting(Barrier::new(2)) });
    let options = Options { mode: Mode::WriteThrough, ..Options::default() };
    let cache = DiskCache::open(region, Arc::new(InTurn(met.clone())), options).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| cache.write(Lba(3), &block(3), Durability::Volatile));
        met.by.0.wait();
        let step = cache.destage_step(8);
        assert!(step.more && step.written == 0, "{step:?}: the writer may still fail");
        met.by.0.wait();
        writer.join().unwrap().unwrap();
    });
    assert!(!cache.destage_step(8).more);
    assert_eq!((cache.dirty_blocks(), read(&*disk, 3)), (0, 3));
}

/// A write past the cache that the disk did not flush, and that nobody had room for, was refused:
/// what the disk shows of it may go at any cut.
#[test]
fn what_a_failed_write_left_on_the_disk_is_not_taken_in() {
    let (region, disk) = (region(4), disk());
    let cache = open(&region, &disk);
    (0..4).for_each(|lba| write(&cache, lba, 1));
    cache.set_mode(Mode::WriteAround);
    disk.fail(DiskFault::NextFlushFails);
    assert!(cache.write(Lba(30), &block(7), Durability::Volatile).is_err());
    assert_eq!(cache.destage_step(8).cleaned, 4);
    let fills = || cache.counters().fills;
    assert_eq!((read(&cache, 30), fills()), (7, 0));
    assert_eq!((read(&cache, 31), fills()), (0, 1), "others are");
    write(&cache, 30, 8);
    assert_eq!((read(&cache, 30), fills()), (8, 2));
}
