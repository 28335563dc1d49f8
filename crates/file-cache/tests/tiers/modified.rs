//! When programs changed files last: the word of it outlives processes and power losses.

use crate::InMemory;
use crate::clean::{close, open, pool_of, start, written_back};
use std::sync::Arc;
use tidegate_file_cache::{BackingFile, FilePool, Persistence};
use tidegate_sim::SharedMemory;

/// The word that the pool has of the file after a power loss, once it is found again.
fn after_a_power_loss(region: &Arc<SharedMemory>, file: &Arc<InMemory>) -> u64 {
    let pool = start(region);
    let id = open(&pool, file);
    pool.modified(id).expect("it is open")
}

fn noted(pool: &FilePool<SharedMemory>, file: &Arc<InMemory>, word: u64) -> tidegate_file_cache::PoolFile {
    let id = open(pool, file);
    pool.note_modified(id, word).expect("noted");
    pool.write(id, 0, b"new", Persistence::Asynchronous).expect("written");
    id
}

#[test]
fn a_sync_makes_the_word_durable_and_a_write_does_not() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, b"old")));
    let pool = start(&region);
    let id = noted(&pool, &file, 5);
    pool.sync(id).expect("synced");
    pool.note_modified(id, 6).expect("noted");
    assert_eq!((pool.modified(id), after_a_power_loss(&region, &file)), (Ok(6), 5));
}

#[test]
fn a_word_that_was_set_alone_is_durable_with_the_next_sync() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, b"old")));
    let pool = start(&region);
    let id = noted(&pool, &file, 5);
    pool.sync(id).expect("synced");
    pool.write_back_step(0, u64::MAX).expect("written back");
    assert_eq!(after_a_power_loss(&region, &file), 0, "the file below has it");
    pool.note_modified(id, 7).expect("noted");
    pool.sync(id).expect("synced");
    assert_eq!(after_a_power_loss(&region, &file), 7);
}

#[test]
fn a_file_that_rests_has_its_time_below() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, b"old")));
    let pool = start(&region);
    let id = written_back(&pool, &file);
    pool.note_modified(id, 9).expect("noted");
    pool.sync(id).expect("synced");
    close(&pool, id);
    assert!(pool.rests(file.identity()));
    assert_eq!(after_a_power_loss(&region, &file), 0);
}
