//! Every power cut and kill of every short script over small pools of files; what is judged stands
//! in `tidegate_crashcheck::file_cache`. `TIDEGATE_STEPS` gives longer scripts than CI runs.

use std::time::Instant;
use tidegate_crashcheck::file_cache::{FileStep, FilesTally, SmallPool, judge_file_scripts};

/// Two extents in one sync, one behind the other in one block, one superseded, and some of it
/// below.
const BUSY: [FileStep; 6] = [
    FileStep::Write { file: 0, at: 0, len: 300 },
    FileStep::Sync(0),
    FileStep::WriteBack,
    FileStep::WriteSync { file: 0, at: 40, len: 20 },
    FileStep::Append { file: 0, len: 50 },
    FileStep::Sync(0),
];

/// Every script of so many steps.
fn scripts(steps: u32) -> impl Iterator<Item = Vec<FileStep>> + Send {
    let each = FileStep::ALPHABET.len();
    (0..each.pow(steps))
        .map(move |number| (0..steps).map(|place| FileStep::ALPHABET[number / each.pow(place) % each]).collect())
}

fn every_script(name: &str, pool: &SmallPool, before: &[FileStep], steps: u32) {
    let asked = std::env::var("TIDEGATE_STEPS").ok().map(|steps| steps.parse().expect("a number of steps"));
    let mut total = FilesTally::default();
    for steps in 1..=asked.unwrap_or(steps) {
        let start = Instant::now();
        let tally =
            judge_file_scripts(pool, before, scripts(steps), None).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, scripts of {steps}: {tally}; {:.1} s", start.elapsed().as_secs_f64());
        total.add(&tally);
    }
    println!("{name}, all: {total}");
    assert!(total.states > 0 && total.recovery_states > 0 && total.second_states > 0);
}

#[test]
fn every_cut_of_every_script_on_a_fresh_pool() {
    every_script("fresh", &SmallPool::of(4), &[], 2);
}

#[test]
fn every_cut_of_every_script_on_a_busy_pool() {
    every_script("busy", &SmallPool::of(4), &BUSY, 1);
}

/// The file below had the newest bytes of the range, some of it, or all of it; and the process that
/// made the hole was killed.
#[test]
fn every_cut_of_every_script_after_a_hole() {
    let hole = FileStep::Punch { file: 0, at: 30, len: 200 };
    let below = [FileStep::WriteSync { file: 0, at: 0, len: 300 }, FileStep::WriteBack, hole];
    let pool = SmallPool::of(4);
    every_script("hole, busy", &pool, &[&BUSY[..], &[hole]].concat(), 1);
    every_script("hole, below", &pool, &below, 1);
    every_script("hole, killed", &pool, &[&below[..], &[FileStep::Restart]].concat(), 1);
}

/// The file below is cut, and nothing else is to be written back: its next sync below has to cover
/// the cut before the pool may forget the file.
#[test]
fn every_cut_of_every_script_after_a_file_was_cut() {
    let cut = FileStep::Truncate { file: 0, size: 25 };
    let below = [FileStep::WriteSync { file: 0, at: 0, len: 300 }, FileStep::WriteBack, cut];
    let pool = SmallPool::of(4);
    every_script("cut", &pool, &below, 1);
    every_script("cut, written back", &pool, &[&below[..], &[FileStep::WriteBack]].concat(), 1);
}

/// Each file in a lane of its own.
#[test]
fn every_cut_of_every_script_on_two_lanes() {
    let both = [FileStep::WriteSync { file: 1, at: 0, len: 40 }, FileStep::Write { file: 0, at: 0, len: 300 }];
    every_script("two lanes", &SmallPool::with_lanes(2, 2), &both, 1);
}

/// The other file has the only block of DRAM, and then this one.
#[test]
fn every_cut_of_every_script_where_dram_is_full() {
    let small = || SmallPool { dram_blocks: 1, ..SmallPool::of(4) };
    let other = [FileStep::Write { file: 1, at: 10, len: 20 }];
    every_script("full DRAM, by the other", &small(), &other, 1);
    let own = [FileStep::Sync(0), FileStep::Write { file: 0, at: 5000, len: 20 }];
    every_script("full DRAM, by itself", &small(), &own, 1);
}

/// One chunk has blocks of one size only, and here they are large: what wants another size goes
/// below.
#[test]
fn every_cut_of_every_script_on_a_pool_that_is_too_small() {
    let full = [FileStep::WriteSync { file: 1, at: 0, len: 3000 }];
    every_script("too small", &SmallPool::of(1), &full, 1);
}

/// Clean entries by write-back and by reads, some that a newer one has a part of; and after a
/// restart.
#[test]
fn every_cut_of_every_script_with_clean_entries() {
    let back = [FileStep::WriteSync { file: 0, at: 0, len: 300 }, FileStep::WriteBack];
    let partly = FileStep::WriteSync { file: 0, at: 40, len: 20 };
    let pool = SmallPool::of(4);
    every_script("clean, read", &pool, &[FileStep::Admit(0)], 1);
    every_script("clean, restarted", &pool, &[&back[..], &[FileStep::Restart]].concat(), 1);
    every_script("clean, closed", &pool, &[&back[..], &[FileStep::Close(0)]].concat(), 1);
    every_script("clean, partly", &pool, &[&back[..], &[partly]].concat(), 1);
    every_script("clean, partly, below", &pool, &[&back[..], &[partly, FileStep::WriteBack]].concat(), 1);
    every_script("clean, changed", &pool, &[&back[..], &[FileStep::Strange(0)]].concat(), 1);
    let unwanted = FileStep::Unwanted(0);
    every_script("clean, unwanted", &pool, &[&back[..], &[unwanted]].concat(), 1);
    every_script("clean, partly unwanted", &pool, &[&back[..], &[partly, unwanted]].concat(), 1);
    every_script("clean, any order", &pool.in_any_order(), &[&back[..], &[FileStep::Admit(0)]].concat(), 1);
}

/// One chunk, which clean entries have: whatever wants another size gives them up, and what reads
/// want takes their place.
#[test]
fn every_cut_of_every_script_that_gives_up_clean_entries() {
    let full = [FileStep::WriteSync { file: 1, at: 0, len: 3000 }, FileStep::WriteBack];
    let restarted = [&full[..], &[FileStep::Restart]].concat();
    every_script("given up", &SmallPool::of(1), &full, 1);
    every_script("given up, restarted", &SmallPool::of(1), &restarted, 1);
    every_script("given up, any order", &SmallPool::of(1).in_any_order(), &restarted, 1);
}

/// As on aarch64.
#[test]
fn every_cut_where_words_of_a_line_arrive_in_any_order() {
    every_script("any order, fresh", &SmallPool::of(4).in_any_order(), &[], 1);
    every_script("any order, busy", &SmallPool::of(4).in_any_order(), &BUSY, 1);
}
