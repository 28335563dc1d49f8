//! What a sweep over the disk takes along, and that it ends.

use super::*;
use tidegate_disk_cache::Along;

const DISK: u64 = 1 << 14;
const BLOCKS: u32 = 512;
/// Blocks of a look.
const LOOK: u64 = 64;

fn wide() -> DiskCache<Arc<Region>> {
    let region = Arc::new(Region::new(CachePlan::cut(BLOCKS, 512, DISK, 16).end()));
    format(&*region, &FormatSpec { disk_blocks: DISK, ..spec() }, Contents::Zeroed).unwrap();
    DiskCache::open(region, Arc::new(InTurn(Arc::new(Disk::new(DISK, 512)))), Options::default()).unwrap()
}

#[test]
fn a_sweep_takes_along_what_turned_dirty_before_it() {
    let cache = wide();
    (0..3 * LOOK).for_each(|nth| write(&cache, 2 * nth, 1));
    let first = cache.drain_step(u32::try_from(LOOK).unwrap());
    assert_eq!((first.written, first.runs, first.more), (64, 64, true));
    // Between those that the sweep comes to, and behind it.
    (LOOK..2 * LOOK).for_each(|nth| write(&cache, 2 * nth + 1, 2));
    (0..LOOK).for_each(|nth| write(&cache, 2 * nth + 1, 2));
    let second = cache.drain_step(u32::try_from(LOOK).unwrap());
    assert_eq!((second.written, second.runs, second.more), (64, 1, true), "neighbours together");
    let rest = cache.drain_step(BLOCKS);
    assert_eq!((rest.written, rest.more), (128, false), "but not those behind it");
    assert_eq!(cache.dirty_blocks(), LOOK);
    let next = cache.drain_step(BLOCKS);
    assert_eq!((next.cleaned, next.more, cache.dirty_blocks()), (64, false, 0));
}

#[test]
fn a_sweep_ends_although_somebody_always_writes_before_it() {
    let cache = wide();
    (0..DISK).step_by(256).for_each(|lba| write(&cache, lba, 1));
    let (mut ahead, mut steps) = (1..DISK, 1);
    while cache.drain_step(16).more {
        ahead.by_ref().take(16).for_each(|lba| write(&cache, lba, 2));
        steps += 1;
    }
    assert!(steps < DISK / 16 / 4, "{steps}");
    assert!(cache.dirty_lbas().iter().all(|lba| lba.0 % 256 != 0), "what was dirty when it began is not");
}

/// Pairs of neighbours, far apart.
fn write_pairs(cache: &DiskCache<Arc<Region>>, pairs: u64) {
    (0..pairs).for_each(|nth| (0..2).for_each(|next| write(cache, 100 * nth + next, 1)));
}

#[test]
fn blocks_without_neighbours_wait_for_the_next_sweep_once() {
    let cache = wide();
    let step = || cache.drain_step_along(BLOCKS, Along::Neighbours);
    let alone = || (0..10).map(|nth| 100 * nth + 50);
    write_pairs(&cache, 20);
    alone().for_each(|lba| write(&cache, lba, 1));
    let first = step();
    assert_eq!((first.cleaned, first.runs, first.more), (40, 20, false));
    assert!(cache.dirty_lbas().into_iter().eq(alone().map(Lba)), "they are left out");
    write_pairs(&cache, 20);
    write(&cache, 51, 2);
    alone().take(5).for_each(|lba| write(&cache, lba, 2));
    let second = step();
    assert_eq!((second.cleaned, second.runs, second.more), (51, 30, false), "however often they are written");
    assert_eq!(cache.dirty_blocks(), 0);
    write_pairs(&cache, 20);
    alone().for_each(|lba| write(&cache, lba, 3));
    assert_eq!((step().cleaned, cache.dirty_blocks()), (40, 10), "what the disk had meanwhile is left out anew");
}

#[test]
fn a_sweep_that_takes_everything_leaves_nothing_out() {
    let cache = wide();
    write_pairs(&cache, 20);
    (0..10).for_each(|nth| write(&cache, 100 * nth + 50, 1));
    assert!(cache.drain_step_along(8, Along::Neighbours).more, "it has left out what it looked at");
    while cache.drain_step(8).more {}
    assert_eq!(cache.dirty_blocks(), 10);
    write_pairs(&cache, 20);
    (10..20).for_each(|nth| write(&cache, 100 * nth + 50, 1));
    while cache.drain_step(8).more {}
    assert_eq!(cache.dirty_blocks(), 0, "whether a sweep before it left it out or not");
}

#[test]
fn nothing_is_left_out_where_most_have_no_neighbour() {
    let cache = wide();
    write_pairs(&cache, 10);
    (0..21).for_each(|nth| write(&cache, 100 * nth + 50, 1));
    assert_eq!(cache.drain_step_along(BLOCKS, Along::Neighbours).cleaned, 41);
}

/// Where two looks meet, either sees the other's first or last block.
#[test]
fn neighbours_are_seen_across_two_looks() {
    let cache = wide();
    (0..2 * LOOK).for_each(|lba| write(&cache, lba, 1));
    let part = u32::try_from(LOOK).unwrap();
    assert_eq!(cache.drain_step_along(part, Along::Neighbours).cleaned, part);
    (LOOK + 1..2 * LOOK).step_by(2).for_each(|lba| write(&cache, lba, 2));
    assert_eq!((cache.drain_step_along(BLOCKS, Along::Neighbours).cleaned, cache.dirty_blocks()), (part, 0));
}
