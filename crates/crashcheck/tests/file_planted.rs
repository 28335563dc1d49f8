//! Mistakes planted in the machine under the file cache: the campaign over short scripts must catch
//! each of them, or it is blind.

use tidegate_crashcheck::file_cache::{FileStep, FilesBug, SmallPool, judge_file_scripts};
use tidegate_crashcheck::mutants::shown_by;

const WRITE: FileStep = FileStep::Write { file: 0, at: 0, len: 300 };
const OTHER: FileStep = FileStep::Write { file: 0, at: 500, len: 40 };
const SYNC: FileStep = FileStep::Sync(0);
const APPEND: FileStep = FileStep::Append { file: 0, len: 60 };
const BACK: FileStep = FileStep::WriteBack;

/// The first failure of the campaign over `scripts` and their beginnings on a machine with `bug`;
/// none without it.
fn caught(bug: FilesBug, script: &[FileStep]) {
    caught_in(&SmallPool::of(4), bug, script);
}

fn caught_in(pool: &SmallPool, bug: FilesBug, script: &[FileStep]) {
    let scripts = || (1..=script.len()).map(|steps| script[..steps].to_vec());
    let sound = judge_file_scripts(pool, &[], scripts(), None).unwrap_or_else(|failure| panic!("{failure}"));
    let failure = shown_by(|| judge_file_scripts(pool, &[], scripts(), Some(bug)));
    let failure = failure.expect_err("the mistake is not caught");
    println!("{bug:?}: {failure}\n  without it: {sound}");
}

#[test]
fn the_fence_after_data_deleted_is_caught() {
    caught(FilesBug::DataFenceMissing, &[WRITE, SYNC]);
}

#[test]
fn the_last_fence_of_a_commit_deleted_is_caught() {
    caught(FilesBug::HeadFenceMissing, &[WRITE, SYNC]);
}

#[test]
fn cursors_never_written_back_are_caught() {
    caught(FilesBug::CursorsFlushMissing, &[WRITE, SYNC]);
}

#[test]
fn a_sync_in_several_commits_is_caught() {
    caught(FilesBug::SyncNotAtomic, &[WRITE, OTHER, SYNC]);
}

#[test]
fn half_a_group_is_caught() {
    caught(FilesBug::SyncNotAtomic, &[FileStep::Group { file: 0, at: [10, 410], len: 50 }]);
}

#[test]
fn entries_retired_before_they_are_durable_are_caught() {
    caught(FilesBug::SettleFlushMissing, &[WRITE, SYNC].repeat(5));
}

#[test]
fn a_longer_block_whose_length_is_not_written_back_is_caught() {
    caught(FilesBug::LengthFlushMissing, &[APPEND, SYNC, APPEND, SYNC]);
}

#[test]
fn a_ring_emptied_before_its_entries_are_durable_is_caught() {
    caught(FilesBug::RedoFlushMissing, &[WRITE, SYNC]);
}

/// A version older than what the file has.
#[test]
fn an_old_version_brought_back_by_recovery_is_caught() {
    let cut = |size| FileStep::Truncate { file: 0, size };
    caught(FilesBug::NothingVoid, &[WRITE, SYNC, BACK, cut(10), cut(200)]);
}

#[test]
fn a_file_below_that_is_not_synced_is_caught() {
    caught(FilesBug::BackingSyncMissing, &[WRITE, SYNC, BACK]);
}

#[test]
fn an_entry_that_is_clean_before_the_file_below_is_synced_is_caught() {
    caught(FilesBug::CleanTooEarly, &[WRITE, SYNC]);
}

/// Its block is another entry's when the power fails.
#[test]
fn a_clean_entry_whose_block_is_used_again_is_caught() {
    let large = FileStep::WriteSync { file: 0, at: 0, len: 3000 };
    let small = FileStep::WriteSync { file: 1, at: 0, len: 100 };
    caught_in(&SmallPool::of(1), FilesBug::CleanNotFreed, &[large, BACK, small, BACK]);
}

/// Somebody else changed the file below between two processes.
#[test]
fn a_clean_entry_served_after_the_file_below_changed_is_caught() {
    caught(FilesBug::OneStamp, &[WRITE, SYNC, FileStep::Strange(0)]);
}

#[test]
fn a_time_of_modification_that_no_record_has_is_caught() {
    caught(FilesBug::TimeNotStored, &[WRITE, SYNC, OTHER, SYNC]);
    caught(FilesBug::TimeNotStored, &[WRITE, SYNC, FileStep::SetTime(0), SYNC]);
}

#[test]
fn a_file_below_that_does_not_get_its_time_is_caught() {
    caught(FilesBug::TimeNotBelow, &[WRITE, SYNC, BACK]);
}

#[test]
fn a_direct_write_below_that_the_next_sync_does_not_cover_is_caught() {
    let direct = FileStep::WriteDirect { file: 0, at: 15, len: 40 };
    caught(FilesBug::BackingSyncMissing, &[direct, SYNC]);
}
