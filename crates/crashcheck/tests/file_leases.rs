//! Every power cut and kill of short scripts in which programs write files by leases, and others
//! revoke them at every step; and mistakes planted there. `TIDEGATE_STEPS` gives more scripts than
//! CI runs.

use std::time::Instant;
use tidegate_crashcheck::file_cache::{FileStep, FilesBug, SmallPool, judge_file_scripts};
use tidegate_crashcheck::mutants::shown_by;

const FIRST: FileStep = FileStep::LeasedWrite { file: 0, at: 40, len: 60 };
const OVER: FileStep = FileStep::LeasedWrite { file: 0, at: 60, len: 30 };
const BEHIND: FileStep = FileStep::LeasedWrite { file: 0, at: 100, len: 70 };
const FURTHER: FileStep = FileStep::LeasedWrite { file: 0, at: 170, len: 20 };
const LONG: FileStep = FileStep::LeasedWrite { file: 0, at: 90, len: 4200 };
const OTHER: FileStep = FileStep::LeasedWrite { file: 1, at: 0, len: 50 };
const SYNC: FileStep = FileStep::LeasedSync(0);
const READ: FileStep = FileStep::LeasedRead(0);
const END: FileStep = FileStep::EndLease(0);
const REFILL: FileStep = FileStep::Refill(0);
const LARGE: FileStep = FileStep::WriteSync { file: 1, at: 0, len: 3000 };

/// Judges each of these steps as the last one of a script: `few`, and `more` if that was asked for.
fn judge(name: &str, pool: &SmallPool, before: &[FileStep], few: &[FileStep], more: &[FileStep]) {
    let more = if std::env::var_os("TIDEGATE_STEPS").is_some() { more } else { &[] };
    let scripts: Vec<Vec<FileStep>> = few.iter().chain(more).map(|step| vec![*step]).collect();
    if scripts.is_empty() {
        return;
    }
    let start = Instant::now();
    let tally =
        judge_file_scripts(pool, before, scripts.into_iter(), None).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{name}: {tally}; {:.1} s", start.elapsed().as_secs_f64());
    assert!(tally.states > 0 && tally.kills > 0);
}

#[test]
fn every_cut_of_what_programs_with_leases_do() {
    let pool = SmallPool::of(4);
    judge("leased, fresh", &pool, &[], &[FIRST], &[LONG]);
    judge("leased", &pool, &[FIRST], &[OVER, SYNC, END], &[OTHER]);
    judge("leased, any order", &pool.clone().in_any_order(), &[FIRST], &[SYNC], &[OVER, END]);
    let both = [FIRST, SYNC, OTHER, OVER];
    judge("leased, two programs", &pool, &both, &[], &[FIRST, OVER, OTHER, SYNC, END, FileStep::Restart]);
}

/// Unsynced and synced writes lie in the log when somebody else touches the file.
#[test]
fn every_cut_of_every_revocation() {
    let pool = SmallPool::of(4);
    let few = [
        FileStep::Write { file: 0, at: 0, len: 300 },
        FileStep::WriteSync { file: 0, at: 20, len: 30 },
        FileStep::Truncate { file: 0, size: 25 },
        FileStep::Sync(0),
        FileStep::Close(0),
    ];
    judge("revoked, synced", &pool, &[FIRST, SYNC, OVER], &few, &FileStep::ALPHABET);
    judge("revoked, unsynced", &pool, &[FIRST, OVER], &[FileStep::Drain(0)], &FileStep::ALPHABET);
    judge("revoked, two programs", &pool, &[FIRST, SYNC, OTHER, OVER], &[], &FileStep::ALPHABET);
}

/// The log has four elements: the pool takes writes over while the lease goes on.
#[test]
fn every_cut_of_an_extended_lease() {
    let pool = SmallPool::of(4);
    let others = [FileStep::WriteBack, FileStep::Sync(0), FileStep::Drain(0)];
    judge("extended", &pool, &[FIRST, OVER, LONG, SYNC], &[OVER, FileStep::WriteBack], &others);
    let again = [FIRST, OVER, SYNC, OVER, FIRST, OVER];
    judge("refilled", &pool, &[FIRST, SYNC, REFILL, OVER, OVER], &[REFILL, SYNC], &[END, FileStep::Restart]);
    judge("refilled, any order", &pool.clone().in_any_order(), &[FIRST, OVER], &[REFILL], &[]);
    judge("extended, again", &pool, &again, &[FileStep::Restart], &[OVER, LONG, SYNC, FileStep::Drain(0)]);
}

