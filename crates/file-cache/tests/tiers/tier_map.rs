//! Where bytes of a file lie, as people are told.

use crate::InMemory;
use crate::clean::{open, pool_of, start};
use std::ops::Range;
use std::sync::Arc;
use tidegate_file_cache::{BackingFile, FilePool, Persistence, Tier, TierExtent};
use tidegate_media::Region;

fn places<R: Region>(pool: &FilePool<R>, file: &InMemory, range: Range<u64>) -> Vec<(Range<u64>, Tier)> {
    let map = pool.tier_map(file.identity(), range).expect("nothing refuses").expect("the pool knows the file");
    assert_eq!(map.next, None);
    map.extents.into_iter().map(|TierExtent { range, tier }| (range, tier)).collect()
}

#[test]
fn bytes_are_where_their_newest_copy_is() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[1; 1000])));
    let pool = start(&region);
    assert_eq!(pool.tier_map(file.identity(), 0..u64::MAX), Ok(None));
    let id = open(&pool, &file);
    assert_eq!(places(&pool, &file, 0..u64::MAX), [(0..1000, Tier::Below)]);
    pool.write(id, 100, &[2; 50], Persistence::Synchronous).expect("written");
    pool.write(id, 120, &[3; 10], Persistence::Asynchronous).expect("written");
    pool.write(id, 300, &[3; 50], Persistence::Asynchronous).expect("written");
    let all = [
        (0..100, Tier::Below),
        (100..120, Tier::OutOfSync),
        (120..130, Tier::Dram),
        (130..150, Tier::OutOfSync),
        (150..300, Tier::Below),
        (300..350, Tier::Dram),
        (350..1000, Tier::Below),
    ];
    assert_eq!(places(&pool, &file, 0..u64::MAX), all);
    assert_eq!(places(&pool, &file, 125..140), [(125..130, Tier::Dram), (130..140, Tier::OutOfSync)]);
    assert_eq!(places(&pool, &file, 1000..u64::MAX), []);
    pool.sync(id).expect("synced");
    let synced = places(&pool, &file, 0..u64::MAX);
    assert_eq!(synced[1], (100..150, Tier::OutOfSync));
    assert_eq!(synced[3], (300..350, Tier::OutOfSync));
    pool.write_back_step(0, u64::MAX).expect("written back");
    let clean = [(100..150, Tier::Clean), (150..300, Tier::Below), (300..350, Tier::Clean)];
    assert_eq!(places(&pool, &file, 100..350), clean);
}

#[test]
fn a_large_file_is_told_in_parts() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[])));
    let pool = start(&region);
    let id = open(&pool, &file);
    pool.write(id, 100 << 20, &[2; 50], Persistence::Asynchronous).expect("written");
    let (mut at, mut told) = (Some(0), Vec::new());
    while let Some(from) = at {
        let part = pool.tier_map(file.identity(), from..u64::MAX).expect("nothing refuses").expect("known");
        assert_eq!((part.size, part.is_leased), ((100 << 20) + 50, false));
        assert!(part.next.is_none_or(|next| next > from));
        told.extend(part.extents.into_iter().map(|extent| extent.tier));
        at = part.next;
    }
    assert_eq!(told, [Tier::Below, Tier::Below, Tier::Dram]);
}
