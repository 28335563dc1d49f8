//! Mistakes planted in the order of a write: the campaign over short scripts must catch each of
//! them, or it is blind.

use tidegate_crashcheck::btt::{Bug, Faulty, SecondCuts, SmallVolume, Step, judge_scripts};
use tidegate_crashcheck::checker::Seen;
use tidegate_crashcheck::mutants::shown_by;

/// The first failure of the campaign over scripts of one, then two, then three steps, on a region
/// with `bug`.
fn caught(bug: Bug) -> String {
    let volume = SmallVolume::two_free();
    let alphabet = Step::alphabet(&[0, 1, 2], volume.sectors(), false);
    let geometry = volume.geometry;
    for steps in 1..=3 {
        let seen = Seen::default();
        let wrap = |region| Faulty::new(region, geometry, bug);
        let campaign = || judge_scripts(&volume, wrap, &alphabet, steps, &seen, SecondCuts::Sampled(1));
        match shown_by(campaign) {
            Ok(tally) => println!("{bug:?}: not seen in scripts of {steps}: {tally}"),
            Err(failure) => {
                println!("{bug:?}, in a script of {steps}: {failure}");
                return failure;
            }
        }
    }
    panic!("{bug:?} is not caught");
}

#[test]
fn a_torn_data_word_is_caught() {
    caught(Bug::TornWord);
}

#[test]
fn the_data_fence_deleted_is_caught() {
    caught(Bug::DataFenceMissing);
}

#[test]
fn the_flog_flush_deleted_is_caught() {
    caught(Bug::FlogFlushMissing);
}

#[test]
fn the_fence_between_flog_and_map_deleted_is_caught() {
    caught(Bug::FlogFenceMissing);
}

#[test]
fn the_halves_of_a_flog_slot_swapped_are_caught() {
    caught(Bug::FlogHalvesSwapped);
}

#[test]
fn the_map_before_the_flog_is_caught() {
    caught(Bug::MapBeforeFlog);
}

#[test]
fn a_map_never_written_back_is_caught() {
    caught(Bug::MapFlushMissing);
}

#[test]
fn another_lanes_map_entry_not_settled_is_caught() {
    caught(Bug::SettlingMissing);
}

#[test]
fn a_lane_that_changes_threads_without_flushing_again_is_caught() {
    caught(Bug::SecondFlushMissing);
}

#[test]
fn a_recovery_not_fenced_is_caught() {
    caught(Bug::RecoveryFenceMissing);
}

#[test]
fn a_recovery_from_entries_in_the_caches_only_is_caught() {
    caught(Bug::FlogOnOpenNotFlushed);
}
