//! Files below that refuse one change of a step: see `crashcheck::file_cache::failing`.

use tidegate_crashcheck::file_cache::{FileStep, SmallPool, judge_refusals};

/// Synced bytes in two entries, one of them below, and unsynced ones over both.
const BUSY: [FileStep; 5] = [
    FileStep::Write { file: 0, at: 0, len: 300 },
    FileStep::Sync(0),
    FileStep::WriteBack,
    FileStep::WriteSync { file: 0, at: 280, len: 60 },
    FileStep::Write { file: 0, at: 250, len: 40 },
];

fn every_step(name: &str, small: &SmallPool, before: &[FileStep]) {
    let judge = |step| judge_refusals(small, before, step).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    let refusals: u64 = FileStep::ALPHABET.into_iter().map(judge).sum();
    println!("{name}: {refusals} refusals");
    assert!(refusals > 20);
}

#[test]
fn refusals_while_files_get_their_first_records() {
    every_step("fresh", &SmallPool::of(4), &[]);
}

#[test]
fn refusals_while_the_pool_has_newer_bytes() {
    every_step("busy", &SmallPool::of(4), &BUSY);
}

/// A file that was cut, and one that was drained.
#[test]
fn refusals_after_a_truncation() {
    let cut = [FileStep::Truncate { file: 0, size: 40 }, FileStep::Drain(1)];
    every_step("cut", &SmallPool::of(4), &[&BUSY[..], &cut].concat());
}

/// Synchronous writes find no room in the pool, and go below.
#[test]
fn refusals_where_the_pool_is_full() {
    let full = [FileStep::WriteSync { file: 1, at: 0, len: 3000 }];
    every_step("full", &SmallPool::of(1), &full);
}
