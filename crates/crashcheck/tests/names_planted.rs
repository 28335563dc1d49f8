//! Mistakes planted under the namespace log: the campaign over short scripts must catch each of
//! them, or it is blind.

use tidegate_crashcheck::mutants::shown_by;
use tidegate_crashcheck::namespace::NameStep::{self, Create, Remove, Rename, Sync, SyncDirectory, SyncSource, Write};
use tidegate_crashcheck::namespace::{NamesBug, NamesPool, judge_name_scripts};

/// The campaign over `script` fails on a machine with `bug`, with this `symptom`, and not without
/// the bug.
fn caught(bug: NamesBug, script: &[NameStep], symptom: &str) {
    let pool = NamesPool::new();
    let scripts = || std::iter::once(script.to_vec());
    let sound = judge_name_scripts(&pool, &[], scripts(), None).unwrap_or_else(|failure| panic!("{failure}"));
    let failure = shown_by(|| judge_name_scripts(&pool, &[], scripts(), Some(bug)));
    let failure = failure.expect_err("the mistake is not caught");
    println!("{bug:?}: {failure}\n  without it: {sound}");
    assert!(failure.starts_with(symptom), "{failure}");
}

#[test]
fn a_record_that_is_not_durable_before_its_witness_is_caught() {
    caught(
        NamesBug::RecordFenceMissing,
        &[Create("a"), SyncDirectory],
        "SOURCE has operations up to place 3 and the pool up to place 0",
    );
}

#[test]
fn cursors_never_written_back_are_caught() {
    caught(NamesBug::CursorsFlushMissing, &[Create("a"), SyncDirectory], "a could not be replayed");
}

#[test]
fn a_sync_without_a_commit_is_caught() {
    caught(NamesBug::CommitMissing, &[Create("a"), SyncDirectory], "the names are []");
}

#[test]
fn a_witness_before_its_operation_is_caught() {
    caught(NamesBug::WitnessTooEarly, &[Create("a"), SyncDirectory], "the names are [a 100644 0 0]");
}

#[test]
fn operations_without_a_witness_are_caught() {
    caught(
        NamesBug::WitnessMissing,
        &[Create("a"), Rename("a", "b"), Create("a"), SyncDirectory],
        "a could not be replayed",
    );
}

#[test]
fn records_given_up_before_source_is_durable_are_caught() {
    caught(
        NamesBug::SourceSyncMissing,
        &[Create("a"), SyncDirectory, SyncSource],
        "SOURCE was not served with this pool",
    );
}

#[test]
fn a_file_below_that_is_not_synced_is_caught() {
    let script = [Create("a"), Write("a", 20), Sync("a"), NameStep::WriteBack];
    caught(NamesBug::FileSyncMissing, &script, "the names are [a 100644 1000 0], with contents");
}

#[test]
fn a_recovery_that_forgets_new_inodes_is_caught() {
    caught(
        NamesBug::MadeAnewMissing,
        &[Create("a"), Write("a", 20), Sync("a"), Create("b"), SyncDirectory],
        "the names are [a 100644 1000 0], with contents",
    );
}

#[test]
fn a_recovery_that_forgets_that_it_began_is_caught() {
    caught(NamesBug::ReplayBegunMissing, &[Create("a"), SyncDirectory], "a could not be replayed");
}

#[test]
fn contents_given_up_before_the_unlink_is_committed_are_caught() {
    caught(
        NamesBug::DiscardBeforeCommit,
        &[Create("a"), Write("a", 20), Sync("a"), Remove("a")],
        "the names are [a 100644 1000 0], with contents",
    );
}
