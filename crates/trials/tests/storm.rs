//! Storms that must come out the same for ever, and those that once found something.
//!
//! Compiled with `--cfg virtual_cores` only. The digests hold for debug and release builds alike: a difference means that
//! something in a run depends on more than its seed, or that an engine does its work in other steps than before. In the latter case
//! take the new ones over.
#![cfg(virtual_cores)]

use tidegate_trials::storm::Script;

/// Digests of the usual script of seeds 0 to 5.
const DIGESTS: [u64; 6] = [
    0x0702ccd1f5441621,
    0xbfbc3a18775122fc,
    0x70741d52f048eaad,
    0x71293977ec663adb,
    0x9aedaf904e782cf3,
    0x0817e89f7ae626ab,
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
