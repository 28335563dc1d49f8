//! Direct writes: which bytes go below at once, and what a sync makes of them.

use crate::InMemory;
use crate::clean::{BYTES, open, pool_of, read, start, written_back};
use std::sync::Arc;
use tidegate_file_cache::{Persistence, Synced};
use tidegate_sim::Rng;

#[test]
fn only_what_the_cache_has_is_written_there() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[1; 1000])));
    let pool = start(&region);
    let id = open(&pool, &file);
    pool.write(id, 100, &[2; 50], Persistence::Synchronous).expect("written");
    pool.write(id, 300, &[3; 50], Persistence::Asynchronous).expect("written");
    assert_eq!(pool.write_direct(id, 50, &[4; 350]), Ok(250));
    let below = file.bytes(|bytes| bytes.clone());
    let parts = [50, 99, 100, 149, 150, 299, 300, 349, 350, 399, 400].map(|at| below[at]);
    assert_eq!(parts, [4, 4, 1, 1, 4, 4, 1, 1, 4, 4, 1], "the pool had 100..150, DRAM 300..350");
    let expected = [&[1; 50][..], &[4; 350], &[1; 600]].concat();
    assert_eq!(read(&pool, id), expected);
    assert_eq!((pool.sync(id), pool.sync(id)), (Ok(Synced::Below), Ok(Synced::Atomically)));
    let next = start(&region);
    assert_eq!(read(&next, open(&next, &file)), expected, "after a power loss");
}

#[test]
fn what_lengthens_a_file_stays_in_the_cache() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[1; 100])));
    let pool = start(&region);
    let id = open(&pool, &file);
    assert_eq!(pool.write_direct(id, 60, &[5; 100]), Ok(40));
    assert_eq!((file.bytes(|bytes| bytes.len()), pool.size(id), pool.fill().dirty), (100, Ok(160), 60));
    assert_eq!(pool.counters().bytes_written_direct, 40);
}

#[test]
fn clean_entries_do_not_get_out_of_date() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[])));
    let pool = start(&region);
    let id = written_back(&pool, &file);
    assert_eq!(pool.write_direct(id, 0, &vec![8; BYTES]), Ok(0), "the pool has all of it");
    assert_eq!(read(&pool, id), vec![8; BYTES]);
}

#[test]
fn direct_and_other_writes_agree_with_a_byte_for_each_byte() {
    for seed in 0..20 {
        let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[1; 5000])));
        let pool = start(&region);
        let (id, mut rng, mut dull) = (open(&pool, &file), Rng::new(seed), vec![1; 5000]);
        for byte in 2..60 {
            let (at, len) = (rng.index(4000), 1 + rng.index(900));
            match rng.below(6) {
                0..=2 => drop(pool.write_direct(id, at as u64, &vec![byte; len]).expect("written")),
                3 => pool.write(id, at as u64, &vec![byte; len], Persistence::Asynchronous).expect("written"),
                4 => pool.write(id, at as u64, &vec![byte; len], Persistence::Synchronous).expect("written"),
                _ => {
                    pool.sync(id).expect("synced");
                    pool.write_back_step(0, u64::MAX).expect("written back");
                    continue;
                }
            }
            dull[at..at + len].fill(byte);
            assert!(read(&pool, id) == dull, "seed {seed}, byte {byte}");
        }
    }
}
