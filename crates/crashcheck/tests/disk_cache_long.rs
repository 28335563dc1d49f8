//! Long lives of a disk cache with power cuts, a failing disk and changing modes. `TIDEGATE_SEEDS`
//! gives more of them.

use tidegate_crashcheck::disk_cache::{LongCacheTally, judge_long_script};
use tidegate_disk_cache::Reads;

/// Lives of as many seeds as the environment says.
fn lives(reads: Reads) {
    let seeds = std::env::var("TIDEGATE_SEEDS").ok().map_or(60, |seeds| seeds.parse().expect("a number of seeds"));
    let mut total = LongCacheTally::default();
    for seed in 0..seeds {
        let tally = judge_long_script(seed, 40, reads, false).unwrap_or_else(|failure| panic!("{failure}"));
        total.cuts += tally.cuts;
        total.steps += tally.steps;
        total.committed += tally.committed;
        total.destaged += tally.destaged;
        total.evictions += tally.evictions;
        total.failed += tally.failed;
    }
    println!("{reads:?}, {seeds} seeds: {total}");
    assert!(total.evictions > 0 && total.destaged > 0 && total.failed > 0, "all of it was met");
}

#[test]
fn long_lives_with_cuts_and_a_failing_disk_lose_nothing() {
    lives(Reads::Kept);
}

#[test]
fn nor_do_they_where_a_restart_forgets_what_was_only_read() {
    lives(Reads::Forgotten);
}

#[test]
fn a_disk_that_lies_about_its_flushes_is_caught() {
    for reads in [Reads::Kept, Reads::Forgotten] {
        let caught = (0..20).find_map(|seed| judge_long_script(seed, 40, reads, true).err());
        println!("{}", caught.expect("a lie shows"));
    }
}
