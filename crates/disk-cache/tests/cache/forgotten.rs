//! Blocks that reads brought in and that a restart forgets.

use super::*;
use tidegate_disk_cache::Guard;
use tidegate_sim::{InterceptMemory, InterceptedMemory};

const FORGOTTEN: Options = Options {
    mode: Mode::WriteBack,
    replacement: tidegate_policy::evict::Replacement::Lru,
    admit: Admit::Always,
    sequential_blocks: 0,
    reads: Reads::Forgotten,
    conflicts: Conflicts::LastWins,
    journaling: Journaling::AsLaidOut,
    guard: Guard::AsLaidOut,
};

/// A disk whose blocks hold their numbers.
fn numbered() -> Arc<Disk> {
    let disk = disk();
    (0..DISK_BLOCKS).for_each(|lba| write(&*disk, lba, u8::try_from(lba).unwrap()));
    disk.flush().unwrap();
    disk
}

/// What a power cut leaves at worst: nothing that is not durable.
fn after_a_cut(region: &Arc<Region>) -> Arc<Region> {
    Arc::new(Region::from_image(region.cut().least().clone()))
}

#[test]
fn reads_flush_nothing_and_a_restart_forgets_them() {
    let (region, disk) = (region(8), numbered());
    let cache = open_with(&region, &disk, FORGOTTEN);
    let (image, flushed) = (region.cut().least().clone(), region.counters().lines_flushed);
    assert_eq!([3, 4, 3].map(|lba| read(&cache, lba)), [3, 4, 3]);
    assert_eq!((cache.counters().read_hits, cache.counters().fills, cache.fill().clean), (1, 2, 2));
    assert_eq!(region.counters().lines_flushed, flushed);
    assert_eq!(*region.cut().least(), image, "nothing is durable of it");
    assert_eq!((check(&*region).unwrap().clean, check(&*region).unwrap().free), (0, 8));
    drop(cache);
    assert_eq!(open(&region, &disk).fill(), Occupancy { blocks: 8, clean: 0, dirty: 0, free: 8, kept: 0 });
}

#[test]
fn they_are_given_up_without_a_fence() {
    let (region, disk) = (region(8), numbered());
    let cache = open_with(&region, &disk, FORGOTTEN);
    (0..8).for_each(|lba| assert_eq!(u64::from(read(&cache, lba)), lba));
    let before = region.counters();
    write(&cache, 20, 200);
    let after = region.counters();
    assert_eq!((after.fences - before.fences, after.lines_flushed - before.lines_flushed), (2, 1), "of the write");
    assert_eq!((cache.counters().evictions, cache.fill().clean), (1, 7));
    assert_eq!((0..8).chain([20]).map(|lba| read(&cache, lba)).last(), Some(200));
    assert_eq!(read(&open(&after_a_cut(&region), &disk), 20), 200);
}

#[test]
fn writes_over_them_are_hits_and_durable_alone_and_together() {
    let (region, disk) = (region(12), numbered());
    let cache = open_with(&region, &disk, FORGOTTEN);
    (0..6).for_each(|lba| assert_eq!(u64::from(read(&cache, lba)), lba));
    write(&cache, 2, 102);
    cache.write(Lba(4), &[block(104), block(105), block(106)].concat(), Durability::Volatile).unwrap();
    let (hits, misses) = (cache.counters().write_hits, cache.counters().write_misses);
    assert_eq!((hits, misses, cache.fill()), (3, 1, Occupancy { blocks: 12, clean: 3, dirty: 4, free: 5, kept: 0 }));
    write(&cache, 2, 112);
    let after = open(&after_a_cut(&region), &disk);
    assert_eq!([0, 2, 4, 5, 6].map(|lba| read(&after, lba)), [0, 112, 104, 105, 106]);
    assert_eq!(after.dirty_blocks(), 4);
    assert_eq!(cache.destage_step(8).cleaned, 4);
    assert_eq!(check(&*region).unwrap().clean, 4, "what was written stays");
}

#[test]
fn writes_around_them_come_into_the_cache() {
    let (region, disk) = (region(8), numbered());
    let cache = open_with(&region, &disk, Options { mode: Mode::WriteAround, ..FORGOTTEN });
    assert_eq!(read(&cache, 3), 3);
    cache.write(Lba(2), &[block(102), block(103)].concat(), Durability::Volatile).unwrap();
    assert_eq!([read(&cache, 3), read(&*disk, 2), read(&*disk, 3)], [103, 102, 103]);
    assert_eq!((cache.counters().write_hits, cache.dirty_blocks()), (1, 0));
}

#[test]
fn they_have_checksums_while_they_are_there() {
    let ((region, data_at), disk) = (damage::region_with_sums(8), numbered());
    let cache = open_with(&region, &disk, FORGOTTEN);
    assert_eq!([5, 6].map(|lba| read(&cache, lba)), [5, 6]);
    write(&cache, 9, 109);
    assert_eq!(damage::scrub(&cache), (3, vec![]));
    let places = (data_at..region.visible().len()).step_by(BLOCK);
    let five = places.into_iter().find(|at| region.visible().load_u64(*at) == u64::from_le_bytes([5; 8])).unwrap();
    tidegate_media::Region::write(&*region, five + 4, &[4]);
    assert_eq!(damage::scrub(&cache), (2, vec![Lba(5)]));
    assert_eq!(read(&cache, 5), 5, "the disk stands in");
    write(&cache, 5, 105);
    assert_eq!((read(&cache, 5), damage::scrub(&cache)), (105, (3, vec![])));
    assert_eq!(damage::scrub(&open(&after_a_cut(&region), &disk)), (2, vec![]));
}

/// A full file system: what is stored to a page of the file that is not there is lost, and the page
/// reads as zeros.
struct Full;

impl InterceptMemory for Full {
    fn write<R: tidegate_media::Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        // Lost to a line that is bad, and the line is read elsewhere.
        memory.write(memory.len() - 64, &bytes[..64]);
        memory.write(at, &vec![0; bytes.len()]);
    }
}

#[test]
fn what_the_memory_lost_is_read_from_the_disk() {
    let (region, disk) = (region(8), numbered());
    region.poison(region.visible().len() - 64, 1, PoisonedStore::Lost);
    let memory = InterceptedMemory { memory: region.clone(), by: Full };
    let cache = DiskCache::open(memory, Arc::new(InTurn(disk)), FORGOTTEN).unwrap();
    assert_eq!([3, 3, 4, 3].map(|lba| read(&cache, lba)), [3, 3, 4, 3]);
    assert_eq!((cache.counters().fills, cache.fill().free), (0, 8));
}

/// Nobody knows then what the entry says, so nobody may have it: neither for another block nor for
/// this one.
#[test]
fn a_commit_over_one_that_fails_takes_its_entry_and_its_block_with_it() {
    for writes in [1, 2] {
        let (region, disk) = (region(8), numbered());
        let cache = open_with(&region, &disk, FORGOTTEN);
        (0..4).for_each(|lba| assert_eq!(u64::from(read(&cache, lba)), lba));
        region.poison(12288, 512, PoisonedStore::Lost);
        let blocks = vec![100; writes * BLOCK];
        assert!(cache.write(Lba(0), &blocks, Durability::Volatile).is_err());
        (0..DISK_BLOCKS).for_each(|lba| assert_eq!(u64::from(read(&cache, lba)), lba));
        let left = 4 - u32::try_from(writes).unwrap();
        assert_eq!((cache.fill().free, cache.fill().clean), (left, left));
    }
}
