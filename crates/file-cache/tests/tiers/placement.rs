//! Which clean bytes stay, by the placement and by what programs do.

use crate::InMemory;
use crate::clean::{open, pool_of, start};
use std::ops::Range;
use std::sync::Arc;
use tidegate_file_cache::{BackingFile, FilePool, Persistence, PlacementStep, PoolFile, ProgramAccess};
use tidegate_policy::placement::{AccessPattern, IoKind, NamedPlacement};
use tidegate_sim::{Rng, SharedMemory};

const GRANULE: u64 = 64 << 10;
const PAGE: u64 = 4096;
const PAGE_OF_FIVES: [u8; 4096] = [5; 4096];

type Pool = FilePool<SharedMemory>;

/// A file of so many bytes, with a record.
fn file(pool: &Pool, inode: u64, bytes: u64) -> (Arc<InMemory>, PoolFile) {
    let below = Arc::new(InMemory::new(inode, &vec![5; usize::try_from(bytes).expect("small")]));
    let id = open(pool, &below);
    pool.write(id, bytes - 1, &[5], Persistence::Synchronous).expect("written");
    pool.write_back_step(0, u64::MAX).expect("written back");
    (below, id)
}

/// Reads as a service does; what was wanted is admitted.
fn read(pool: &Pool, id: PoolFile, (at, bytes): (u64, u64), context: u64) -> Vec<Range<u64>> {
    let mut out = vec![0xcc; usize::try_from(bytes).expect("small")];
    assert_eq!(pool.read(id, at, &mut out), Ok(out.len()));
    assert!(out.iter().all(|byte| *byte == 5));
    let read = ProgramAccess { at, bytes, kind: IoKind::Read, context };
    let wanted = pool.accessed(id, &read).expect("told").expect("it has a record");
    for range in &wanted {
        pool.admit(id, range.clone()).expect("admitted");
    }
    wanted
}

/// How many granules of a file were wanted in passes over it.
fn passes(pool: &Pool, id: PoolFile, bytes: u64, context: u64) -> Vec<usize> {
    let pass =
        |_| (0..bytes / GRANULE).map(|granule| read(pool, id, (granule * GRANULE, GRANULE), context).len()).sum();
    (0..3).map(pass).collect()
}

#[test]
fn a_loop_is_kept_and_random_reads_are_not_by_context() {
    let pool = start(&pool_of(24 << 20, 8));
    pool.place_by(NamedPlacement::Uhnvm);
    let (_, looped) = file(&pool, 1, 4 << 20);
    let (_, strewn) = file(&pool, 2, 64 << 20);
    let wanted = passes(&pool, looped, 4 << 20, 10);
    assert!(wanted[0] + wanted[1] >= 63 && wanted[2] == 0, "{wanted:?}: the last granule was written");
    let mut rng = Rng::new(1);
    let wanted: usize = (0..400).map(|_| read(&pool, strewn, (rng.below(1024) * GRANULE, PAGE), 20).len()).sum();
    assert!(wanted < 40, "the first few, before it is known that they are random: {wanted}");
    let by_pattern = pool.counters().by_pattern;
    assert!(by_pattern.of(AccessPattern::Looping).hit_bytes >= 4 << 20);
    assert!(by_pattern.of(AccessPattern::Random).missed_bytes >= 300 * PAGE);
}

#[test]
fn what_a_random_context_touches_leaves_the_pool_and_is_read_below() {
    let pool = start(&pool_of(24 << 20, 8));
    pool.place_by(NamedPlacement::Uhnvm);
    let (_, strewn) = file(&pool, 1, 64 << 20);
    let mut rng = Rng::new(1);
    (0..400).for_each(|_| drop(read(&pool, strewn, (rng.below(1024) * GRANULE, PAGE), 20)));
    // Syncs win: the page enters, is written back, and goes with its next touch.
    let at = 40 << 20;
    pool.write(strewn, at, &PAGE_OF_FIVES, Persistence::Synchronous).expect("written");
    pool.write_back_step(0, u64::MAX).expect("written back");
    let clean = pool.clean_bytes();
    assert_eq!(read(&pool, strewn, (at, PAGE), 20), []);
    assert_eq!(pool.clean_bytes(), clean - PAGE);
    let below = pool.counters().bytes_read_below;
    read(&pool, strewn, (at, PAGE), 20);
    assert_eq!(pool.counters().bytes_read_below, below + PAGE);
}

#[test]
fn what_comes_again_soonest_stays_of_a_loop_that_does_not_fit() {
    let (bytes, pool) = (32 << 20, start(&pool_of(24 << 20, 8)));
    let (_, id) = file(&pool, 1, bytes);
    let hits = |placement: NamedPlacement| {
        pool.place_by(placement);
        let before = pool.counters().bytes_read_pool;
        passes(&pool, id, bytes, 10);
        passes(&pool, id, bytes, 10);
        pool.counters().bytes_read_pool - before
    };
    let (recent, ours) = (hits(NamedPlacement::Lru), hits(NamedPlacement::Tidegate));
    assert!(ours > 2 * recent, "a list by recency loses each granule before it comes again: {ours}, {recent}");
}

#[test]
fn extents_have_temperatures_and_a_full_tier_is_reclaimed() {
    let pool = start(&pool_of(24 << 20, 8));
    pool.place_by(NamedPlacement::CheetahNormalised);
    let (below, id) = file(&pool, 1, 64 << 20);
    let mut steps = 0;
    for granule in 0..1024 {
        read(&pool, id, (granule * GRANULE, GRANULE), 10);
        while pool.placement_step().expect("made") == PlacementStep::Worked {
            steps += 1;
        }
        let fill = pool.fill();
        assert!(pool.clean_bytes() <= fill.pool * 9 / 10 + (1 << 20), "at {granule}");
    }
    assert!(steps > 10);
    let map = pool.tier_map(below.identity(), 48 << 20..64 << 20).expect("told").expect("known");
    assert!(!map.temperatures.is_empty() && map.temperatures.iter().all(|(_, temperature)| *temperature > 0.0));
    assert_eq!(map.pattern, None, "this placement does not ask");
}

#[test]
fn another_placement_takes_over_what_is_there() {
    let pool = start(&pool_of(24 << 20, 8));
    let (_, id) = file(&pool, 1, 40 << 20);
    for placement in NamedPlacement::ALL {
        pool.place_by(placement);
        passes(&pool, id, 24 << 20, 10);
        let counters = pool.counters();
        // Room is found for what is synced, whatever is there.
        for page in 0..4000 {
            pool.write(id, page * PAGE, &PAGE_OF_FIVES, Persistence::Synchronous).expect("written");
        }
        assert_eq!(pool.counters().below, counters.below, "{placement}");
        while pool.write_back_step(0, u64::MAX).expect("written back").bytes > 0 {}
    }
}
