//! A server that is killed while the file system of SOURCE can only be read, as after an error of
//! its disk.
//!
//! | what | with the next server |
//! | --- | --- |
//! | contents that were synced or not, by name and by an open file | are read |
//! | a sync of a file that the pool has | succeeds, or fails with `EROFS` |
//! | a change of names | fails with `EROFS` |
//! | a mount anew | is refused |
//! | write-back, and what the pool has of names | wait until SOURCE can be written again |
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use tidegate_trials::acts::filled;
use tidegate_trials::mounted::{MountTestbed, remount};
use tidegate_trials::served::{program, until};

const BYTES: usize = 20_000;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn synced(path: &Path, number: u64) -> File {
    let file = open(path);
    file.write_all_at(&filled(number, BYTES), 0).unwrap();
    file.sync_all().unwrap();
    file
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn errno<T>(done: io::Result<T>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

const REFUSED: Option<i32> = Some(Errno::ROFS.raw_os_error());

/// No name is changed, and files are not written back.
fn waits(testbed: &MountTestbed) {
    let root = testbed.mountpoint();
    assert_eq!(errno(File::create(root.join("other"))), REFUSED);
    assert_eq!(errno(fs::rename(root.join("new"), root.join("renamed"))), REFUSED);
    until("write-back to meet the failure", || testbed.status()["obstacle"].to_string().contains("errno 30"));
    assert_ne!(testbed.status()["out_of_sync_bytes"], 0);
}

#[test]
fn what_was_synced_is_read_after_a_kill_on_an_aborted_file_system_and_written_back_after_it() {
    let mut testbed = MountTestbed::on_own_disk();
    let root = testbed.mountpoint();
    let known = synced(&root.join("known"), 1);
    let nameless = synced(&root.join("nameless"), 2);
    let cut = synced(&root.join("cut"), 3);
    until("write-back", || testbed.status()["out_of_sync_bytes"] == 0);
    fs::remove_file(root.join("nameless")).unwrap();
    let new = synced(&root.join("new"), 4);
    testbed.abort_disk();
    known.write_all_at(&filled(5, BYTES), 0).unwrap();
    known.sync_all().unwrap();
    // The file below is not cut.
    let _ = cut.set_len(5000);
    let _ = cut.sync_all();
    let expected = [(&known, filled(5, BYTES)), (&nameless, filled(2, BYTES)), (&new, filled(4, BYTES))];
    let cut_to = contents(&cut);
    for _ in 0..2 {
        testbed.kill_server();
        expected.iter().for_each(|(file, bytes)| assert_eq!(contents(file), *bytes));
        assert_eq!(contents(&cut), cut_to);
        for (name, bytes) in [("known", &expected[0].1), ("new", &expected[2].1), ("cut", &cut_to)] {
            assert_eq!(fs::read(root.join(name)).unwrap(), *bytes);
        }
        let done = errno(known.sync_all());
        assert!([None, REFUSED].contains(&done), "{done:?}");
        waits(&testbed);
    }
    assert_eq!(testbed.status()["files"]["retained"], 0);
    testbed.lose_power();
    drop((known, nameless, cut, new));
    testbed.mount_again();
    until("write-back to go on", || testbed.status()["out_of_sync_bytes"] == 0);
    let ended = testbed.end();
    assert!(ended.is_written_back());
    assert_eq!((ended.read("known"), ended.read("new")), (filled(5, BYTES), filled(4, BYTES)));
    assert_eq!(ended.read("cut"), cut_to);
}

#[test]
fn a_server_that_began_on_a_file_system_mounted_read_only_goes_on_once_that_can_be_written() {
    let mut testbed = MountTestbed::on_own_disk();
    let root = testbed.mountpoint();
    let known = synced(&root.join("known"), 1);
    let untouched = open(&root.join("untouched"));
    until("write-back", || testbed.status()["out_of_sync_bytes"] == 0);
    let new = synced(&root.join("new"), 2);
    known.write_all_at(&filled(3, BYTES), 0).unwrap();
    known.sync_all().unwrap();
    let source = testbed.source();
    testbed.kill_server_before(|| remount(&source, "ro"));
    assert_eq!((contents(&known), contents(&new)), (filled(3, BYTES), filled(2, BYTES)));
    waits(&testbed);
    assert_eq!(errno(untouched.write_all_at(b"x", 0)), REFUSED);
    remount(&source, "rw");
    until("write-back to go on", || testbed.status()["out_of_sync_bytes"] == 0);
    until("names to be changed", || File::create(root.join("other")).is_ok());
    for (number, file) in [(4, &known), (5, &new), (6, &untouched)] {
        file.write_all_at(&filled(number, BYTES), 0).unwrap();
        file.sync_all().unwrap();
    }
    drop((known, new, untouched));
    testbed.kill();
    remount(&source, "ro");
    let refused = Command::new(program())
        .args(["mount", "--try", "--pool"])
        .args([testbed.pool(), source.clone(), root])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(5) && said.contains("mount it for writing"), "{refused:?}");
    remount(&source, "rw");
    testbed.mount_again();
    let ended = testbed.end();
    assert!(ended.is_written_back());
    for (number, name) in [(4, "known"), (5, "new"), (6, "untouched")] {
        assert_eq!(ended.read(name), filled(number, BYTES));
    }
}
