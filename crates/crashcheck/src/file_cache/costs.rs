//! Exact costs of commits in persistent memory.

use crate::file_cache::machine::{Machine, SimFile, SmallPool, Watched, backing};
use std::sync::Arc;
use tidegate_file_cache::{FilePool, Persistence, PoolFile, Synced};
use tidegate_sim::Region;

/// A file that was synced once.
fn synced() -> (Arc<Machine>, FilePool<Watched>, PoolFile) {
    let small = SmallPool::of(4);
    let machine = Machine::new(
        &small,
        Region::with_line_order(small.image.clone(), small.order),
        vec![SimFile::new(&[]), SimFile::new(&[])],
        None,
        None,
    );
    let pool = machine.open().unwrap();
    let file = pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    pool.write(file, 0, &[1; 5000], Persistence::Synchronous).unwrap();
    (machine, pool, file)
}

/// Fences, and lines flushed or streamed, of what `act` does.
fn costs(machine: &Machine, act: impl FnOnce()) -> (u64, u64) {
    let before = machine.region.counters();
    act();
    let after = machine.region.counters();
    let streamed = (after.bytes_stored - before.bytes_stored).div_ceil(64);
    (after.fences - before.fences, after.lines_flushed - before.lines_flushed + streamed)
}

#[test]
fn a_commit_takes_two_fences_however_much_is_dirty() {
    let (machine, pool, file) = synced();
    for parts in [1, 3] {
        (0..parts).for_each(|part| pool.write(file, part * 1000, &[2; 250], Persistence::Asynchronous).unwrap());
        let (fences, _) = costs(&machine, || assert_eq!(pool.sync(file), Ok(Synced::Atomically)));
        assert_eq!(fences, 2, "{parts} parts");
    }
}

#[test]
fn a_small_append_takes_four_fences_and_twelve_lines_at_most() {
    let (machine, pool, file) = synced();
    for append in 0..40 {
        let (fences, lines) = costs(&machine, || {
            pool.append(file, &[3; 100], Persistence::Asynchronous).unwrap();
            pool.sync(file).unwrap();
        });
        assert!(fences <= 4 && lines <= 12, "append {append}: {fences} fences, {lines} lines");
    }
}
