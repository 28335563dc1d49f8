//! Disks, and regions in front of them, whose file systems have no room left.

use super::{BLOCK, ENVIRONMENT, Pair, REFUSED, Undo, assert_tells, read, stamped, write};
use crate::program::{Folder, json, need_root, peer, run};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, ClientError};

/// The protocol's error number for a device without room.
const NO_SPACE: u32 = 28;

#[test]
fn a_disk_without_room_loses_nothing_and_what_it_lacks_is_salvaged() {
    need_root("mount a file system without room");
    let folder = Folder::new();
    let full = folder.path("full");
    fs::create_dir(&full).unwrap();
    peer("mount", &["-t", "tmpfs", "-o", "size=1M", "none", full.to_str().unwrap()]);
    let unmount = Undo("umount", ["--lazy".to_owned(), full.to_str().unwrap().to_owned()]);
    let pair = Pair::over(folder, full.join("disk").to_str().unwrap().to_owned());
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    (0..1000).for_each(|block| write(&mut client, block, 4));
    let refused = run(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_tells(&refused, ENVIRONMENT, &["stay in", "refuses block", "No space left", "nothing is lost", "salvage"]);
    assert!(pair.info()["disk"]["trouble"].as_str().unwrap().contains("No space left"), "{}", pair.info());
    assert!((0..1000).all(|block| read(&mut client, block) == stamped(block, 4)));
    server.kill();
    assert_tells(&run(&["detach", "--pmem", &pair.pmem]), ENVIRONMENT, &["stay in", "No space left"]);
    let dirty = pair.dirty_bytes();
    assert!(dirty >= 700 * BLOCK, "{dirty}");
    let to = pair.folder.text("saved");
    for _ in 0..2 {
        let salvaged = json(&["salvage", "--pmem", &pair.pmem, "--to", &to, "--force"]);
        assert_eq!(salvaged["bytes"].as_u64(), Some(dirty), "the region does not change: {salvaged}");
    }
    assert_tells(&run(&["salvage", "--pmem", &pair.pmem, "--to", &to]), REFUSED, &["exists already", "--force"]);
    // Each block is on the disk or was salvaged.
    let saved = File::open(&to).unwrap();
    assert_eq!(saved.metadata().unwrap().permissions().mode() & 0o777, 0o600, "nobody else may read it");
    let mut bytes = stamped(0, 0);
    let mut salvaged = 0;
    for block in 0..1000 {
        saved.read_exact_at(&mut bytes, block * BLOCK).unwrap();
        let is_saved = bytes == stamped(block, 4);
        assert!(is_saved || pair.on_disk(block) == stamped(block, 4), "block {block}");
        salvaged += u64::from(is_saved);
    }
    assert_eq!(salvaged * BLOCK, dirty);
    drop(unmount);
}

#[test]
fn a_disk_without_room_is_told_to_clients_and_goes_on_when_there_is_some() {
    need_root("mount a file system without room");
    for mode in ["write-through", "write-around", "pass-through", "write-back"] {
        let folder = Folder::new();
        let full = folder.text("full");
        fs::create_dir(&full).unwrap();
        peer("mount", &["-t", "tmpfs", "-o", "size=1M", "none", &full]);
        let unmount = Undo("umount", ["--lazy".to_owned(), full.clone()]);
        let pair = Pair::over(folder, format!("{full}/disk"));
        let mut server = pair.serve(&["--disk-mode", mode]);
        let mut client = pair.client();
        // The region holds a quarter of them.
        let writes = |client: &mut Client<UnixStream>| {
            (0..8000).try_for_each(|block| client.write(block * BLOCK, &stamped(block, 1), Durability::Volatile))
        };
        let refused = writes(&mut client).expect_err("neither has room for all of them");
        assert!(matches!(&refused, ClientError::Refused(refusal) if refusal.code == NO_SPACE), "{mode}: {refused}");
        assert_eq!(read(&mut client, 0), stamped(0, 1), "{mode}");
        peer("mount", &["-o", "remount,size=64M", &full]);
        writes(&mut client).unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert_eq!(server.stop().code(), Some(0), "{mode}");
        assert_eq!(run(&["flush", "--pmem", &pair.pmem]).code, 0, "{mode}");
        assert!([0, 4000, 7999].into_iter().all(|block| pair.on_disk(block) == stamped(block, 1)), "{mode}");
        drop((pair, unmount));
    }
}
