//! Mistakes planted in the disk cache: the campaign over short scripts must catch each of them, or
//! it is blind.

use tidegate_crashcheck::checker::Seen;
use tidegate_crashcheck::disk_cache::{CacheBug, FaultyCache, GroupPart, SmallCache, Watched, judge_cache_scripts};
use tidegate_crashcheck::mutants::shown_by;

/// The first failure of the campaign, over the shortest scripts that show it, on a machine with
/// `bug`.
fn caught(bug: CacheBug) -> String {
    caught_on(&caches(), bug)
}

fn caches() -> [SmallCache; 4] {
    [SmallCache::fresh(), SmallCache::mixed(), SmallCache::full_of_clean_blocks(), SmallCache::full_of_dirty_blocks()]
}

fn caught_on(caches: &[SmallCache], bug: CacheBug) -> String {
    for steps in 1..=3 {
        for cache in caches {
            let seen = Seen::default();
            let wrap = |region: Watched| FaultyCache::new(region, cache.plan, bug);
            let campaign = || judge_cache_scripts(cache, wrap, steps, &seen);
            if let Err(failure) = shown_by(campaign) {
                println!("{bug:?}, in a script of {steps}: {failure}");
                return failure;
            }
        }
    }
    panic!("{bug:?} is not caught");
}

#[test]
fn a_torn_data_word_is_caught() {
    caught(CacheBug::TornWord);
}

#[test]
fn the_fence_after_the_data_of_one_block_deleted_is_caught() {
    caught(CacheBug::DataFenceMissing);
}

/// D7: a block read in needs data, fence, entry.
#[test]
fn the_fence_after_the_data_of_a_block_read_in_deleted_is_caught() {
    caught(CacheBug::FillFenceMissing);
}

#[test]
fn an_entry_never_written_back_is_caught() {
    caught(CacheBug::EntryFlushMissing);
}

#[test]
fn the_last_fence_of_one_block_deleted_is_caught() {
    caught(CacheBug::EntryFenceMissing);
}

#[test]
fn the_words_of_an_entry_swapped_are_caught() {
    caught(CacheBug::EntryWordsSwapped);
}

#[test]
fn a_second_word_streamed_ahead_of_the_first_is_caught() {
    caught(CacheBug::NameTakenForDurable);
}

/// D1: the head lets in what an older, lost transaction left in the ring.
#[test]
fn the_fence_between_elements_and_head_deleted_is_caught() {
    caught(CacheBug::ElementsFenceMissing);
}

#[test]
fn cursors_never_written_back_are_caught() {
    caught(CacheBug::CursorsFlushMissing);
}

#[test]
fn the_last_fence_of_a_transaction_deleted_is_caught() {
    caught(CacheBug::HeadFenceMissing);
}

#[test]
fn elements_retired_before_their_entries_are_durable_are_caught() {
    caught(CacheBug::RetireFlushMissing);
}

/// D2, D3: a block is used again while a durable entry still names it.
#[test]
fn an_entry_given_up_and_never_written_back_is_caught() {
    caught(CacheBug::EvictionFlushMissing);
}

/// D2 to D4: the same, for want of a fence of the core that gave it up.
#[test]
fn the_fence_of_an_eviction_deleted_is_caught() {
    caught(CacheBug::EvictionFenceMissing);
}

/// D8: an element that nobody retired brings an entry back that was given up since.
#[test]
fn an_entry_given_up_behind_its_elements_is_caught() {
    caught(CacheBug::EvictionBehindElements);
}

#[test]
fn a_recovery_from_cursors_in_the_caches_only_is_caught() {
    caught(CacheBug::CursorsOnOpenNotFlushed);
}

#[test]
fn a_recovery_from_entries_in_the_caches_only_is_caught() {
    caught(CacheBug::EntriesOnOpenNotFlushed);
}

/// D6: entries, fence, tail.
#[test]
fn a_recovery_that_retires_before_its_entries_are_durable_is_caught() {
    caught(CacheBug::RecoveryFenceMissing);
}

/// A block that is given up without a fence must have no entry, or it is used again under a living
/// one.
#[test]
fn an_entry_stored_for_what_is_to_be_forgotten_is_caught() {
    caught_on(&caches().map(SmallCache::that_forgets_reads), CacheBug::ForgottenEntryStored);
}

#[test]
fn a_commit_over_what_is_to_be_forgotten_that_takes_its_entry_for_named_is_caught() {
    caught_on(&caches().map(SmallCache::that_forgets_reads), CacheBug::ForgottenTakenForNamed);
}

/// Mistakes of commits are mistakes over blocks that are to be forgotten, too.
#[test]
fn mistakes_of_commits_are_caught_where_reads_are_forgotten() {
    let caches = caches().map(SmallCache::that_forgets_reads);
    for bug in [CacheBug::DataFenceMissing, CacheBug::EntryFlushMissing, CacheBug::ElementsFenceMissing] {
        caught_on(&caches, bug);
    }
}

#[test]
fn a_disk_that_does_not_flush_is_caught() {
    caught(CacheBug::DiskFlushMissing);
}

/// The order of commits on the disk needs each of the four flushes of a group.
#[test]
fn a_group_without_one_of_its_flushes_is_caught() {
    let caches = [SmallCache::fresh(), SmallCache::full_of_dirty_blocks()].map(SmallCache::in_order);
    let caches = [SmallCache::amid_a_group()].into_iter().chain(caches).collect::<Vec<_>>();
    for part in [GroupPart::Copy, GroupPart::Told, GroupPart::Placed, GroupPart::Retired] {
        caught_on(&caches, CacheBug::GroupFlushMissing(part));
    }
}

/// Blocks on their way to the disk do not hide mistakes of commits.
#[test]
fn mistakes_of_commits_are_caught_where_the_disk_keeps_their_order() {
    let caches = caches().map(SmallCache::in_order);
    for bug in [CacheBug::DataFenceMissing, CacheBug::EntryFlushMissing, CacheBug::ElementsFenceMissing] {
        caught_on(&caches, bug);
    }
}

/// A disk that looks as if somebody else had written to it, and nobody has.
#[test]
fn a_doubt_about_the_disk_that_is_not_durable_before_it_is_written_is_caught() {
    let caches = caches().map(SmallCache::guarded);
    for bug in [CacheBug::DoubtFenceMissing, CacheBug::DoubtFlushMissing, CacheBug::DiskFlushMissing] {
        caught_on(&caches, bug);
    }
}
