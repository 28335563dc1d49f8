//! Programs that write more than the disk takes, and one beside them that syncs a few bytes now and
//! then: those that write much wait for the disk, and the other one does not.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_measure::waiting::comes_true;
use tidegate_trials::acts::filled;
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::served::until;

/// All files share the room of one lane.
const ONE_LANE: &[&str] = &["--pool-size", "48M"];
/// What the modest program writes at a time, and how often: less than the room that is left to it.
const MODEST_BYTES: usize = 16 << 10;
const MODEST_SYNCS: u64 = 50;
/// What a greedy one writes at a time, and how often: in all, more than the pool has room for.
const GREEDY_BYTES: usize = 256 << 10;
const GREEDY_SYNCS: u64 = 48;
const GREEDY_PROGRAMS: u64 = 4;

/// The disk stands still until the test lets it go on, so whoever waits for it is found waiting.
#[test]
fn a_program_that_syncs_little_waits_for_no_disk_while_others_fill_the_pool() {
    let testbed = MountTestbed::on_failing_disk_with(ONE_LANE);
    let modest = known_file(&testbed, "modest", MODEST_BYTES as u64 * MODEST_SYNCS);
    let known = |number: u64| known_file(&testbed, &number.to_string(), 1);
    let greedy: Vec<_> = (0..GREEDY_PROGRAMS).map(known).collect();
    let (synced, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    testbed.fail("sync wait\n");
    let modest_ended = thread::scope(|scope| {
        for (number, file) in (0..).zip(&greedy) {
            let synced = &synced;
            scope.spawn(move || {
                for at in 0..GREEDY_SYNCS {
                    file.write_all_at(&filled(number, GREEDY_BYTES), at * GREEDY_BYTES as u64).unwrap();
                    file.sync_data().unwrap();
                    // Relaxed: only the number matters.
                    synced.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let much = testbed.status_count("pool_bytes") / 4 * 3;
        until("the pool to fill", || testbed.status_count("out_of_sync_bytes") >= much);
        stands_still(|| synced.load(Ordering::Relaxed));
        scope.spawn(|| {
            for at in 0..MODEST_SYNCS {
                modest.write_all_at(&filled(at, MODEST_BYTES), at * MODEST_BYTES as u64).unwrap();
                modest.sync_data().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let ended = comes_true(|| is_done.load(Ordering::Relaxed));
        testbed.fail("");
        ended
    });
    assert!(modest_ended, "the modest program waited for the disk");
    assert!(testbed.status_count("held_back") > 0);
    for (number, file) in (0..).zip(&greedy) {
        let mut bytes = vec![0; GREEDY_BYTES];
        file.read_exact_at(&mut bytes, (GREEDY_SYNCS - 1) * GREEDY_BYTES as u64).unwrap();
        assert_eq!(bytes, filled(number, GREEDY_BYTES));
    }
    drop((modest, greedy));
    assert!(testbed.end().is_written_back());
}

/// A file of so many bytes that the pool knows, open.
fn known_file(testbed: &MountTestbed, name: &str, bytes: u64) -> File {
    let path = testbed.mountpoint().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(&[1], bytes - 1).unwrap();
    file.sync_all().unwrap();
    file
}

/// Waits until a number has been the same for a second. If it changes later, the test sees less.
fn stands_still(number: impl Fn() -> u64) {
    let mut last = (number(), Instant::now());
    until("the greedy programs to wait", || {
        let now = number();
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(1)
    });
}
