//! Files that bypass the pool of a mount by `--bypass`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Child;
use tidegate_trials::mount_folders::{MountFolders, answer, tidegate};
use tidegate_trials::mounted::servers_of;
use tidegate_trials::served::until;

const GLOBS: [&str; 4] = ["--bypass", "*.log", "--bypass", "backup/**"];

fn made(path: &Path, bytes: &[u8]) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    file
}

fn unmounted(bed: &MountFolders, mut service: Child) {
    assert_eq!(bed.tidegate("umount", &bed.at("mnt")).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
}

#[test]
fn what_globs_name_is_written_below_and_all_else_in_the_pool() {
    let bed = MountFolders::new();
    let service = bed.mount_with(&bed.pool(), &GLOBS);
    let (mnt, source) = (bed.at("mnt"), bed.at("source"));
    fs::create_dir_all(mnt.join("backup/of/today")).unwrap();
    let before = answer("status", &mnt);
    assert_eq!(before["bypass"], serde_json::json!(["*.log", "backup/**"]));
    let log = made(&mnt.join("a.log"), b"a line");
    let backup = made(&mnt.join("backup/of/today/data"), b"a backup");
    let data = made(&mnt.join("data"), b"precious");
    let after = answer("status", &mnt);
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
    assert_eq!(after["files"]["bypassed"], 2, "{after}");
    assert_eq!(after["files"]["in_pool"], 1, "{after}");
    assert_eq!(after["files"]["beside_pool"], 0, "{after}");
    assert_eq!(count(&after, "syncs") - count(&before, "syncs"), 1, "{after}");
    assert!(count(&after, "syncs_below") - count(&before, "syncs_below") >= 2, "{after}");
    assert_eq!(fs::read(source.join("a.log")).unwrap(), b"a line");
    assert_eq!(fs::read(source.join("backup/of/today/data")).unwrap(), b"a backup");
    let explained = |name: &str| answer("explain", &mnt.join(name))["bypassed_by"].clone();
    assert_eq!(["a.log", "backup/of/today/data", "data"].map(explained)[..2], ["*.log", "backup/**"]);
    assert_eq!(explained("data"), Value::Null);

    // The next server has the same globs, and the open files stay as they were.
    let former = servers_of(service.id());
    former.iter().for_each(|server| kill_process(*server, Signal::KILL).unwrap());
    until("the next server", || servers_of(service.id()).iter().any(|server| !former.contains(server)));
    log.write_all_at(b"B", 0).unwrap();
    log.sync_all().unwrap();
    assert_eq!(fs::read(source.join("a.log")).unwrap(), b"B line");
    drop((log, backup, data));
    unmounted(&bed, service);
    assert_eq!(fs::read(source.join("data")).unwrap(), b"precious");
}

#[test]
fn what_the_pool_kept_for_reading_of_a_file_is_gone_when_it_is_changed_past_the_pool() {
    let bed = MountFolders::new();
    let mnt = bed.at("mnt");
    let service = bed.mount_with(&bed.pool(), &[]);
    drop(made(&mnt.join("a.log"), &[1; 8192]));
    let flushed = tidegate("flush", &bed.pool(), &[]);
    assert!(flushed.status.success(), "{flushed:?}");
    assert!(answer("status", &mnt)["clean_bytes"].as_u64().unwrap() >= 8192);
    bed.kill(service);

    let service = bed.mount_with(&bed.pool(), &GLOBS);
    let file = File::options().read(true).write(true).open(mnt.join("a.log")).unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(answer("status", &mnt)["files"]["bypassed"], 1);
    drop(file);
    bed.kill(service);

    let service = bed.mount_with(&bed.pool(), &[]);
    let expected = [[2; 4096], [1; 4096]].concat();
    assert!(fs::read(mnt.join("a.log")).unwrap() == expected, "the old copy was read");
    drop(File::options().append(true).open(mnt.join("a.log")).unwrap());
    assert!(fs::read(mnt.join("a.log")).unwrap() == expected, "the old copy was read");
    unmounted(&bed, service);
}

#[test]
fn globs_that_name_no_files_are_refused() {
    let bed = MountFolders::new();
    for (glob, why) in
        [("/srv/*.log", "without a slash"), ("logs/", "FOLDER/**"), ("[a", "names no files"), ("", "*.log")]
    {
        let output = tidegate("mount", &bed.at("source"), &[&*bed.at("mnt").to_string_lossy(), "--bypass", glob]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(why), "{glob}: {told}");
    }
    assert!(!bed.is_mounted());
}
