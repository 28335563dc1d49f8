//! Times of modification that programs see or set stay, whatever ends the service: before the files
//! are written back, and after it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, futimens, statx};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_trials::mounted::MountTestbed;

/// What is done to each file, in this order.
const FILES: [(&str, &[Act]); 7] = [
    ("unsynced", &[Act::Write]),
    ("synced", &[Act::Write, Act::Sync]),
    ("set", &[Act::Write, Act::Set]),
    ("set-and-synced", &[Act::Write, Act::Sync, Act::Set, Act::Sync]),
    ("synced-and-set", &[Act::Write, Act::Sync, Act::Set]),
    ("written-back-and-set", &[Act::Write, Act::Sync, Act::WriteBack, Act::Set, Act::Sync]),
    ("cut", &[Act::Write, Act::Sync, Act::WriteBack, Act::Cut, Act::Sync]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Write,
    Sync,
    Set,
    WriteBack,
    Cut,
}

/// Seconds and nanoseconds by the files' names.
type Times = BTreeMap<&'static str, (i64, u32)>;

/// Makes the files, and leaves them open.
fn make(testbed: &MountTestbed) -> (Vec<File>, Times) {
    let open = FILES.map(|(name, acts)| {
        let file = File::create(testbed.mountpoint().join(name)).unwrap();
        acts.iter().for_each(|act| carry_out(testbed, &file, *act));
        file
    });
    (open.into(), times(&testbed.mountpoint()))
}

fn carry_out(testbed: &MountTestbed, file: &File, act: Act) {
    match act {
        Act::Write => file.write_all_at(&[7; 9000], 0).unwrap(),
        Act::Sync => file.sync_all().unwrap(),
        Act::Cut => file.set_len(100).unwrap(),
        Act::WriteBack => assert!(testbed.on_pool("flush").status.success()),
        Act::Set => {
            let at = Timespec { tv_sec: 981_173_106, tv_nsec: 123_456_789 };
            futimens(file, &Timestamps { last_access: at, last_modification: at }).unwrap();
        }
    }
}

/// As the service says, not the kernel.
fn times(folder: &Path) -> Times {
    let time = |name| {
        let about = statx(CWD, folder.join(name), AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).unwrap();
        (about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec)
    };
    FILES.iter().map(|(name, _)| (*name, time(*name))).collect()
}

#[test]
fn times_stay_when_the_server_or_the_whole_service_is_killed_and_when_the_mount_ends() {
    let mut testbed = MountTestbed::new();
    let (open, seen) = make(&testbed);
    testbed.kill_server();
    assert_eq!(times(&testbed.mountpoint()), seen, "after the server was killed");
    drop(open);
    testbed.kill();
    testbed.mount_again();
    assert_eq!(times(&testbed.mountpoint()), seen, "after server and supervisor were killed");
    let source = testbed.source();
    let ended = testbed.end();
    assert!(ended.is_written_back());
    assert_eq!(times(&source), seen, "in SOURCE");
}

#[test]
fn times_stay_when_a_killed_mount_is_recovered() {
    let mut testbed = MountTestbed::new();
    let (open, seen) = make(&testbed);
    drop(open);
    testbed.kill();
    let recovered = testbed.on_pool("recover");
    assert!(recovered.status.success(), "{recovered:?}");
    assert_eq!(times(&testbed.source()), seen);
    testbed.mount_again();
}

#[test]
fn times_that_a_sync_covered_survive_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    let (open, seen) = make(&testbed);
    drop(open);
    testbed.lose_power();
    testbed.mount_again();
    let found = times(&testbed.mountpoint());
    let is_synced = |name: &&str| FILES.iter().any(|(file, acts)| file == name && acts.last() == Some(&Act::Sync));
    for name in seen.keys().filter(|name| is_synced(name)) {
        assert_eq!(found[name], seen[name], "{name}");
    }
    let source = testbed.source();
    let ended = testbed.end();
    assert!(ended.is_written_back());
    assert_eq!(times(&source), found, "in SOURCE");
}
