//! Every power cut and kill of short scripts in which programs have pages of files mapped, while
//! others write, sync, cut and write back the files; and mistakes planted there. `TIDEGATE_STEPS`
//! gives more scripts than CI runs.

use std::time::Instant;
use tidegate_crashcheck::file_cache::{FileStep, FilesBug, SmallPool, judge_file_scripts};
use tidegate_crashcheck::mutants::shown_by;

const FILL: FileStep = FileStep::WriteSync { file: 0, at: 0, len: 600 };
const MAP: FileStep = FileStep::Map(0);
const STORE: FileStep = FileStep::MappedStore { file: 0, at: 250, len: 20 };
const OVER: FileStep = FileStep::MappedStore { file: 0, at: 256, len: 8 };
const MSYNC: FileStep = FileStep::Msync(0);
const GIVE_BACK: FileStep = FileStep::GiveBack(0);
const UNMAP: FileStep = FileStep::Unmap(0);
const INSIDE: FileStep = FileStep::Write { file: 0, at: 100, len: 30 };
const ACROSS: FileStep = FileStep::Write { file: 0, at: 500, len: 40 };
const BEHIND: FileStep = FileStep::WriteSync { file: 0, at: 520, len: 40 };
const OTHER: FileStep = FileStep::WriteSync { file: 1, at: 0, len: 300 };
const SYNC: FileStep = FileStep::Sync(0);
const BACK: FileStep = FileStep::WriteBack;
const CUT: FileStep = FileStep::Truncate { file: 0, size: 300 };
const LONGER: FileStep = FileStep::Truncate { file: 0, size: 700 };
/// A time that is set, as a later one: the model's times only grow.
const TIME: FileStep = FileStep::SetTime(0);
const PUNCH: FileStep = FileStep::Punch { file: 0, at: 200, len: 90 };

/// What comes after a mapping was made and stored to.
const NEXT: [FileStep; 15] =
    [STORE, OVER, MSYNC, UNMAP, MAP, INSIDE, ACROSS, BEHIND, SYNC, BACK, CUT, LONGER, PUNCH, TIME, FileStep::Restart];

fn judge(name: &str, pool: &SmallPool, before: &[FileStep], scripts: Vec<Vec<FileStep>>) {
    let start = Instant::now();
    let tally =
        judge_file_scripts(pool, before, scripts.into_iter(), None).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{name}: {tally}; {:.1} s", start.elapsed().as_secs_f64());
    assert!(tally.states > 0 && tally.kills > 0);
}

fn ones(steps: &[FileStep]) -> Vec<Vec<FileStep>> {
    steps.iter().map(|step| vec![*step]).collect()
}

/// Every two steps, of which the mapping survives the first.
fn pairs(first: &[FileStep]) -> Vec<Vec<FileStep>> {
    let is_mapped = |one: &FileStep, next: &FileStep| {
        *one != UNMAP || !matches!(next, FileStep::MappedStore { .. } | FileStep::Msync(_))
    };
    let all = first.iter().flat_map(|one| NEXT.iter().map(move |next| (*one, *next)));
    all.filter(|(one, next)| is_mapped(one, next)).map(|(one, next)| vec![one, next]).collect()
}

#[test]
fn every_cut_of_a_mapping_that_is_made() {
    let pool = SmallPool::of(4);
    judge("mapped, fresh", &pool, &[FILL], ones(&[MAP]));
    judge("mapped, dirty", &pool, &[FILL, INSIDE, ACROSS], ones(&[MAP]));
    judge("mapped, any order", &pool.clone().in_any_order(), &[FILL, BACK], ones(&[MAP]));
}

#[test]
fn every_cut_of_what_follows_a_store() {
    let pool = SmallPool::of(4);
    judge("stored", &pool, &[FILL, MAP, STORE], ones(&NEXT));
    judge("stored, synced", &pool, &[FILL, MAP, STORE, MSYNC, OVER], ones(&NEXT));
    judge("stored, any order", &pool.clone().in_any_order(), &[FILL, MAP, STORE], ones(&[MSYNC, BACK, INSIDE]));
}

/// Write-back passes the mapped entries over: others of the file and of its lane are given up.
#[test]
fn every_cut_of_write_back_around_a_mapping() {
    let pool = SmallPool::of(4);
    let before = [FILL, MAP, STORE, MSYNC, BEHIND, OTHER, OVER];
    let after = [BACK, SYNC, MSYNC, FileStep::Restart];
    judge("written back", &pool, &before, ones(&after));
    judge("written back, twice", &pool, &[&before[..], &[BACK, BEHIND, OTHER]].concat(), ones(&after));
    judge("written back, unmapped", &pool, &[&before[..], &[BACK, MSYNC, UNMAP]].concat(), ones(&[BACK, CUT, MAP]));
    judge("written back, any order", &pool.in_any_order(), &before, ones(&[BACK]));
}

/// The process that has the pool open ends, and programs go on with what they have mapped.
#[test]
fn every_cut_after_another_process_found_the_mapping() {
    let pool = SmallPool::of(4);
    let before = [FILL, MAP, STORE, BEHIND, FileStep::Restart, OVER];
    judge("found again", &pool, &before, ones(&[MSYNC, BACK, INSIDE, UNMAP, CUT]));
    judge("found again, written back", &pool, &[&before[..], &[BACK, OTHER, OVER]].concat(), ones(&[MSYNC, BACK]));
}

