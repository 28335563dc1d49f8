//! Several threads at once on one small cache: transactions, writes, reads, destaging and changes
//! of mode.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Mode, Options, Reads, check, format};
use tidegate_media::{BlockDevice, Durability, InTurn, Lba};
use tidegate_sim::{Disk, DiskFault, Region, Rng};

const BLOCK: usize = 512;
/// Blocks that are always written together, and how many such groups there are.
const GROUP: u64 = 4;
const GROUPS: u64 = 64;

type Cache = DiskCache<Arc<Region>>;

/// A cache of a quarter of its disk's blocks.
fn cache(region: &Arc<Region>, disk: &Arc<Disk>) -> Cache {
    cache_with(Reads::Kept, region, disk)
}

fn cache_with(reads: Reads, region: &Arc<Region>, disk: &Arc<Disk>) -> Cache {
    let options = Options { reads, ..Options::default() };
    DiskCache::open(region.clone(), Arc::new(InTurn(disk.clone())), options).unwrap()
}

fn machine() -> (Arc<Region>, Arc<Disk>) {
    let blocks = GROUPS * GROUP;
    let region = Arc::new(Region::new(12288 + 64 * 16 + blocks / 4 * (16 + 512) + 512));
    let spec = FormatSpec { block_size: 512, disk_blocks: blocks, ring_slots: 64, uuid: [1; 16], disk: [2; 32] };
    format(&*region, &spec, Contents::Zeroed).unwrap();
    (region, Arc::new(Disk::new(blocks, 512)))
}

/// A block says which group it is in, and which write made it.
fn block(group: u64, tag: u64) -> Vec<u8> {
    [group, tag].iter().flat_map(|word| word.to_le_bytes()).cycle().take(BLOCK).collect()
}

/// The tag of the block at `lba`, which is whole.
fn tag_of<D: BlockDevice>(device: &D, lba: u64) -> u64 {
    let mut out = vec![0; BLOCK];
    device.read(Lba(lba), &mut out).unwrap();
    let tag = u64::from_le_bytes(out[8..16].try_into().unwrap());
    let group = if tag == 0 { 0 } else { lba / GROUP };
    assert!(out == block(group, tag), "block {lba} is torn or another's");
    tag
}

/// Writes a group: all of its blocks by one request, or from its end to its beginning by one
/// transaction. Whatever the disk refuses, a writer without room tries again.
fn write_group(cache: &Cache, group: u64, tag: u64, by_transaction: bool) {
    let bytes = block(group, tag);
    let written = || {
        if !by_transaction {
            return cache.write(Lba(group * GROUP), &bytes.repeat(4), Durability::Volatile).is_ok();
        }
        let mut transaction = cache.begin();
        for lba in (group * GROUP..(group + 1) * GROUP).rev() {
            transaction.write(Lba(lba), &bytes).unwrap();
        }
        transaction.commit().is_ok()
    };
    while !written() {
        thread::yield_now();
    }
}

/// Runs `writers` threads and one that destages; `aside` is done now and then by the latter.
fn run(cache: &Cache, writers: u64, steps: u64, aside: impl Fn(&mut Rng) + Sync) {
    let busy = AtomicU32::new(u32::try_from(writers).unwrap());
    thread::scope(|scope| {
        for writer in 0..writers {
            let busy = &busy;
            scope.spawn(move || {
                let mut rng = Rng::new(writer + 1);
                for step in 0..steps {
                    let group = rng.below(GROUPS);
                    if rng.one_in(3) {
                        tag_of(cache, group * GROUP + rng.below(GROUP));
                    } else {
                        write_group(cache, group, 1 + writer + writers * step, rng.one_in(2));
                    }
                }
                busy.fetch_sub(1, Ordering::Release);
            });
        }
        let mut rng = Rng::new(99);
        while busy.load(Ordering::Acquire) > 0 {
            cache.destage_step(16);
            aside(&mut rng);
            thread::yield_now();
        }
    });
}

