//! Disks that somebody wrote to after the server was killed, and disks that somebody uses.

use super::{BLOCK, DISK_BYTES, IN_USE, Pair, REFUSED, assert_tells, read, stamped, write};
use crate::program::{Folder, need_root, peer, run};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_media::Durability;

/// What undoes something when a test ends.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = std::process::Command::new(self.0).args(&self.1).status();
    }
}

/// A loop device over `file`, until the test ends.
fn shown(file: &str) -> (String, Undo) {
    need_root("attach loop devices");
    let device = peer("losetup", &["--find", "--show", file]).trim().to_owned();
    (device.clone(), Undo("losetup", vec!["--detach".to_owned(), device]))
}

/// Writes block `block` of the disk without its region.
fn write_past(disk: &str, block: u64, bytes: &[u8]) {
    let disk = File::options().write(true).open(disk).unwrap();
    disk.write_all_at(bytes, block * BLOCK).and_then(|()| disk.sync_all()).unwrap();
}

/// Every command that writes to the disk refuses to, and says why.
fn assert_refused(pair: &Pair) {
    for command in [&["serve"][..], &["flush"], &["detach"], &["resize", "--size", "6M"], &["serve", "--read-only"]] {
        let refused = run(&[command, &["--pmem", &pair.pmem]].concat());
        assert_tells(&refused, REFUSED, &["was changed without", "byte 0", "salvage", "flush --force"]);
    }
}

/// A server that was killed with blocks that only the region has; block 0 is on the disk too, and
/// clean. The turn in which the others were written.
fn killed(pair: &Pair) -> u64 {
    let server = pair.serve(&[]);
    write(&mut pair.client(), 0, 1);
    assert_eq!(run(&["flush", "--pmem", &pair.pmem, "--wait"]).code, 0);
    drop(server);
    pair.killed_with(10, 100..110, 1)
}

#[test]
fn a_disk_that_was_written_after_a_kill_is_refused_until_somebody_says_so() {
    for options in [&[][..], &["--checksums"], &["--ordered"]] {
        let pair = Pair::laid_out(options);
        let turn = killed(&pair);
        write_past(&pair.disk, 0, &stamped(0, 7));
        assert_refused(&pair);
        assert_ne!(pair.on_disk(100), stamped(100, turn), "nothing was written to it");
        let saved = pair.folder.text("saved");
        assert_eq!(run(&["salvage", "--pmem", &pair.pmem, "--to", &saved]).code, 0);
        assert_eq!(fs::read(&saved).unwrap()[100 * 4096..101 * 4096], stamped(100, turn));
        let forced = run(&["flush", "--pmem", &pair.pmem, "--force"]);
        assert_eq!(forced.code, 0, "{}", forced.stderr);
        assert_eq!([0, 100].map(|block| pair.on_disk(block)), [stamped(0, 7), stamped(100, turn)], "{options:?}");
        let mut server = pair.serve(&[]);
        assert_eq!(read(&mut pair.client(), 0), stamped(0, 7), "what was clean is not served any more");
        assert_eq!(server.stop().code(), Some(0));
    }
}

#[test]
fn a_changed_disk_of_a_killed_server_without_dirty_blocks_is_served_as_it_is() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    write(&mut pair.client(), 0, 1);
    // Beyond the disk's first blocks, too.
    write(&mut pair.client(), 5000, 1);
    assert_eq!(run(&["flush", "--pmem", &pair.pmem, "--wait"]).code, 0);
    server.kill();
    write_past(&pair.disk, 5000, &stamped(5000, 7));
    let mut server = pair.serve(&[]);
    server.hear_or_heard("was changed without its region");
    assert_eq!([0, 5000].map(|block| read(&mut pair.client(), block)), [stamped(0, 1), stamped(5000, 7)]);
    server.kill();
    let mut server = pair.serve(&[]);
    assert_eq!(read(&mut pair.client(), 5000), stamped(5000, 7));
    assert_eq!(server.stop().code(), Some(0));
    assert!(!server.said.contains("was changed without"), "{}", server.said);
}

/// Writes from the client, in the way of a file system: the first blocks over and over, and others.
fn kill_amid_writes(pair: &Pair, turn: u64, options: &[&str]) {
    let mut server = pair.serve(options);
    assert!(!server.said.contains("was changed without"), "{}", server.said);
    let mut client = pair.client();
    for nth in 0..5 + turn % 17 * 20 {
        for first in [nth % 3, nth * 37 % 300, nth * 101 % 6000] {
            let data: Vec<u8> = (first..first + 1 + nth % 4).flat_map(|block| stamped(block, turn + nth)).collect();
            client.write(first * BLOCK, &data, Durability::Volatile).unwrap();
        }
    }
    server.kill();
}

