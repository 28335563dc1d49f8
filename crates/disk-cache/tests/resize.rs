//! A cache laid out anew, with the power cut at every instant: it is the old one or the new one,
//! empty or not, and shows what the disk has.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::iter;
use std::sync::Arc;
use tidegate_disk_cache::{
    Checksums, Contents, DiskCache, Foreseen, FormatSpec, Identity, NewLayout, NewLayoutError, Options, check, foresee,
    format_with, identify, lay_out_anew,
};
use tidegate_layout::disk_cache::{CURSORS_AT, CachePlan, SUPERBLOCK_COPIES_AT, Superblock};
use tidegate_media::{BlockDevice, Durability, InTurn, Lba, LineOrder};
use tidegate_sim::{Disk, Image, PoisonedStore, Reduction, Region, power_cuts};
use zerocopy::IntoBytes;

const BLOCK: usize = 512;
/// Blocks that the disk has.
const GROWN_BLOCKS: u64 = 15;
/// Blocks that it had when the cache was made.
const DISK_BLOCKS: u64 = 12;
const RING_SLOTS: u32 = 8;
const OLD: [u8; 32] = [2; 32];

fn plan(sums: Checksums, blocks: u32) -> CachePlan {
    CachePlan::cut_with(sums, blocks, 512, DISK_BLOCKS, RING_SLOTS)
}

fn disk() -> Arc<Disk> {
    let disk = Arc::new(Disk::new(GROWN_BLOCKS, 512));
    for lba in 0..GROWN_BLOCKS {
        disk.write(Lba(lba), &content(lba), Durability::Fua).unwrap();
    }
    disk
}

fn content(lba: u64) -> [u8; BLOCK] {
    [u8::try_from(lba).unwrap() + 100; BLOCK]
}

fn open(region: &Arc<Region>, disk: &Arc<Disk>) -> DiskCache<Arc<Region>> {
    DiskCache::open(Arc::clone(region), Arc::new(InTurn(Arc::clone(disk))), Options::default()).unwrap()
}

/// A cache of `blocks` blocks in a region with room for `room`: clean blocks, one free, and
/// elements that nobody has retired.
fn used(sums: Checksums, blocks: u32, room: u32, disk: &Arc<Disk>) -> Image {
    let small = Region::new(plan(sums, blocks).end());
    let spec =
        FormatSpec { block_size: 512, disk_blocks: DISK_BLOCKS, ring_slots: RING_SLOTS, uuid: [1; 16], disk: OLD };
    format_with(sums, &small, &spec, Contents::Zeroed).unwrap();
    let mut image = Image::zeroed(plan(sums, room).end());
    let formatted = small.visible().to_vec();
    image.write(0, &formatted);
    let region = Arc::new(Region::from_image(image));
    let cache = open(&region, disk);
    cache.write(Lba(3), &[content(3), content(4)].concat(), Durability::Volatile).unwrap();
    cache.read(Lba(7), &mut [0; BLOCK]).unwrap();
    assert_eq!(cache.destage_step(8).cleaned, 2);
    region.visible()
}

/// What a cut left is sound, clean, and shows what the disk has, also after more was written.
fn judge(image: &Image, order: LineOrder, disk: &Arc<Disk>) -> Identity {
    let region = Arc::new(Region::with_line_order(image.clone(), order));
    let report = check(&*region).unwrap();
    let broken = report
        .findings
        .iter()
        .find(|finding| !matches!(finding, tidegate_disk_cache::Finding::Broken(corrupt) if corrupt.at < CURSORS_AT));
    assert_eq!((broken, report.dirty), (None, 0), "a copy of the superblock may be torn, and no more");
    let cache = open(&region, disk);
    let shows = |cache: &DiskCache<Arc<Region>>, lba: u64| {
        let mut out = [0; BLOCK];
        cache.read(Lba(lba), &mut out).unwrap();
        out
    };
    assert!((0..report.identity.disk_blocks).all(|lba| shows(&cache, lba) == content(lba)));
    cache.write(Lba(5), &[content(5), content(6)].concat(), Durability::Volatile).unwrap();
    assert_eq!(cache.destage_step(8).cleaned, 2);
    assert_eq!((check(&*region).unwrap().dirty, cache.counters().damaged), (0, 0));
    report.identity
}

