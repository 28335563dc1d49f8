//! Every joint cut of short scripts over a mirrored volume and a mirrored disk cache, with either
//! side lost afterwards; what is judged stands in `tidegate_crashcheck::mirror`.

use tidegate_crashcheck::btt::SmallVolume;
use tidegate_crashcheck::checker::Seen;
use tidegate_crashcheck::disk_cache::SmallCache;
use tidegate_crashcheck::mirror::{
    MirrorBug, MirrorStep, MirrorTally, MirroredCache, MirroredVolume, Subject, judge_mirror_scripts,
    judge_mistaken_mirror, judge_sampled_mirror_scripts, judge_these_mirror_scripts,
};
use tidegate_crashcheck::mutants::shown_by;

fn every_script<S: Subject>(name: &str, subject: &S, steps_max: u32) -> MirrorTally {
    let seen = Seen::default();
    let mut last = MirrorTally::default();
    for steps in 1..=steps_max {
        let start = std::time::Instant::now();
        last = judge_mirror_scripts(subject, steps, &seen).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, scripts of {steps}: {last}; {:.1} s", start.elapsed().as_secs_f64());
    }
    last
}

/// Judges some scripts of two steps: those that `TIDEGATE_SEED` draws, as many of the 100 as
/// `TIDEGATE_SCRIPTS` says, a number or `all`.
fn some_scripts_of_two<S: Subject>(name: &str, subject: &S, scripts: usize) -> MirrorTally {
    let seed = std::env::var("TIDEGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let scripts = match std::env::var("TIDEGATE_SCRIPTS").as_deref() {
        Ok("all") => usize::MAX,
        Ok(number) => number.parse().expect("a number, or all"),
        Err(_) => scripts,
    };
    let judged = judge_sampled_mirror_scripts(subject, 2, (seed, scripts), &Seen::default());
    let tally = judged.unwrap_or_else(|failure| panic!("{failure}, with TIDEGATE_SEED={seed}"));
    println!("{name}, scripts of 2 from the seed {seed}: {tally}");
    tally
}

#[test]
fn a_volume_loses_nothing_with_either_side() {
    let tally = every_script("a mirrored volume", &MirroredVolume(SmallVolume::two_free()), 1);
    assert!(tally.together > 0 && tally.alone > 0 && tally.second_cuts > 0, "{tally}");
}

#[test]
fn a_volume_loses_nothing_in_two_steps_with_either_side() {
    let tally = some_scripts_of_two("a mirrored volume", &MirroredVolume(SmallVolume::two_free()), 8);
    assert!(tally.together > 0 && tally.alone > 0 && tally.second_cuts > 0, "{tally}");
}

#[test]
fn a_disk_cache_loses_nothing_with_either_side() {
    let tally = every_script("a mirrored disk cache", &MirroredCache(SmallCache::fresh()), 1);
    assert!(tally.together > 0 && tally.alone > 0 && tally.second_cuts > 0, "{tally}");
}

#[test]
fn a_disk_cache_loses_nothing_in_two_steps_with_either_side() {
    let tally = some_scripts_of_two("a mirrored disk cache", &MirroredCache(SmallCache::fresh()), 4);
    assert!(tally.together > 0 && tally.alone > 0 && tally.second_cuts > 0, "{tally}");
}

/// Judges scripts in which a side is opened alone, behind a write or before one.
fn openings_alone<S: Subject>(name: &str, subject: &S) {
    let scripts =
        [0, 1].into_iter().flat_map(|side| [[WRITE, MirrorStep::StartAlone(side)], [MirrorStep::GoAlone(side), WRITE]]);
    let judged = judge_these_mirror_scripts(subject, scripts.map(Vec::from), &Seen::default());
    let tally = judged.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{name}, openings of one side: {tally}");
    assert!(tally.refused > 0 && tally.left > 0, "{tally}");
}

#[test]
fn a_volume_of_which_one_side_is_opened_loses_nothing() {
    openings_alone("a mirrored volume", &MirroredVolume(SmallVolume::two_free()));
}

#[test]
fn a_disk_cache_of_which_one_side_is_opened_loses_nothing() {
    openings_alone("a mirrored disk cache", &MirroredCache(SmallCache::fresh()));
}

/// The campaign over a mirror with `bug` fails on `script`, on each engine.
fn caught(bug: MirrorBug, script: &[MirrorStep]) {
    fn on<S: Subject>(subject: &S, script: &[MirrorStep], bug: MirrorBug) {
        let shown = shown_by(|| judge_mistaken_mirror(subject, script, bug));
        println!("{bug:?}: {}", shown.expect_err("the mistake is not caught"));
    }
    on(&MirroredVolume(SmallVolume::two_free()), script, bug);
    on(&MirroredCache(SmallCache::fresh()), script, bug);
}

const WRITE: MirrorStep = MirrorStep::Write(0, 0);

#[test]
fn a_fence_of_one_side_only_is_caught() {
    caught(MirrorBug::OneSideFenced, &[WRITE]);
}

#[test]
fn a_side_that_goes_on_alone_without_a_generation_is_caught() {
    caught(MirrorBug::AloneNotRecorded, &[MirrorStep::Lose(0), WRITE]);
}

#[test]
fn a_side_opened_alone_that_does_not_say_so_is_caught() {
    caught(MirrorBug::AloneNotRecorded, &[MirrorStep::GoAlone(1), WRITE]);
}

#[test]
fn a_side_that_says_early_that_it_is_alone_is_caught() {
    caught(MirrorBug::AloneEarly, &[MirrorStep::StartAlone(0)]);
    caught(MirrorBug::AloneEarly, &[WRITE]);
}

#[test]
fn a_stale_side_taken_as_whole_is_caught() {
    caught(MirrorBug::StaleTaken, &[MirrorStep::Lose(0), WRITE]);
}

#[test]
fn sides_that_are_not_made_equal_are_caught() {
    caught(MirrorBug::NotMadeEqual, &[WRITE]);
}

#[test]
fn stores_to_one_side_only_are_caught() {
    caught(MirrorBug::OneSideStored, &[WRITE]);
}
