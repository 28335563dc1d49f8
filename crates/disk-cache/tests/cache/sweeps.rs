//! What a sweep over the disk takes along, and that it ends.

use super::*;
use tidegate_disk_cache::SweepScope;

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
    let first = cache.destage_step(u32::try_from(LOOK).unwrap());
    assert_eq!((first.written, first.runs, first.more), (64, 64, true));
    // Between those that the sweep comes to, and behind it.
    (LOOK..2 * LOOK).for_each(|nth| write(&cache, 2 * nth + 1, 2));
    (0..LOOK).for_each(|nth| write(&cache, 2 * nth + 1, 2));
    let second = cache.destage_step(u32::try_from(LOOK).unwrap());
    assert_eq!((second.written, second.runs, second.more), (64, 1, true), "neighbours together");
    let rest = cache.destage_step(BLOCKS);
    assert_eq!((rest.written, rest.more), (128, false), "but not those behind it");
    assert_eq!(cache.dirty_blocks(), LOOK);
    let next = cache.destage_step(BLOCKS);
    assert_eq!((next.cleaned, next.more, cache.dirty_blocks()), (64, false, 0));
}

#[test]
fn a_sweep_ends_although_somebody_always_writes_before_it() {
    let cache = wide();
    (0..DISK).step_by(256).for_each(|lba| write(&cache, lba, 1));
    let (mut ahead, mut steps) = (1..DISK, 1);
    while cache.destage_step(16).more {
        ahead.by_ref().take(16).for_each(|lba| write(&cache, lba, 2));
        steps += 1;
    }
    assert!(steps < DISK / 16 / 4, "{steps}");
    assert!(cache.dirty_lbas().iter().all(|lba| lba.0 % 256 != 0), "what was dirty when it began is not");
}

/// Runs of three, which are not short, far apart.
fn write_runs(cache: &DiskCache<Arc<Region>>, runs: u64) {
    (0..runs).for_each(|nth| (0..3).for_each(|next| write(cache, 100 * nth + next, 1)));
}

#[test]
fn short_runs_wait_for_the_next_sweep_twice() {
    let cache = wide();
    let step = || cache.destage_step_in(BLOCKS, SweepScope::Neighbours);
    let short = || (0..10).flat_map(|nth| (0..=nth % 2).map(move |next| 100 * nth + 50 + next));
    short().for_each(|lba| write(&cache, lba, 1));
    for _time in 0..2 {
        write_runs(&cache, 20);
        let sweep = step();
        assert_eq!((sweep.cleaned, sweep.runs, sweep.more), (60, 20, false));
        assert!(cache.dirty_lbas().into_iter().eq(short().map(Lba)), "they are left out");
        short().take(8).for_each(|lba| write(&cache, lba, 2));
    }
    write_runs(&cache, 20);
    write(&cache, 51, 2);
    let third = step();
    assert_eq!(
        (third.cleaned, third.runs, third.more),
        (76, 30, false),
        "however often they are written, with what is beside"
    );
    assert_eq!(cache.dirty_blocks(), 0);
    write_runs(&cache, 20);
    short().for_each(|lba| write(&cache, lba, 3));
    assert_eq!((step().cleaned, cache.dirty_blocks()), (60, 15), "what the disk had meanwhile is left out anew");
}

#[test]
fn a_run_that_is_not_short_any_more_waits_no_longer() {
    let cache = wide();
    write_runs(&cache, 20);
    [50, 150, 151, 250].into_iter().for_each(|lba| write(&cache, lba, 1));
    assert_eq!(cache.destage_step_in(BLOCKS, SweepScope::Neighbours).cleaned, 60);
    write_runs(&cache, 20);
    [51, 52, 149, 251].into_iter().for_each(|lba| write(&cache, lba, 1));
    assert_eq!(cache.destage_step_in(BLOCKS, SweepScope::Neighbours).cleaned, 66);
    assert!(cache.dirty_lbas().into_iter().eq([250, 251].map(Lba)));
}

#[test]
fn a_sweep_that_takes_everything_leaves_nothing_out() {
    let cache = wide();
    write_runs(&cache, 20);
    (0..10).for_each(|nth| write(&cache, 100 * nth + 50, 1));
    assert!(cache.destage_step_in(9, SweepScope::Neighbours).more, "it has left out what it looked at");
    while cache.destage_step(9).more {}
    assert_eq!(cache.dirty_blocks(), 10);
    write_runs(&cache, 20);
    (10..20).for_each(|nth| write(&cache, 100 * nth + 50, 1));
    while cache.destage_step(9).more {}
    assert_eq!(cache.dirty_blocks(), 0, "whether a sweep before it left it out or not");
}