/// Every image of every cut of a change from `from` blocks to `to`, and to `disk_blocks` of the
/// disk; how many there were, and how many of them are the old cache.
fn every_cut(sums: Checksums, (from, to): (u32, u32), disk_blocks: u64, order: LineOrder) -> (u64, u64) {
    let disk = disk();
    let start = used(sums, from, from.max(to), &disk);
    let (old, new) = (plan(sums, from), plan(sums, to));
    let wish = NewLayout { disk: [3; 32], disk_blocks, region_bytes: new.end() };
    let cuts = power_cuts(&start, |region| {
        let identity = lay_out_anew(Arc::clone(region), &wish).unwrap();
        assert_eq!((identity.blocks, identity.disk, identity.sums), (to, wish.disk, sums));
    });
    // Blocks and sums that become entries, or were: nothing names them.
    let unread = Reduction::of(iter::once(old.data_at.min(new.data_at)..start.len()));
    let (mut images, mut olds) = (0, 0);
    for cut in cuts {
        let mut possible = cut.images(&unread);
        while let Some(image) = possible.advance() {
            let found = judge(image, order, &disk);
            let is = (found.disk, found.blocks, found.disk_blocks);
            assert!(is == (OLD, from, DISK_BLOCKS) || is == (wish.disk, to, disk_blocks));
            images += 1;
            olds += u64::from(found.disk == OLD);
        }
    }
    (images, olds)
}

#[test]
fn every_cut_of_a_change_leaves_the_old_cache_or_the_new_one() {
    for sums in [Checksums::Absent, Checksums::Kept] {
        for (sizes, disk_blocks) in
            [((4, 4), DISK_BLOCKS), ((4, 4), GROWN_BLOCKS), ((4, 14), DISK_BLOCKS), ((14, 4), DISK_BLOCKS)]
        {
            let (images, olds) = every_cut(sums, sizes, disk_blocks, LineOrder::Prefix);
            println!("{sums:?}, {sizes:?}, {disk_blocks}: {images} images, {olds} of them the old cache");
            assert!(images > olds && olds > 20, "{images} images, {olds} old");
        }
    }
}

#[test]
fn what_is_dirty_is_not_given_up() {
    let disk = disk();
    let image = used(Checksums::Absent, 6, 6, &disk);
    let region = Arc::new(Region::from_image(image));
    let cache = open(&region, &disk);
    cache.write(Lba(1), &[9; BLOCK], Durability::Volatile).unwrap();
    drop(cache);
    let wish = NewLayout { disk: [3; 32], disk_blocks: DISK_BLOCKS, region_bytes: region.visible().len() };
    assert_eq!(lay_out_anew(Arc::clone(&region), &wish), Err(NewLayoutError::Dirty(1)));
    let mut out = [0; BLOCK];
    open(&region, &disk).read(Lba(1), &mut out).unwrap();
    assert_eq!((out, identify(&*region).unwrap().unwrap().disk), ([9; BLOCK], OLD));
}

#[test]
fn lines_that_cannot_be_read_do_not_stop_it_and_what_is_too_small_does() {
    let disk = disk();
    let image = used(Checksums::Absent, 14, 14, &disk);
    let region = Arc::new(Region::from_image(image));
    region.poison(plan(Checksums::Absent, 14).entry_at(8), 1, PoisonedStore::Lost);
    let bytes = region.visible().len();
    let wish = |region_bytes| NewLayout { disk: OLD, disk_blocks: DISK_BLOCKS, region_bytes };
    assert!(matches!(lay_out_anew(Arc::clone(&region), &wish(14_000)), Err(NewLayoutError::Format(_))));
    assert_eq!(lay_out_anew(Arc::clone(&region), &wish(bytes)).unwrap().sequence, 2);
    assert_eq!(open(&region, &disk).fill().free, 10);
}

#[test]
fn a_cache_whose_entries_carry_no_check_is_left_as_it_is_where_nothing_else_changes() {
    let plan = CachePlan { entries_checked: false, ..plan(Checksums::Kept, 6) };
    let mut image = used(Checksums::Kept, 6, 6, &disk());
    for at in SUPERBLOCK_COPIES_AT {
        image.write(at, Superblock::new(&plan, [1; 16], OLD, 9).as_bytes());
    }
    let region = Region::from_image(image);
    let foreseen =
        |region_bytes| foresee(&region, &NewLayout { disk: OLD, disk_blocks: DISK_BLOCKS, region_bytes }).unwrap();
    assert_eq!([plan.end(), 2 * plan.end()].map(foreseen), [Foreseen::AsItIs, Foreseen::Anew]);
}