#[test]
fn no_kill_makes_a_disk_look_as_if_somebody_else_had_written_to_it() {
    let file = Folder::new();
    let under = file.text("under");
    File::create(&under).unwrap().set_len(DISK_BYTES).unwrap();
    let (device, _undo) = shown(&under);
    let of_a_device = || {
        let folder = Folder::new();
        let pmem = folder.text("v");
        let ended = run(&["create", "--pmem", &pmem, "--disk", &device, "--size", "8M"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        Pair { folder, pmem, disk: device.clone() }
    };
    let pairs = [Pair::new(), Pair::laid_out(&["--checksums"]), Pair::laid_out(&["--ordered"]), of_a_device()];
    for pair in pairs {
        let modes = ["write-back", "write-through", "write-around", "pass-through", "write-only"];
        for (turn, mode) in (0..10).zip(modes.into_iter().cycle()) {
            // Little may be dirty, so that blocks are always on their way.
            kill_amid_writes(&pair, turn, &["--disk-mode", mode, "--dirty-percent", "1", "--dirty-age", "1"]);
        }
        let flushed = run(&["flush", "--pmem", &pair.pmem]);
        assert_eq!(flushed.code, 0, "{}", flushed.stderr);
    }
}

/// A file system on `disk`, made by way of the region in front of it, and a server that is killed
/// while it has blocks that the disk lacks.
fn mounted_after_a_kill(pair: &Pair, mountable: &str) {
    let server = pair.serve(&[]);
    let image = pair.folder.text("file-system");
    File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
    peer("mkfs.ext4", &["-q", &image]);
    peer("nbdcopy", &[&image, &server.uris[0]]);
    assert_eq!(run(&["flush", "--pmem", &pair.pmem, "--wait"]).code, 0);
    drop(server);
    pair.killed_with(10, 100..110, 1);
    let at = pair.folder.text("mounted");
    fs::create_dir(&at).unwrap();
    peer("mount", &[mountable, &at]);
    let mounted = run(&["serve", "--pmem", &pair.pmem]);
    peer("umount", &[&at]);
    assert_tells(&mounted, IN_USE, &["is mounted at", &at]);
    assert_refused(pair);
}

#[test]
fn a_file_system_that_was_mounted_after_a_kill_is_left_alone() {
    need_root("mount file systems");
    let pair = Pair::new();
    mounted_after_a_kill(&pair, &pair.disk);
    let folder = Folder::new();
    let [under, pmem] = ["under", "v"].map(|name| folder.text(name));
    File::create(&under).unwrap().set_len(DISK_BYTES).unwrap();
    let (device, _undo) = shown(&under);
    let ended = run(&["create", "--pmem", &pmem, "--disk", &device, "--size", "8M"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    mounted_after_a_kill(&Pair { folder, pmem, disk: device.clone() }, &device);
}

#[test]
fn a_disk_that_somebody_uses_gets_no_region() {
    let folder = Folder::new();
    let [disk, pmem, at] = ["disk", "v", "mounted"].map(|name| folder.text(name));
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    let create = |disk: &str| run(&["create", "--pmem", &pmem, "--disk", disk, "--size", "8M"]);
    let (device, undo) = shown(&disk);
    assert_tells(&create(&disk), IN_USE, &["cannot be used", &format!("the loop device {device} shows it")]);
    peer("mkfs.ext4", &["-q", &device]);
    fs::create_dir(&at).unwrap();
    peer("mount", &[&device, &at]);
    let refused = [&disk, &device].map(|disk| create(disk));
    peer("umount", &[&at]);
    for refused in &refused {
        assert_tells(refused, IN_USE, &["is mounted at", &at, "unmount it"]);
    }
    assert!(!Path::new(&pmem).exists());
    drop(undo);
    assert_eq!(create(&disk).code, 0);
}

#[test]
fn a_disk_of_a_region_with_dirty_blocks_gets_no_other() {
    let pair = Pair::new();
    let other = pair.folder.text("other");
    let create =
        |more: &[&str]| run(&[&["create", "--pmem", &other, "--disk", &pair.disk, "--size", "8M"], more].concat());
    killed(&pair);
    let told = ["is the disk of another region", &pair.pmem, "40960 bytes", "tidegate detach", "--force"];
    assert_tells(&create(&[]), REFUSED, &told);
    assert!(!Path::new(&other).exists());
    // A detached region of another disk gets it neither.
    let second = Pair::new();
    assert_eq!(run(&["detach", "--pmem", &second.pmem]).code, 0);
    let attach = |more: &[&str]| run(&[&["attach", "--pmem", &second.pmem, "--disk", &pair.disk], more].concat());
    assert_tells(&attach(&[]), REFUSED, &told);
    // Under another name it is the same disk.
    let moved = pair.folder.text("moved");
    fs::rename(&pair.disk, &moved).unwrap();
    assert_tells(&run(&["create", "--pmem", &other, "--disk", &moved, "--size", "8M"]), REFUSED, &told);
    fs::rename(&moved, &pair.disk).unwrap();
    // A region that is gone may have had blocks too.
    let hidden = pair.folder.text("hidden");
    fs::rename(&pair.pmem, &hidden).unwrap();
    assert_tells(&create(&[]), REFUSED, &["is not there", "--force"]);
    fs::rename(&hidden, &pair.pmem).unwrap();
    assert_eq!(run(&["flush", "--pmem", &pair.pmem]).code, 0);
    // Now the disk has everything. Whoever had it is told so.
    assert_eq!(create(&[]).code, 0);
    let taken = ["is the disk of another region", &other, "is not detached"];
    for command in [&["serve"][..], &["flush"], &["detach"], &["resize", "--size", "16M"]] {
        assert_tells(&run(&[command, &["--pmem", &pair.pmem]].concat()), REFUSED, &taken);
    }
    assert_eq!(run(&["detach", "--pmem", &other]).code, 0);
    assert_eq!(run(&["detach", "--pmem", &pair.pmem]).code, 0);
    assert_eq!(attach(&[]).code, 0, "it is free");
}

#[test]
fn force_puts_another_region_in_front_of_a_disk_and_the_first_is_refused() {
    let pair = Pair::new();
    let other = pair.folder.text("other");
    killed(&pair);
    let forced = run(&["create", "--pmem", &other, "--disk", &pair.disk, "--size", "8M", "--force"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    assert_tells(&run(&["serve", "--pmem", &pair.pmem]), REFUSED, &["is the disk of another region", &other]);
    let saved = pair.folder.text("saved");
    assert_eq!(run(&["salvage", "--pmem", &pair.pmem, "--to", &saved]).code, 0);
}
