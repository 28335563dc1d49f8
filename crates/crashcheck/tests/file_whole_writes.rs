//! Pages of files, written, synced or not, and cut: each is as one of its writes left it.
//! `TIDEGATE_LIVES` gives more lives than CI runs.

use tidegate_crashcheck::file_cache::{FilesBug, PageWriters, PageWrites, SmallPool, WholeTally, judge_whole_writes};
use tidegate_crashcheck::mutants::shown_by;

/// Lives that CI runs of each kind.
const LIVES: u64 = 250;

const ALIGNED: PageWrites = PageWrites { first_at: 0, by: PageWriters::Requests };

fn lives(pool: &SmallPool, writes: PageWrites) {
    let asked = std::env::var("TIDEGATE_LIVES").ok().map(|lives| lives.parse().expect("a number of lives"));
    let mut total = WholeTally::default();
    for seed in 0..asked.unwrap_or(LIVES) {
        let tally = judge_whole_writes(pool, writes, seed, None).unwrap_or_else(|failure| panic!("{failure}"));
        total.add(&tally);
    }
    println!("{writes:?}: {total}");
    assert!(total.cuts > 0 && total.unsynced > 0, "{total}");
}

#[test]
fn pages_are_whole_after_every_cut() {
    lives(&SmallPool::of(4), ALIGNED);
}

#[test]
fn pages_at_any_offset_are_whole_after_every_cut() {
    lives(&SmallPool::of(4), PageWrites { first_at: 100, ..ALIGNED });
}

/// Blocks of the other size have the only chunk: older entries have to be written back first.
#[test]
fn pages_are_whole_where_the_pool_is_too_small() {
    lives(&SmallPool::of(1), ALIGNED);
}

#[test]
fn pages_are_whole_where_words_of_a_line_arrive_in_any_order() {
    lives(&SmallPool::of(4).in_any_order(), ALIGNED);
}

/// A commit takes over fewer blocks than programs wrote.
#[test]
fn pages_that_are_written_by_leases_are_whole_after_every_cut() {
    lives(&SmallPool::of(8), PageWrites { by: PageWriters::Leases, ..ALIGNED });
}

#[test]
fn a_page_in_several_commits_is_caught() {
    let judge = || (0..LIVES).try_for_each(|seed| judge(seed, FilesBug::SyncNotAtomic));
    let failure = shown_by(judge).expect_err("the mistake is not caught");
    println!("{failure}");
    assert!(failure.to_string().contains("is torn"), "{failure}");
}

fn judge(seed: u64, bug: FilesBug) -> Result<(), tidegate_crashcheck::checker::Failure> {
    judge_whole_writes(&SmallPool::of(4), ALIGNED, seed, Some(bug)).map(drop)
}
