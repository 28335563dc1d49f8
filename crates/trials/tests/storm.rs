//! Storms that must come out the same for ever, and those that once found something.
//!
//! Compiled with `--cfg virtual_cores` only. The digests hold for debug and release builds alike: a difference means that
//! something in a run depends on more than its seed, or that an engine does its work in other steps than before. In the latter case
//! take the new ones over.
#![cfg(virtual_cores)]

use tidegate_trials::storm::{Script, hunt, mistakes};

/// Digests of the usual script of seeds 0 to 5.
const DIGESTS: [u64; 6] = [
    0x09c4168d631d6447,
    0x7c334c355f89e707,
    0xb0c65d5676c6657d,
    0xa08a77be2d9b5694,
    0x91ab7b38734cdc5c,
    0x7b5d366ce4b2a479,
];

#[test]
fn a_seed_has_one_digest() {
    let found: Vec<u64> = (0..).zip(DIGESTS).map(|(seed, _)| Script::of(seed).run().hash).collect();
    assert_eq!(found, DIGESTS, "now {found:#x?}");
}

#[test]
fn a_schedule_is_another_digest_of_the_same_seed() {
    let script = Script { acts: 100, ..Script::of(1) };
    assert_ne!(script.run().hash, Script { schedule: 1, ..script }.run().hash);
    assert_eq!(script.run().hash, script.run().hash);
}

/// Runs a script that failed, under this schedule and some others.
fn passes(script: Script) {
    for schedule in script.schedule..script.schedule + 20 {
        let verdict = Script { schedule, ..script }.run();
        assert!(verdict.failure.is_none(), "{}", verdict.failure.expect("it is some"));
    }
}

/// A writer waited for a slot; a thread that drains had just found nothing left and ended the draining; nobody began it again.
#[test]
fn a_writer_that_waits_begins_the_draining_again() {
    passes(Script { schedule: 57, acts: 4, ..Script::of(68) });
    passes(Script::of(68));
}

/// A write that was cached while another went past the cache was evicted beside it, and replaced in the device: it was read out of its
/// slot once more, after both had ended, and then was gone.
#[test]
fn a_write_past_the_cache_and_an_eviction_come_one_after_the_other() {
    passes(Script { schedule: 21, acts: 273, drains: 0, ..Script::of(449) });
    passes(Script::of(449));
    passes(Script { acts: 363, ..Script::of(577) });
}

/// Each flush and fence of the engines is there for a reason, and each known mistake is noticed.
#[test]
fn every_mistake_is_shown() {
    let hunted = hunt(&mistakes(), 3000);
    let never: Vec<String> =
        hunted.iter().filter(|one| one.killed.is_none()).map(|one| one.sabotage.to_string()).collect();
    assert!(never.is_empty(), "no seed shows: {never:#?}");
    assert!(hunted.len() >= 38, "{} mistakes", hunted.len());
}
