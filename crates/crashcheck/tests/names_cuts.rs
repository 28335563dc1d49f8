//! Every power cut and kill of every short script of operations on names; what is judged stands in
//! `tidegate_crashcheck::namespace`. `TIDEGATE_STEPS` gives longer scripts than CI runs.

use std::time::Instant;
use tidegate_crashcheck::namespace::{NameStep, NamesPool, NamesTally, judge_name_scripts};
use tidegate_crashcheck::script::scripts;

/// A synced file with contents, and operations that SOURCE may lack.
const BUSY: [NameStep; 5] = [
    NameStep::Create("a"),
    NameStep::Write("a", 20),
    NameStep::Sync("a"),
    NameStep::MakeDirectory("d"),
    NameStep::Create("b"),
];

fn every_script(name: &str, pool: &NamesPool, before: &[NameStep], steps: u32) {
    let asked = std::env::var("TIDEGATE_STEPS").ok().map(|steps| steps.parse().expect("a number of steps"));
    let mut total = NamesTally::default();
    for steps in 1..=asked.unwrap_or(steps) {
        let start = Instant::now();
        let tally = judge_name_scripts(pool, before, scripts(&NameStep::ALPHABET, steps), None)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, scripts of {steps}: {tally}; {:.1} s", start.elapsed().as_secs_f64());
        total.add(&tally);
    }
    assert!(total.states > 0 && total.kills > 0);
}

/// One script and its beginnings.
fn script(steps: &[NameStep]) {
    let beginnings = (1..=steps.len()).map(|end| steps[..end].to_vec());
    let tally =
        judge_name_scripts(&NamesPool::new(), &[], beginnings, None).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{steps:?}: {tally}");
}

#[test]
fn every_cut_of_every_script_in_an_empty_directory() {
    every_script("empty", &NamesPool::new(), &[], 2);
}

#[test]
fn every_cut_of_every_script_in_a_busy_directory() {
    every_script("busy", &NamesPool::new(), &BUSY, 1);
}

/// As on aarch64.
#[test]
fn every_cut_where_words_of_a_line_arrive_in_any_order() {
    every_script("any order", &NamesPool::new().in_any_order(), &BUSY[..3], 1);
}

/// A new file takes the place of an old one, as editors and databases do it.
#[test]
fn a_file_that_replaces_another_one_is_whole_at_every_cut() {
    use NameStep::{Create, Rename, Sync, SyncDirectory, Truncate, Write, WriteBack};
    script(&[
        Create("a"),
        Write("a", 20),
        Sync("a"),
        Create("new"),
        Write("new", 30),
        Sync("new"),
        Rename("new", "a"),
        SyncDirectory,
        Truncate("a", 0),
        Write("a", 5),
        Sync("a"),
        WriteBack,
    ]);
}

/// Synced contents come back if the loss of the last name is lost, and not otherwise.
#[test]
fn a_file_with_two_names_goes_with_the_last_one() {
    use NameStep::{Create, Link, Remove, Sync, SyncDirectory, Write};
    script(&[
        Create("a"),
        Write("a", 20),
        Sync("a"),
        Link("a", "b"),
        Remove("a"),
        SyncDirectory,
        Write("b", 9),
        Sync("b"),
        Remove("b"),
        SyncDirectory,
        Create("b"),
        Write("b", 3),
        Sync("b"),
    ]);
}

#[test]
fn directories_come_and_go_with_what_is_in_them() {
    use NameStep::{Create, MakeDirectory, Remove, Rename, Sync, SyncDirectory, Write};
    script(&[
        MakeDirectory("d"),
        MakeDirectory("d/e"),
        Create("d/e/f"),
        Write("d/e/f", 20),
        Sync("d/e/f"),
        Rename("d", "g"),
        Sync("g/e/f"),
        Rename("g/e/f", "f"),
        Remove("g/e"),
        Remove("g"),
        SyncDirectory,
        Sync("f"),
    ]);
}

#[test]
fn attributes_and_exchanged_names_are_replayed() {
    use NameStep::{Create, Exchange, RemoveXattr, SetMode, SetXattr, Sync, SyncDirectory, Write};
    script(&[
        Create("a"),
        Create("b"),
        Write("a", 20),
        SetMode("a", 0o600),
        SetXattr("a", 100),
        Sync("a"),
        Exchange("a", "b"),
        SetXattr("a", 9),
        RemoveXattr("b"),
        SyncDirectory,
        SetMode("b", 0o400),
        Sync("b"),
    ]);
}

/// Half of the ring takes one of these values, so the second one waits for a sync of SOURCE.
#[test]
fn a_full_log_syncs_source_and_goes_round() {
    use NameStep::{Create, Reopen, SetXattr, SyncDirectory, SyncSource};
    let large = |file| SetXattr(file, 60_000);
    script(&[Create("a"), large("a"), SyncDirectory, large("a"), Create("b"), SyncSource, large("b"), SyncDirectory]);
    script(&[large("a"), Create("a"), large("a"), large("a"), large("a"), large("a"), Reopen, Create("b"), large("b")]);
}

/// A record has no room for this value, so SOURCE has the operation durably instead.
#[test]
fn an_operation_without_a_record_is_durable_below() {
    use NameStep::{Create, Remove, SetXattr, SyncDirectory};
    script(&[Create("a"), SetXattr("a", 65_537), Create("b"), SyncDirectory, Remove("a"), SyncDirectory]);
}

#[test]
fn a_recovery_follows_another_one() {
    use NameStep::{Create, Rename, Reopen, Sync, Write};
    script(&[Create("a"), Write("a", 20), Sync("a"), Reopen, Rename("a", "b"), Write("b", 30), Sync("b"), Reopen]);
}
