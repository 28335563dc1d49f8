//! Every power cut of every short script over small caches; what is judged stands in
//! `tidegate_crashcheck::disk_cache`. `TIDEGATE_SCRIPTS=all` judges every script of three steps on
//! the first four caches, not one in 499, every one of two steps on the others, not one in 211, and
//! every one of one step on the rest, not one in six; `TIDEGATE_STEPS` gives longer ones.

use std::time::Instant;
use tidegate_crashcheck::checker::Seen;
use tidegate_crashcheck::disk_cache::{CacheTally, SmallCache, Watched, judge_cache_scripts, judge_some_cache_scripts};

/// Judges every script of up to so many steps (or as many as the environment says).
fn every_script(name: &str, cache: &SmallCache, steps: u32) -> CacheTally {
    let seen = Seen::default();
    let mut total = CacheTally::default();
    let asked = std::env::var("TIDEGATE_STEPS").ok().map(|steps| steps.parse().expect("a number of steps"));
    for steps in 1..=asked.unwrap_or(steps) {
        let start = Instant::now();
        let judged = judge_cache_scripts(cache, |region: Watched| region, steps, &seen);
        let tally = judged.unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, scripts of {steps}: {tally}; {:.1} s", start.elapsed().as_secs_f64());
        total.add(&tally);
    }
    println!("{name}, all: {total}");
    assert_eq!(total.cuts_sampled, 0, "every image but for the words of data");
    total
}

/// Whether the environment asks for more than CI does.
fn all_asked() -> bool {
    ["TIDEGATE_STEPS", "TIDEGATE_SCRIPTS"].into_iter().any(|name| std::env::var_os(name).is_some())
}

/// Judges one in six scripts of one step, or all of them if the environment asks for that: for
/// caches that combine options of those above.
fn some_steps(name: &str, caches: impl IntoIterator<Item = SmallCache>) {
    let one_in = if all_asked() { 1 } else { 6 };
    for cache in caches {
        let judged = judge_some_cache_scripts(&cache, |region: Watched| region, 1, one_in, &Seen::default());
        println!("one step, {name}: {}", judged.unwrap_or_else(|failure| panic!("{failure}")));
    }
}

/// Judges every script of one and two steps and, unless the environment asks for all, one in
/// 499 of three: there are twenty steps.
fn every_short_script(name: &str, cache: &SmallCache) {
    if all_asked() {
        every_script(name, cache, 3);
        return;
    }
    every_script(name, cache, 2);
    let judged = judge_some_cache_scripts(cache, |region: Watched| region, 3, 499, &Seen::default());
    let tally = judged.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{name}, one in 499 scripts of 3: {tally}");
    assert_eq!(tally.cuts_sampled, 0, "every image but for the words of data");
}

/// Judges every script of one step and, unless the environment asks for all, one in 211 of two
/// steps: for caches that differ from those above in one option.
fn many_scripts(name: &str, cache: &SmallCache) -> CacheTally {
    if all_asked() {
        return every_script(name, cache, 2);
    }
    let mut total = every_script(name, cache, 1);
    let judged = judge_some_cache_scripts(cache, |region: Watched| region, 2, 211, &Seen::default());
    let tally = judged.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{name}, one in 211 scripts of 2: {tally}");
    assert_eq!(tally.cuts_sampled, 0, "every image but for the words of data");
    total.add(&tally);
    total
}

#[test]
fn every_cut_of_every_script_on_a_fresh_cache() {
    every_short_script("fresh", &SmallCache::fresh());
}

#[test]
fn every_cut_of_every_script_on_a_cache_full_of_clean_blocks() {
    every_short_script("full of clean blocks", &SmallCache::full_of_clean_blocks());
}

#[test]
fn every_cut_of_every_script_on_a_cache_full_of_dirty_blocks() {
    every_short_script("full of dirty blocks", &SmallCache::full_of_dirty_blocks());
}

