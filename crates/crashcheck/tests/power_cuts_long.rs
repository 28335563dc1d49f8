//! Long scripts over volumes of full size, cut at random. `TIDEGATE_SCRIPTS=all` makes a hundred
//! thousand cuts; `TIDEGATE_SEED` (one seed, for a replay) and `TIDEGATE_RUNS` (how many seeds)
//! replace what CI does.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;
use tidegate_crashcheck::btt::{LongTally, LongVolume};

const FIRST_SEED: u64 = 0x7469_6465_0000_0000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    Some(parsed.unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs one seed after another on two threads, and prints what was done.
fn runs(name: &str, volume: &LongVolume, runs: u64, steps: u64, cuts_each: u32) -> LongTally {
    let start = Instant::now();
    let first = number("TIDEGATE_SEED").unwrap_or(FIRST_SEED);
    let runs = if number("TIDEGATE_SEED").is_some() { 1 } else { number("TIDEGATE_RUNS").unwrap_or(runs) };
    let seeds = Mutex::new(first..first + runs);
    let total = Mutex::new(LongTally::default());
    println!("{name}: seeds {first:#x}.. ({runs})");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = seeds.lock().expect("no run has it").next();
                    let Some(seed) = next else { break };
                    let tally = volume.run(seed, steps, cuts_each).unwrap_or_else(|failure| panic!("{failure}"));
                    total.lock().expect("no run has it").add(tally);
                }
            });
        }
    });
    let total = total.into_inner().expect("every run ended");
    println!("{name}: {total}; {:.1} s", start.elapsed().as_secs_f64());
    total
}

/// How many times what CI does is done.
fn times() -> u64 {
    if tidegate_crashcheck::is_long() { 6 } else { 1 }
}

#[test]
fn many_cuts_of_long_scripts() {
    let times = times();
    let blocks = runs("sectors of 512", &LongVolume::smallest(), 4 * times, 1000, 2);
    let pages = runs("sectors of 4096", &LongVolume::smallest_of_pages(), 2 * times, 1000, 2);
    let cuts = blocks.cuts + pages.cuts + blocks.later_cuts + pages.later_cuts;
    assert!(
        number("TIDEGATE_SEED").is_some() || number("TIDEGATE_RUNS").is_some() || cuts >= 16_500 * times,
        "{cuts} cuts"
    );
}

#[test]
fn cuts_on_both_sides_of_an_arena_boundary() {
    runs("two arenas", &LongVolume::two_arenas(), 2 * times(), 60, 3);
}