/// Reads for the program and write-back adopt what it wrote, and the lease goes on.
#[test]
fn every_cut_of_what_adopts_and_lets_a_lease_go_on() {
    let pool = SmallPool::of(4);
    let before = [FIRST, SYNC, OVER, READ, OVER];
    let more = [FileStep::Admit(0), FileStep::Truncate { file: 0, size: 25 }, FileStep::Restart, SYNC];
    judge("adopted", &pool, &before, &[READ, FileStep::WriteBack, FileStep::Sync(0)], &more);
    judge("adopted, any order", &pool.clone().in_any_order(), &before, &[READ], &[FileStep::WriteBack]);
    let cleaned = [FIRST, FileStep::WriteBack, OVER, SYNC, FileStep::WriteBack, OVER];
    let few = [FileStep::WriteBack, FileStep::Restart];
    judge("written back", &pool, &cleaned, &few, &[LONG, READ, SYNC, END, FileStep::Drain(0), FileStep::Close(0)]);
    judge("written back, two programs", &pool, &[FIRST, OTHER, SYNC, OVER], &[], &[FileStep::WriteBack, READ]);
}

/// Writes that follow each other become one entry.
#[test]
fn every_cut_of_writes_that_are_put_together() {
    let pool = SmallPool::of(4);
    let before = [FIRST, BEHIND, SYNC, FURTHER];
    let few = [READ, END, FileStep::Write { file: 0, at: 110, len: 5 }];
    judge("together", &pool, &before, &few, &[FileStep::WriteBack, FileStep::Restart, FileStep::Close(0), OVER]);
    judge("together, any order", &pool.clone().in_any_order(), &before, &[READ], &[END, FileStep::WriteBack]);
    let again = [FIRST, BEHIND, FURTHER, READ, OVER, REFILL];
    judge("together, blocks lent again", &pool, &again, &[BEHIND], &[SYNC, LONG, FileStep::Restart]);
    judge("together, restarted", &pool, &[&before[..], &[FileStep::Restart]].concat(), &[], &[FIRST, END, READ]);
}

/// Blocks of what was put together, and of what left the pool, are lent and written again: whoever
/// shares the lease reads no more of them than was meant.
#[test]
fn every_cut_of_reads_of_blocks_that_are_lent_again() {
    let pool = SmallPool::of(4);
    let together = [FIRST, BEHIND, FURTHER, READ, REFILL, OVER, OVER, OVER];
    judge("read, put together", &pool, &together, &[READ], &[FileStep::WriteBack, FileStep::Restart]);
    let dropped =
        [LONG, SYNC, READ, FileStep::WriteBack, FileStep::Unwanted(0), READ, REFILL, OVER, OVER, REFILL, OVER, OVER];
    judge("read, gone from the pool", &pool, &dropped, &[READ], &[FileStep::WriteBack, FileStep::Restart]);
}

/// The process that has the pool open ends, and the program with the lease goes on.
#[test]
fn every_cut_after_the_pool_was_opened_anew() {
    let pool = SmallPool::of(4);
    let restarted = [FIRST, SYNC, OVER, FileStep::Restart];
    let more = [OVER, SYNC, END, FileStep::Sync(0), FileStep::WriteBack, FileStep::Restart, FileStep::Close(0)];
    judge("restarted", &pool, &restarted, &[OVER, SYNC, END, FileStep::Restart], &more);
    judge("restarted, leased again", &pool, &[&restarted[..], &[OVER]].concat(), &[FileStep::Restart], &more);
}

/// Leases find no room, or leave none to others.
#[test]
fn every_cut_of_leases_of_a_small_pool() {
    judge("small", &SmallPool::of(1), &[LARGE], &[FIRST], &[SYNC, OVER]);
    judge("small, leased", &SmallPool::of(2), &[FIRST], &[], &[FIRST, OTHER, LARGE, FileStep::WriteBack]);
}

fn caught(bug: FilesBug, script: &[FileStep]) {
    let script = || std::iter::once(script.to_vec());
    let pool = SmallPool::of(4);
    judge_file_scripts(&pool, &[], script(), None).unwrap_or_else(|failure| panic!("{failure}"));
    let failure = shown_by(|| judge_file_scripts(&pool, &[], script(), Some(bug)));
    println!("{bug:?}: {}", failure.expect_err("the mistake is not caught"));
}

#[test]
fn a_leased_sync_that_is_not_written_back_is_caught() {
    caught(FilesBug::LeaseFlushMissing, &[FIRST, SYNC]);
}

#[test]
fn a_leased_write_that_others_see_before_it_is_durable_is_caught() {
    caught(FilesBug::LeaseFenceMissing, &[FIRST, SYNC]);
}

/// Entries that count, and an element that is to be taken over again.
#[test]
fn elements_taken_over_apart_from_their_count_are_caught() {
    caught(FilesBug::SyncNotAtomic, &[FIRST, OVER, SYNC, FileStep::Sync(0)]);
}