#[test]
fn nothing_is_left_out_where_most_have_no_neighbour() {
    let cache = wide();
    write_runs(&cache, 7);
    (0..22).for_each(|nth| write(&cache, 100 * nth + 50, 1));
    assert_eq!(cache.destage_step_in(BLOCKS, SweepScope::Neighbours).cleaned, 43);
}

#[test]
fn blocks_alone_are_left_out_where_most_are_in_short_runs_and_pairs_are_not() {
    let cache = wide();
    write_runs(&cache, 8);
    (0..10).for_each(|nth| write(&cache, 100 * nth + 50, 1));
    (0..8).for_each(|nth| (0..2).for_each(|next| write(&cache, 100 * nth + 70 + next, 1)));
    assert_eq!((cache.destage_step_in(BLOCKS, SweepScope::Neighbours).cleaned, cache.dirty_blocks()), (40, 10));
}

#[test]
fn a_run_is_followed_to_its_ends_when_it_is_taken() {
    for scope in [SweepScope::Neighbours, SweepScope::Everything] {
        let cache = wide();
        write_runs(&cache, 20);
        write(&cache, 206, 1);
        // The last two of the first run but one, and the next one as it is by then.
        assert_eq!(cache.destage_step_in(4, scope).cleaned, 4);
        [98, 99, 103, 105, 203, 204, 205].into_iter().for_each(|lba| write(&cache, lba, 2));
        let followed = cache.destage_step_in(11, scope);
        let left = cache.dirty_lbas();
        match scope {
            SweepScope::Neighbours => {
                assert_eq!((followed.cleaned, followed.runs), (11, 3), "101 to 103, 200 to 206, and one of the next");
                assert!(left.iter().take(4).copied().eq([98, 99, 105, 301].map(Lba)), "what is not beside: {left:?}");
            }
            SweepScope::Everything => assert!(left.iter().take(4).copied().eq([98, 99, 103, 105].map(Lba)), "{left:?}"),
        }
    }
}

#[test]
fn what_is_before_a_run_goes_with_it_up_to_what_was_taken_last() {
    let cache = wide();
    write_runs(&cache, 20);
    assert_eq!(cache.destage_step_in(3, SweepScope::Neighbours).cleaned, 3);
    (0..100).for_each(|lba| write(&cache, lba, 2));
    assert_eq!(cache.destage_step_in(4, SweepScope::Neighbours).runs, 1);
    assert!(!cache.dirty_lbas().contains(&Lba(97)) && cache.dirty_lbas().contains(&Lba(96)), "as many as it may");
    (103..200).for_each(|lba| write(&cache, lba, 2));
    assert_eq!(cache.destage_step_in(5, SweepScope::Neighbours).cleaned, 5);
    assert!(cache.dirty_lbas().contains(&Lba(106)), "101 to 105");
    while cache.destage_step_in(BLOCKS, SweepScope::Neighbours).more {}
    assert_eq!(cache.dirty_blocks(), 97);
}

#[test]
fn a_sweep_follows_no_more_blocks_than_the_cache_has() {
    let cache = wide();
    let all = (0..DISK).step_by(128);
    all.clone().for_each(|lba| write(&cache, lba, 1));
    let (mut before, mut written, mut more) = (all.skip(1), 0, true);
    while more {
        let step = cache.destage_step_in(16, SweepScope::Neighbours);
        (written, more) = (written + step.cleaned, step.more);
        let next = before.find(|lba| cache.dirty_lbas().contains(&Lba(*lba)));
        next.into_iter().for_each(|lba| (lba - 15..lba).for_each(|before| write(&cache, before, 2)));
    }
    assert!((BLOCKS..2 * BLOCKS).contains(&written), "{written} of 128 and 15 before each");
}

/// Where two looks meet, either sees the other's first or last block.
#[test]
fn neighbours_are_seen_across_two_looks() {
    let cache = wide();
    (0..2 * LOOK).for_each(|lba| write(&cache, lba, 1));
    let part = u32::try_from(LOOK).unwrap();
    assert_eq!(cache.destage_step_in(part, SweepScope::Neighbours).cleaned, part);
    (LOOK + 1..2 * LOOK).step_by(2).for_each(|lba| write(&cache, lba, 2));
    assert_eq!((cache.destage_step_in(BLOCKS, SweepScope::Neighbours).cleaned, cache.dirty_blocks()), (part, 0));
}
