//! More than fits: more files than a pool has room for, more operations on names than its log
//! takes, and more entries in a directory than one answer has.
//!
//! `TIDEGATE_ENTRIES` says how many entries the directory has.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_trials::acts::{filled, number_of};
use tidegate_trials::mount_folders::MountFolders;
use tidegate_trials::mounted::MountTestbed;

/// Files that are synced: more than twice as many as the pool has records.
const FILES: u64 = 10_000;

/// Files in a directory.
const FILES_PER_DIRECTORY: u64 = 500;

const FILE_BYTES: usize = 512;

/// Entries of a large directory, unless `TIDEGATE_ENTRIES` says more.
const ENTRIES: u64 = 20_000;

fn path(root: &Path, number: u64) -> PathBuf {
    root.join(format!("d{}/f{number}", number / FILES_PER_DIRECTORY))
}

#[test]
fn ten_thousand_synced_files_outlive_a_power_loss_with_a_pool_for_fewer() {
    let mut testbed = MountTestbed::with_small_pool();
    let root = testbed.mountpoint();
    (0..FILES / FILES_PER_DIRECTORY).for_each(|directory| fs::create_dir(root.join(format!("d{directory}"))).unwrap());
    std::thread::scope(|scope| {
        for remainder in 0..2 {
            let root = &root;
            scope.spawn(move || (remainder..FILES).step_by(2).for_each(|number| write_synced(root, number)));
        }
    });
    testbed.lose_power();
    testbed.mount_again();
    assert_all_there(&root);
    let source = testbed.source();
    let ended = testbed.end();
    assert!(ended.is_written_back());
    assert_all_there(&source);
}

fn write_synced(root: &Path, number: u64) {
    let mut file = File::create_new(path(root, number)).unwrap();
    file.write_all(&filled(number, FILE_BYTES)).unwrap();
    file.sync_all().unwrap();
}

fn assert_all_there(root: &Path) {
    for number in 0..FILES {
        let bytes = fs::read(path(root, number)).unwrap();
        assert_eq!((number_of(&bytes), bytes.len()), (Some(number), FILE_BYTES));
    }
}

#[test]
fn names_are_there_after_more_operations_than_their_log_takes() {
    // A record has one line at least, and the log has 4096.
    const OPERATIONS: u64 = 6000;
    const UNSYNCED: u64 = 200;
    let mut testbed = MountTestbed::with_small_pool();
    let root = testbed.mountpoint().join("d");
    fs::create_dir(&root).unwrap();
    let named = |number: u64| root.join(format!("{number}-{}", "n".repeat(200)));
    fs::write(named(0), "").unwrap();
    for number in 1..=OPERATIONS {
        fs::rename(named(number - 1), named(number)).unwrap();
        if number == OPERATIONS - UNSYNCED {
            File::open(&root).unwrap().sync_all().unwrap();
        }
    }
    let status = testbed.status();
    assert!(status["names"].as_u64().unwrap() > OPERATIONS, "{status}");
    testbed.lose_power();
    testbed.mount_again();
    let left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let is_late = |number: u64| left == [OsString::from(named(number).file_name().unwrap())];
    assert!((OPERATIONS - UNSYNCED..=OPERATIONS).any(is_late), "{left:?}");
}

#[test]
fn a_large_directory_is_listed_whole_whoever_made_its_entries() {
    let entries = std::env::var("TIDEGATE_ENTRIES").map_or(ENTRIES, |entries| entries.parse().expect("a number"));
    let bed = MountFolders::new();
    let name = |number: u64| format!("entry-{number}");
    let make = |root: &Path, numbers: std::ops::Range<u64>| {
        numbers.for_each(|number| _ = File::create_new(root.join(name(number))).unwrap());
    };
    fs::create_dir(bed.at("source/d")).unwrap();
    make(&bed.at("source/d"), 0..entries / 2);
    let mut service = bed.mount();
    let directory = bed.at("mnt/d");
    make(&directory, entries / 2..entries);
    let listed = || -> BTreeSet<OsString> {
        let all: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let names: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(all.len(), names.len(), "a name is listed once");
        names
    };
    assert!(listed() == (0..entries).map(|number| name(number).into()).collect());
    let removed = |number: &u64| number.is_multiple_of(3);
    (0..entries).filter(removed).for_each(|number| fs::remove_file(directory.join(name(number))).unwrap());
    assert!(listed() == (0..entries).filter(|number| !removed(number)).map(|number| name(number).into()).collect());
    assert_eq!(fs::metadata(directory.join(name(1))).unwrap().nlink(), 1);
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success() && service.wait().unwrap().success());
    assert_eq!(fs::read_dir(bed.at("source/d")).unwrap().count() as u64, entries - entries.div_ceil(3));
}
