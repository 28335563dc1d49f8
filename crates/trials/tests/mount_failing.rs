//! A mount over a file system that fails: it refuses writes and syncs with `EIO` or `ENOSPC` for a
//! while, as a broken or full disk does.
//!
//! | what a program does meanwhile | it sees |
//! | --- | --- |
//! | writes where no room can be reserved below | the error |
//! | syncs a file that the pool knows | success: the sync ends in persistent memory |
//! | syncs a file that the pool does not know | the error at each sync, until all works |
//! | reads | what it wrote |
//!
//! Afterwards each file is written back, whole, and a sync succeeds; nothing is lost if the service
//! is killed meanwhile.
//!
//! On a real ext4 with plenty of room, that of short files is only counted. If others take all of
//! it, such files wait in the pool, and new ones get `ENOSPC`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tidegate_trials::acts::filled;
use tidegate_trials::mounted::{Journaled, MountTestbed};
use tidegate_trials::served::until;

/// `EIO`, and the file system's words.
const BROKEN: (i32, &str) = (5, "write 5\nsync 5\ncut 5\n");
/// `ENOSPC`, although room was reserved.
const FULL: (i32, &str) = (28, "write 28\nsync 28\n");
/// No room can be reserved.
const NO_ROOM: &str = "reserve 28\n";
const BYTES: usize = 20_000;
/// Within the beginning of a file for which room is counted.
const LONGER_BYTES: usize = 60_000;
const FILES: u64 = 4;

#[test]
fn a_file_of_the_pool_is_synced_and_written_back_when_the_disk_works_again() {
    for (errno, plan) in [BROKEN, FULL] {
        let testbed = MountTestbed::on_failing_disk();
        let files = known_files(&testbed);
        testbed.fail(plan);
        for (number, file) in (10..).zip(&files) {
            file.write_all_at(&filled(number, BYTES), 0).unwrap();
            file.sync_data().unwrap();
        }
        until("write-back to meet the failure", || obstacle(&testbed).contains(&format!("errno {errno}")));
        // Syncs go on, and replace what waits.
        for (number, file) in (20..).zip(&files) {
            file.write_all_at(&filled(number, BYTES), 0).unwrap();
            file.sync_all().unwrap();
        }
        expect(&testbed, 20);
        testbed.fail("");
        until("write-back to go on", || out_of_sync(&testbed) == 0 && obstacle(&testbed) == "null");
        for number in 0..FILES {
            let below = fs::read(testbed.source().join(number.to_string())).unwrap();
            assert_eq!(below, filled(20 + number, BYTES));
        }
        drop(files);
        assert!(testbed.end().is_written_back());
    }
}

/// There is no log of names on this file system, so the first sync of a file waits for it.
#[test]
fn a_new_file_reports_the_error_at_each_sync_and_loses_nothing() {
    for (errno, plan) in [BROKEN, FULL] {
        let testbed = MountTestbed::on_failing_disk();
        let path = testbed.mountpoint().join("new");
        let mut file = File::create(&path).unwrap();
        testbed.fail(NO_ROOM);
        assert_eq!(file.write(&filled(1, BYTES)).unwrap_err().raw_os_error(), Some(28));
        testbed.fail(plan);
        file.write_all(&filled(1, BYTES)).unwrap();
        let errors = [file.sync_all(), file.sync_data(), file.sync_all()].map(|synced| synced.unwrap_err());
        assert_eq!(errors.map(|error| error.raw_os_error()), [Some(errno); 3]);
        assert_eq!(fs::read(&path).unwrap(), filled(1, BYTES));
        testbed.fail("");
        file.sync_all().unwrap();
        drop(file);
        let ended = testbed.end();
        assert!(ended.is_written_back());
    }
}

#[test]
fn nothing_is_lost_if_the_service_is_killed_while_the_disk_fails() {
    let mut testbed = MountTestbed::on_failing_disk();
    let files = known_files(&testbed);
    testbed.fail(BROKEN.1);
    for (number, file) in (10..).zip(&files) {
        file.write_all_at(&filled(number, BYTES), 0).unwrap();
        file.sync_data().unwrap();
    }
    until("write-back to meet the failure", || obstacle(&testbed) != "null");
    testbed.kill_server();
    expect(&testbed, 10);
    drop(files);
    testbed.kill();
    testbed.fail("");
    testbed.mount_again();
    expect(&testbed, 10);
    until("write-back to go on", || out_of_sync(&testbed) == 0);
    for number in 0..FILES {
        assert_eq!(fs::read(testbed.source().join(number.to_string())).unwrap(), filled(10 + number, BYTES));
    }
}

#[test]
fn short_files_wait_in_the_pool_if_others_take_the_room_that_was_counted() {
    let testbed = MountTestbed::on_large_disk(Journaled::Ext4);
    let path = testbed.mountpoint().join("new");
    fs::write(&path, b"few bytes").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 8, "as on ext4");
    let files = known_files(&testbed);
    until("write-back", || out_of_sync(&testbed) == 0);
    let filler = fill(&testbed.beside());
    for (number, file) in (10..).zip(&files) {
        file.write_all_at(&filled(number, LONGER_BYTES), 0).unwrap();
        file.sync_data().unwrap();
    }
    until("write-back to find no room", || obstacle(&testbed).contains("errno 28"));
    let mut others = (0..).map(|number| testbed.mountpoint().join(format!("other-{number}")));
    until("new files to be refused", || {
        fs::write(others.next().unwrap(), b"few bytes").is_err_and(|error| is_full(&error))
    });
    for (number, file) in (10..).zip(&files) {
        let mut bytes = vec![0; LONGER_BYTES];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, filled(number, LONGER_BYTES));
    }
    fs::remove_file(filler).unwrap();
    until("write-back to go on", || out_of_sync(&testbed) == 0 && obstacle(&testbed) == "null");
    for number in 0..FILES {
        let below = fs::read(testbed.source().join(number.to_string())).unwrap();
        assert_eq!(below, filled(10 + number, LONGER_BYTES));
    }
    drop(files);
    assert!(testbed.end().is_written_back());
}

/// A file that takes all room of the file system of this folder.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let filler = File::create(&path).unwrap();
    let (mut at, mut piece) = (0, 1_u64 << 30);
    while piece >= 4096 {
        match fallocate(&filler, FallocateFlags::empty(), at, piece) {
            Ok(()) => at += piece,
            Err(Errno::NOSPC) => piece /= 2,
            Err(errno) => panic!("{errno}"),
        }
    }
    path
}

fn is_full(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
}

/// Files that the pool knows, open.
fn known_files(testbed: &MountTestbed) -> Vec<File> {
    let make = |number: u64| {
        let path = testbed.mountpoint().join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.write_all_at(&filled(number, BYTES), 0).unwrap();
        file.sync_all().unwrap();
        file
    };
    (0..FILES).map(make).collect()
}

/// Each file reads as it was written.
fn expect(testbed: &MountTestbed, first: u64) {
    for number in 0..FILES {
        let path = testbed.mountpoint().join(number.to_string());
        assert_eq!(fs::read(path).unwrap(), filled(first + number, BYTES));
    }
}

fn obstacle(testbed: &MountTestbed) -> String {
    testbed.status()["obstacle"].to_string()
}

fn out_of_sync(testbed: &MountTestbed) -> u64 {
    testbed.status_count("out_of_sync_bytes")
}
