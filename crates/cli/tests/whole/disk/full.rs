//! Disks, and regions in front of them, whose file systems have no room left.

use super::{BLOCK, ENVIRONMENT, Pair, REFUSED, Undo, assert_tells, read, stamped, write};
use crate::program::{Folder, json, need_root, peer, run};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

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
