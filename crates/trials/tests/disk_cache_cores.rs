//! The disk cache on virtual cores, under interleavings and power cuts that seeds choose. `TIDEGATE_SEEDS` gives more of them.
//!
//! Compiled with `--cfg virtual_cores` only.
#![cfg(virtual_cores)]

use tidegate_trials::disk_cache_cuts::{Fences, judge_on_cores};

#[test]
fn groups_stay_whole_under_every_interleaving_and_cut() {
    let seeds = std::env::var("TIDEGATE_SEEDS").ok().map_or(400, |seeds| seeds.parse().expect("a number of seeds"));
    let (mut acts, mut cut_short, mut evictions) = (0, 0, 0);
    for seed in 0..seeds {
        let tally = judge_on_cores(seed, 8, Fences::Made).unwrap_or_else(|failure| panic!("{failure}"));
        acts += tally.acts;
        cut_short += tally.cut_short;
        evictions += tally.evictions;
    }
    println!(
        "{seeds} seeds: {acts} operations, {cut_short} lives cut short, {evictions} blocks given up in whole lives"
    );
    assert!(cut_short > 0 && evictions > 0, "both were met");
}

#[test]
fn fences_left_out_are_noticed() {
    let noticed = (0..100).find_map(|seed| judge_on_cores(seed, 8, Fences::HalfOfThem).err());
    println!("{}", noticed.expect("they are"));
}