/// With nothing running: each group is of one write, the structures are sound, and the disk agrees
/// once everything is destaged.
fn agree(cache: &Cache, region: &Region, disk: &Disk) {
    let shown: Vec<u64> = (0..GROUPS * GROUP).map(|lba| tag_of(cache, lba)).collect();
    for (group, tags) in shown.chunks_exact(4).enumerate() {
        assert!(tags.iter().all(|tag| *tag == tags[0]), "group {group} shows {tags:?}");
    }
    while cache.dirty_blocks() > 0 {
        cache.destage_step(64);
    }
    assert_eq!(check(region).unwrap().findings, []);
    assert!((0..).zip(&shown).all(|(lba, tag)| tag_of(disk, lba) == *tag));
}

#[test]
fn groups_stay_whole_among_threads() {
    let (region, disk) = machine();
    let cache = cache(&region, &disk);
    run(&cache, 4, 1500, |_| {});
    agree(&cache, &region, &disk);
    let counters = cache.counters();
    assert!(counters.evictions > 0 && counters.fills > 0 && counters.write_hits > 0, "{counters:?}");
}

#[test]
fn groups_stay_whole_among_threads_where_reads_are_forgotten() {
    let (region, disk) = machine();
    let first = cache_with(Reads::Forgotten, &region, &disk);
    run(&first, 4, 1500, |_| {});
    let counters = first.counters();
    assert!(counters.evictions > 0 && counters.fills > 0 && counters.write_hits > 0, "{counters:?}");
    let shown: Vec<u64> = (0..GROUPS * GROUP).map(|lba| tag_of(&first, lba)).collect();
    let (memory, platter) = (region.cut(), disk.cut());
    agree(&first, &region, &disk);
    let mut rng = Rng::new(6);
    for _ in 0..20 {
        let region = Arc::new(Region::from_image(memory.sample(&mut rng)));
        let disk = Arc::new(Disk::from_image(platter.sample(&mut rng, tidegate_sim::SectorTear::Possible), 512));
        let cache = cache(&region, &disk);
        assert!((0..).zip(&shown).all(|(lba, tag)| tag_of(&cache, lba) == *tag));
    }
}

#[test]
fn groups_stay_whole_while_the_disk_fails_now_and_then() {
    let (region, disk) = machine();
    let cache = cache(&region, &disk);
    run(&cache, 3, 1000, |rng| match rng.below(4) {
        0 => disk.fail(DiskFault::NextFlushFails),
        _ => disk.mend(),
    });
    disk.mend();
    agree(&cache, &region, &disk);
}

#[test]
fn every_block_stays_whole_while_the_mode_changes() {
    let (region, disk) = machine();
    let cache = cache(&region, &disk);
    let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly, Mode::PassThrough];
    run(&cache, 3, 1000, |rng| cache.set_mode(modes[rng.index(modes.len())]));
    cache.set_mode(Mode::WriteBack);
    // Past the cache requests are not whole. So each group is written once more.
    (0..GROUPS).for_each(|group| write_group(&cache, group, 1 << 40 | group, true));
    agree(&cache, &region, &disk);
}

#[test]
fn what_threads_committed_is_there_after_a_power_cut() {
    let (region, disk) = machine();
    let first = cache(&region, &disk);
    run(&first, 4, 500, |_| {});
    let shown: Vec<u64> = (0..GROUPS * GROUP).map(|lba| tag_of(&first, lba)).collect();
    let (memory, platter) = (region.cut(), disk.cut());
    drop(first);
    let mut rng = Rng::new(5);
    for _ in 0..20 {
        let region = Arc::new(Region::from_image(memory.sample(&mut rng)));
        let disk = Arc::new(Disk::from_image(platter.sample(&mut rng, tidegate_sim::SectorTear::Possible), 512));
        let cache = cache(&region, &disk);
        assert!((0..).zip(&shown).all(|(lba, tag)| tag_of(&cache, lba) == *tag));
        agree(&cache, &region, &disk);
    }
}
