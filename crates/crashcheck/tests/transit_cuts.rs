//! The transit cache stopped at every access of random scripts: by a power cut, and by a kill.
//!
//! `TIDEGATE_SCRIPTS=all` runs three times as many. `TIDEGATE_SEED` gives the first script's seed,
//! `TIDEGATE_RUNS` how many there are. A failure prints both.

#![cfg(not(shuttle))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tidegate_crashcheck::btt::SmallVolume;
use tidegate_crashcheck::write_cache::{Act, Mistake, Stack};
use tidegate_crashcheck::{announce, is_long};
use tidegate_media::{Durability, Lba, LbaRange};
use tidegate_sim::{Image, Rng};
use tidegate_write_cache::{Fill, Options};

const SLOTS: u32 = 3;
const ACTS: usize = 12;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Runs `script` and stops it at each of its accesses in turn. Returns how many there were.
fn every_stop(
    shape: &SmallVolume,
    start: &Image,
    options: &dyn Fn(Options) -> Options,
    script: &[Act],
    seed: u64,
) -> u64 {
    let mut rng = Rng::new(seed);
    let mut at = 0;
    loop {
        let stack = Stack::new(shape, start, options, SLOTS, at);
        script.iter().zip(1..).for_each(|(act, tag)| stack.act(*act, tag));
        let ended = stack.accesses() <= at;
        let judged = stack.stop().judge(shape, &mut rng);
        judged.unwrap_or_else(|wrong| panic!("seed {seed}, stopped at access {at} of {script:?}: {wrong}"));
        if ended {
            return at;
        }
        at += 1;
    }
}

fn campaign(name: &str, options: impl Fn(Options) -> Options, seed: u64, runs: u64) {
    let runs = runs * if is_long() { 3 } else { 1 };
    let (seed, runs) = (number("TIDEGATE_SEED").unwrap_or(seed), number("TIDEGATE_RUNS").unwrap_or(runs));
    let mut stops = 0;
    for shape in [SmallVolume::four_free(), SmallVolume::whole_pages()] {
        let start = shape.formatted();
        for run in seed..seed + runs {
            let mut rng = Rng::new(run);
            let script: Vec<Act> = (0..ACTS).map(|_| Act::any(&mut rng, shape.sectors().min(4))).collect();
            let judged = catch_unwind(AssertUnwindSafe(|| every_stop(&shape, &start, &options, &script, run)));
            stops += judged.unwrap_or_else(|panic| {
                announce(&format!("{name}: TIDEGATE_SEED={run} TIDEGATE_RUNS=1 shows it again; {script:?}"));
                resume_unwind(panic)
            });
        }
    }
    announce(&format!(
        "{name}: {} scripts from seed {seed}, stopped {stops} times, each by a cut and by a kill",
        2 * runs
    ));
}

#[test]
fn the_transit_cache_stopped_anywhere() {
    campaign("transit cache", |options| options, 100, 200);
}

#[test]
fn slots_filled_past_the_caches_stopped_anywhere() {
    campaign("streamed slots", |options| Options { fill: Fill::Stream, ..options }, 1000, 80);
}

#[test]
fn without_its_two_ideas_it_still_loses_nothing() {
    campaign("without eager eviction", |options| Options { eager: false, ..options }, 2000, 50);
    campaign("without bypass", |options| Options { bypass: false, ..options }, 3000, 50);
}

/// The first complaint about scripts run with `mistake`.
fn caught(mistake: Mistake) -> String {
    let shape = SmallVolume::four_free();
    let start = shape.formatted();
    let first = (0..500).find_map(|seed| {
        let mut rng = Rng::new(seed);
        let script: Vec<Act> = (0..ACTS).map(|_| Act::any(&mut rng, shape.sectors())).collect();
        let stack = Stack::new(&shape, &start, &|options| options, SLOTS, 40 + rng.below(200)).with(mistake);
        script.iter().zip(1..).for_each(|(act, tag)| stack.act(*act, tag));
        stack.stop().judge(&shape, &mut rng).err()
    });
    first.unwrap_or_else(|| panic!("{mistake:?} goes unnoticed"))
}

#[test]
fn a_flush_not_made_is_caught() {
    assert!(caught(Mistake::FlushMissing).starts_with("after a power cut"));
}

#[test]
fn a_forced_write_in_the_cache_is_caught() {
    assert!(caught(Mistake::ForcedWriteCached).starts_with("after a power cut"));
}

#[test]
fn slots_that_a_kill_forgets_are_caught() {
    assert!(caught(Mistake::SlotsForgotten).starts_with("after a kill"));
}

/// An acknowledged write that no flush followed may be lost by a cut, and not by a kill.
#[test]
fn an_unflushed_write_is_in_the_slots_only() {
    let shape = SmallVolume::four_free();
    let stack = Stack::new(&shape, &shape.formatted(), &|options| options, SLOTS, u64::MAX);
    stack.act(Act::Write(1, Durability::Volatile), 7);
    stack.act(Act::Zero(LbaRange { first: Lba(0), blocks: 1 }, Durability::Fua), 0);
    assert_eq!(stack.cache.counters().slots_used, 1);
    stack.stop().judge(&shape, &mut Rng::new(1)).expect("both are allowed");
}