#[test]
fn every_cut_of_every_script_on_a_cache_with_some_of_each() {
    every_short_script("some of each", &SmallCache::mixed());
}

/// As on aarch64. One step after each state that a cache may be in.
#[test]
fn every_cut_where_words_of_a_line_arrive_in_any_order() {
    let caches = [
        SmallCache::fresh(),
        SmallCache::full_of_clean_blocks(),
        SmallCache::full_of_dirty_blocks(),
        SmallCache::mixed(),
    ];
    for cache in caches {
        let cache = cache.in_any_order();
        let judged = judge_cache_scripts(&cache, |region: Watched| region, 1, &Seen::default());
        println!("any order: {}", judged.unwrap_or_else(|failure| panic!("{failure}")));
    }
}

/// What is only read is forgotten: no cut may show it, and none what was written over it half.
#[test]
fn every_cut_of_every_script_on_caches_that_forget_what_is_read() {
    many_scripts("fresh, reads forgotten", &SmallCache::fresh().that_forgets_reads());
    many_scripts("full of blocks read, forgotten", &SmallCache::full_of_clean_blocks().that_forgets_reads());
    many_scripts("some of each, reads forgotten", &SmallCache::mixed().that_forgets_reads());
    let (clean, dirty) = (SmallCache::full_of_clean_blocks, SmallCache::full_of_dirty_blocks);
    let caches = [
        dirty(),
        clean().with_sums(),
        SmallCache::mixed().with_sums(),
        SmallCache::fresh().in_any_order(),
        SmallCache::mixed().in_any_order(),
    ];
    some_steps("reads forgotten", caches.map(SmallCache::that_forgets_reads));
    // A million images are judged after one of its steps.
    let all_options = SmallCache::fresh().with_sums().in_any_order().that_forgets_reads();
    some_steps("all options", all_asked().then_some(all_options));
}

/// A checksum must never condemn what a cut left: every read after it verifies one.
#[test]
fn every_cut_of_every_script_on_caches_with_checksums() {
    many_scripts("fresh, with checksums", &SmallCache::fresh().with_sums());
    many_scripts("some of each, with checksums", &SmallCache::mixed().with_sums());
    let clean = SmallCache::full_of_clean_blocks();
    let caches = [clean, SmallCache::fresh().in_any_order(), SmallCache::mixed().in_any_order()];
    some_steps("with checksums", caches.map(SmallCache::with_sums));
}

/// The disk alone is at every instant what some commits left, all up to a moment.
#[test]
fn every_cut_of_every_script_where_the_disk_keeps_the_order_of_commits() {
    let caches = [
        ("fresh", SmallCache::fresh()),
        ("full of clean blocks", SmallCache::full_of_clean_blocks()),
        ("full of dirty blocks", SmallCache::full_of_dirty_blocks()),
        ("some of each", SmallCache::mixed()),
        ("amid a group", SmallCache::amid_a_group()),
        ("amid a group, with checksums", SmallCache::amid_a_group().with_sums()),
        ("amid a group, reads forgotten", SmallCache::amid_a_group().that_forgets_reads()),
    ];
    for (name, cache) in caches {
        let tally = many_scripts(&format!("{name}, in order"), &cache.in_order());
        assert!(tally.alone > 0, "disks were looked at without their cache");
    }
}

/// No cut and no kill leaves a disk that looks as if somebody else had written to it.
#[test]
fn every_cut_of_every_script_on_caches_that_compare_their_disk() {
    many_scripts("fresh, guarded", &SmallCache::fresh().guarded());
    let (mixed, group) = (SmallCache::mixed, SmallCache::amid_a_group);
    let caches = [
        SmallCache::full_of_clean_blocks(),
        SmallCache::full_of_dirty_blocks(),
        mixed(),
        mixed().with_sums(),
        mixed().in_any_order(),
        mixed().that_forgets_reads(),
        mixed().in_order(),
        group(),
        group().with_sums(),
    ];
    some_steps("guarded", caches.map(SmallCache::guarded));
}