/// What a program said of its stores is taken, a later time is noted, and the mapping ends.
#[test]
fn every_cut_of_what_follows_the_time_of_a_store() {
    let pool = SmallPool::of(4);
    let before = [FILL, MAP, STORE, MSYNC];
    let after = [vec![TIME, SYNC], vec![BEHIND, MSYNC], vec![UNMAP, BACK], vec![FileStep::Restart, TIME, SYNC]];
    judge("a time said", &pool, &before, after.into());
    judge("a time taken", &pool, &[&before[..], &[BACK]].concat(), vec![vec![TIME, SYNC], vec![MSYNC, UNMAP]]);
    judge("a time said, any order", &pool.in_any_order(), &before, ones(&[TIME, BEHIND, UNMAP, BACK]));
}

/// Pages of a paged mapping go, are written back or not, and come again.
#[test]
fn every_cut_of_pages_that_go_and_come() {
    let pool = SmallPool::of(4);
    let again = [MAP, OVER, MSYNC];
    let between = [BACK, INSIDE, TIME, FileStep::Restart];
    let after = |step: &FileStep| [&[GIVE_BACK, *step][..], &again].concat();
    let cut = [&[GIVE_BACK, CUT, LONGER][..], &again].concat();
    let scripts = [vec![[&[GIVE_BACK][..], &again].concat(), cut], between.iter().map(after).collect()].concat();
    judge("pages go and come", &pool, &[FILL, MAP, STORE], scripts);
    let twice = [&[GIVE_BACK, BACK][..], &again, &[GIVE_BACK, BACK, MAP]].concat();
    judge("pages go twice", &pool, &[FILL, MAP, STORE, BEHIND, OTHER], vec![twice]);
    let before = [FILL, MAP, STORE, GIVE_BACK, OTHER];
    judge("pages went, any order", &pool.in_any_order(), &before, ones(&[BACK, MAP, SYNC, UNMAP, BEHIND]));
}

#[test]
fn every_cut_of_any_two_steps() {
    let first: &[FileStep] = if std::env::var_os("TIDEGATE_STEPS").is_some() { &NEXT } else { &[UNMAP, BACK, BEHIND] };
    judge("two steps", &SmallPool::of(4), &[FILL, MAP, STORE], pairs(first));
}

/// The first failure of the campaign over `script` and its beginnings on a machine with `bug`; none
/// without it.
fn caught(bug: FilesBug, before: &[FileStep], script: &[FileStep]) {
    let pool = SmallPool::of(4);
    let scripts = || (1..=script.len()).map(|steps| script[..steps].to_vec());
    let sound = judge_file_scripts(&pool, before, scripts(), None).unwrap_or_else(|failure| panic!("{failure}"));
    let failure = shown_by(|| judge_file_scripts(&pool, before, scripts(), Some(bug)));
    let failure = failure.expect_err("the mistake is not caught");
    println!("{bug:?}: {failure}\n  without it: {sound}");
}

#[test]
fn an_msync_that_flushes_nothing_is_caught() {
    caught(FilesBug::MsyncFlushMissing, &[FILL, MAP], &[STORE, MSYNC]);
}

#[test]
fn pages_that_go_without_a_flush_are_caught() {
    caught(FilesBug::MsyncFlushMissing, &[FILL, MAP], &[STORE, GIVE_BACK]);
    caught(FilesBug::LeaseFlushMissing, &[FILL, MAP], &[STORE, GIVE_BACK]);
}

#[test]
fn an_msync_without_a_fence_is_caught() {
    caught(FilesBug::MsyncFenceMissing, &[FILL, MAP], &[STORE, MSYNC]);
}

#[test]
fn pages_that_are_mapped_before_their_bytes_are_durable_are_caught() {
    caught(FilesBug::DataFenceMissing, &[FILL], &[MAP]);
}

#[test]
fn a_mapped_entry_that_is_void_for_want_of_its_new_version_is_caught() {
    caught(FilesBug::LengthFlushMissing, &[FILL, MAP, STORE, MSYNC, BEHIND], &[BACK]);
}

/// The block of a mapping is given up by write-back, and the program goes on with it.
#[test]
fn a_mapping_that_the_next_process_forgets_is_caught() {
    caught(FilesBug::MappingForgotten, &[FILL, MAP, STORE, MSYNC], &[FileStep::Restart, BACK, INSIDE, OVER, MSYNC]);
}

#[test]
fn a_time_that_is_not_flushed_with_an_msync_is_caught() {
    caught(FilesBug::LeaseFlushMissing, &[FILL, MAP], &[STORE, MSYNC]);
}

#[test]
fn a_time_that_is_taken_before_the_record_has_it_is_caught() {
    caught(FilesBug::TakenTimeFenceMissing, &[FILL, MAP, STORE, MSYNC], &[TIME]);
}

/// The time that the program said comes once more, over a later one.
#[test]
fn a_time_that_is_taken_twice_is_caught() {
    caught(FilesBug::TakenTimeNotStored, &[FILL, MAP, STORE, MSYNC], &[TIME, SYNC]);
}
