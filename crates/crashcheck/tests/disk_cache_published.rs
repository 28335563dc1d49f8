//! The published commit protocol under the same power cuts as ours: right where 16 bytes arrive
//! together, and not where 8 do.

use tidegate_crashcheck::disk_cache::{EntriesArrive, judge_published};

#[test]
fn the_published_protocol_is_right_where_sixteen_bytes_arrive_together() {
    for commits in 1..=3 {
        let judged = judge_published(EntriesArrive::Whole, commits);
        println!("{commits} transactions: {judged:?} images");
        assert!(judged.is_ok_and(|judged| judged > 0));
    }
}

/// An entry's second word without its first: no role says that the new block was not committed, so
/// a part of the transaction shows.
#[test]
fn the_published_protocol_shows_half_a_transaction_where_eight_do() {
    let lost = judge_published(EntriesArrive::WordByWord, 1).expect_err("it loses");
    println!("{lost}");
}

/// Over blocks that were committed before, the first word without the second revokes an entry to a
/// block that is used again since.
#[test]
fn the_published_protocol_loses_what_it_acknowledged_where_eight_do() {
    let lost = judge_published(EntriesArrive::WordByWord, 2).expect_err("it loses");
    println!("{lost}");
    assert!(lost.to_string().contains("[{0}, {0}]"), "one block, twice: there is no half of a transaction");
}
