//! What a sweep over the disk takes along, and that it ends.

use super::*;

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
