//! Volumes behind the write cache: what a kill leaves is completed, what ends well leaves nothing,
//! and wishes are heeded.

use crate::program::{Folder, NOBODY, Server, json, run};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Operation};

const BLOCK: u64 = 4096;
/// Blocks of each round's burst: more than the cache can drain meanwhile.
const BURST: u64 = 64;

fn stamped(block: u64, turn: u64) -> Vec<u8> {
    [block.to_le_bytes(), turn.to_le_bytes()].concat().repeat(usize::try_from(BLOCK).unwrap() / 16)
}

/// What has a name of the volume's caches.
fn cache_files(volume: &str) -> Vec<PathBuf> {
    let uuid = json(&["info", "--pmem", volume])["volume"]["uuid"].as_str().unwrap().to_owned();
    let files = fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().contains(&uuid)).collect()
}

/// The file of the volume's cache.
fn cache_file(volume: &str) -> Option<PathBuf> {
    cache_files(volume).pop()
}

/// Writes a burst of blocks, all in flight at once, and returns when all are acknowledged.
fn burst(client: &mut Client<UnixStream>, turn: u64) {
    for block in 0..BURST {
        let data = stamped(block, turn);
        client
            .submit(Operation::Write { offset: block * BLOCK, data: &data, durability: Durability::Volatile })
            .unwrap();
    }
    while client.pending().next().is_some() {
        client.complete().unwrap().outcome.unwrap();
    }
}

fn read(client: &mut Client<UnixStream>, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(BLOCK).unwrap()];
    client.read(block * BLOCK, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_a_killed_server_left_in_its_cache_is_completed() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let listen = &format!("unix:{}", socket.display());
    let serve = ["--pmem", volume, "--listen", listen, "--write-cache", "1M", "--emulate", "optane"];
    let mut completed = 0;
    for turn in 1..=40 {
        let mut server = Server::start(&serve);
        let mut client = Server::client(&socket);
        burst(&mut client, turn);
        server.kill();
        let file = cache_file(volume).expect("a killed server leaves its cache's file");
        if turn == 1 {
            let refused = run(&["serve", "--pmem", volume, "--listen", listen, "--read-only"]);
            assert_eq!(refused.code, 3, "{}", refused.stderr);
            assert!(refused.stderr.contains("without --read-only"), "{}", refused.stderr);
        }
        // The next server has no cache, and completes what it finds all the same.
        let mut server = Server::start(&["--pmem", volume, "--listen", listen, "--write-cache", "off"]);
        if let Some(line) = server.said.lines().find(|line| line.starts_with("completed")) {
            completed += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
        assert!(!file.exists(), "a completed cache is gone");
        let mut client = Server::client(&socket);
        for block in 0..BURST {
            assert_eq!(read(&mut client, block), stamped(block, turn), "block {block}");
        }
        assert_eq!(server.stop().code(), Some(0));
        if completed > 0 && turn >= 3 {
            break;
        }
    }
    assert!(completed > 0, "no kill met a block in the cache");
    assert_eq!(json(&["check", "--pmem", volume])["sound"], true);
}

#[test]
fn a_cache_whose_file_got_no_bytes_is_made_anew() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let listen = &format!("unix:{}", folder.text("s"));
    let serve = |more: &[&str]| Server::start(&[&["--pmem", volume, "--listen", listen], more].concat());
    serve(&["--write-cache", "1M"]).kill();
    let file = cache_file(volume).unwrap();
    // What a server leaves that is killed after it made the file and before it gave it its size.
    let empty = || drop(fs::File::create(&file).unwrap());
    empty();
    assert_eq!(serve(&["--read-only"]).stop().code(), Some(0));
    for cache in ["1M", "off"] {
        empty();
        let mut server = serve(&["--write-cache", cache]);
        assert_eq!(file.exists(), cache == "1M");
        assert_eq!(server.stop().code(), Some(0));
        assert_eq!(cache_file(volume), None);
    }
}

/// Makes a name in `/dev/shm` that goes with the test.
struct Squat(PathBuf);

impl Drop for Squat {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves the volume behind a cache, kills the server with blocks in it, and has another one
/// complete them.
fn kill_and_complete(folder: &Folder, volume: &str, squat: &Path) -> bool {
    let (socket, listen) = (folder.path("s"), &format!("unix:{}", folder.text("s")));
    let serve = |more: &[&str]| Server::start(&[&["--pmem", volume, "--listen", listen], more].concat());
    let ignored = format!("{} is ignored", squat.display());
    let mut server = serve(&["--write-cache", "1M", "--emulate", "optane"]);
    server.hear_or_heard(&ignored);
    let mut client = Server::client(&socket);
    burst(&mut client, 7);
    server.kill();
    let file = cache_files(volume).into_iter().find(|file| file != squat).expect("it has a cache of its own");
    let refused = run(&["serve", "--pmem", volume, "--listen", listen, "--read-only"]);
    assert!(refused.code == 3 && refused.stderr.contains("without --read-only"), "{}", refused.stderr);
    let mut server = serve(&["--write-cache", "off"]);
    server.hear_or_heard(&ignored);
    assert_eq!(cache_files(volume), [squat], "{} is completed", file.display());
    let mut client = Server::client(&socket);
    (0..BURST).for_each(|block| assert_eq!(read(&mut client, block), stamped(block, 7), "block {block}"));
    assert_eq!(server.stop().code(), Some(0));
    server.said.contains("\ncompleted")
}

#[test]
fn a_cache_that_somebody_else_made_is_ignored_and_the_volume_gets_another_one() {
    crate::program::need_root("be another user");
    let folder = Folder::new();
    let (volume, other) = (&folder.volume("v"), folder.path("other"));
    let listen = &format!("unix:{}", folder.text("s"));
    let mut server = Server::start(&["--pmem", volume, "--listen", listen, "--write-cache", "1M"]);
    let squat = Squat(cache_files(volume).remove(0));
    assert!(server.stop().success());
    let squatted = |made: &dyn Fn()| {
        made();
        // Some kills come when the cache is empty.
        let is_met = (0..40).any(|_| kill_and_complete(&folder, volume, &squat.0));
        assert!(is_met, "no kill met a block in the cache");
    };
    squatted(&|| {
        fs::write(&squat.0, "no cache").unwrap();
        chown(&squat.0, Some(NOBODY), None).unwrap();
    });
    assert_eq!(fs::read(&squat.0).unwrap(), b"no cache");
    fs::remove_file(&squat.0).unwrap();
    fs::write(&other, "of root").unwrap();
    squatted(&|| symlink(&other, &squat.0).unwrap());
    assert_eq!(fs::read(&other).unwrap(), b"of root");
    assert!(squat.0.is_symlink());
}

#[test]
fn of_two_caches_that_were_left_neither_is_believed() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let listen = &format!("unix:{}", folder.text("s"));
    let serve = ["--pmem", volume, "--listen", listen, "--write-cache", "1M"];
    Server::start(&serve).kill();
    let file = cache_file(volume).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let (beginning, ending) = name.split_at("tidegate-".len() + 36);
    let copy = Squat(file.with_file_name(format!("{beginning}.2{ending}")));
    fs::copy(&file, &copy.0).unwrap();
    let refused = run(&[&["serve"][..], &serve].concat());
    assert!(refused.code == 3 && refused.stderr.contains("nothing tells which are newer"), "{}", refused.stderr);
    assert!(file.exists() && copy.0.exists());
    drop(copy);
    assert_eq!(Server::start(&serve).stop().code(), Some(0));
    assert_eq!(cache_file(volume), None);
}

#[test]
fn a_server_that_ends_leaves_no_cache_behind() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let listen = &format!("unix:{}", socket.display());
    let mut server = Server::start(&["--pmem", volume, "--listen", listen, "--write-cache", "1M", "--emulate", "pcm"]);
    assert!(server.said.contains("1 MiB in /dev/shm/tidegate-"), "{}", server.said);
    let mut client = Server::client(&socket);
    burst(&mut client, 9);
    assert!(cache_file(volume).is_some());
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(cache_file(volume), None);
    let mut server = Server::start(&["--pmem", volume, "--listen", listen, "--read-only"]);
    let mut client = Server::client(&socket);
    assert_eq!(read(&mut client, 5), stamped(5, 9));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_copy_of_a_served_volume_has_a_cache_of_its_own() {
    let folder = Folder::new();
    let (volume, copy) = (&folder.volume("v"), &folder.text("w"));
    fs::copy(volume, copy).unwrap();
    let listen = |name: &str| format!("unix:{}", folder.text(name));
    let mut first = Server::start(&["--pmem", volume, "--listen", &listen("s"), "--write-cache", "64K"]);
    let mut second = Server::start(&["--pmem", copy, "--listen", &listen("t"), "--write-cache", "64K"]);
    assert_eq!((first.stop().code(), second.stop().code()), (Some(0), Some(0)));
}

#[test]
fn a_cache_is_had_where_memory_is_slow_or_if_asked_for() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let listen = &format!("unix:{}", folder.text("s"));
    for (arguments, phrase) in [
        (&["--emulate", "pcm"][..], "16 MiB in "),
        (&["--write-cache", "off", "--emulate", "pcm"], "off"),
        (&["--write-cache", "0", "--emulate", "pcm"], "off"),
        (&["--write-cache", "64K"], "64 KiB in "),
        (&["--read-only"], "off: read-only"),
    ] {
        let mut server = Server::start(&[&["--pmem", volume, "--listen", listen], arguments].concat());
        let line = server.said.lines().find(|line| line.starts_with("cache")).expect("a line about it").to_owned();
        assert!(line.contains(phrase), "{arguments:?}: {line}");
        assert_eq!(server.stop().code(), Some(0));
    }
    let refused = run(&["serve", "--pmem", volume, "--write-cache", "huge"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(Path::new(volume).exists());
}

#[test]
fn a_cache_whose_volume_is_gone_is_named_and_left_alone() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let listen = &format!("unix:{}", folder.text("s"));
    let serve = ["--pmem", volume, "--listen", listen, "--write-cache", "1M"];
    let left = || {
        let list = json(&["list"]);
        let mine = |left: &&serde_json::Value| left["volume"] == volume.as_str();
        list["leftovers"]["caches"].as_array().unwrap().iter().filter(mine).cloned().collect::<Vec<_>>()
    };
    let mut server = Server::start(&serve);
    let file = cache_file(volume).unwrap();
    // A server that still runs uses its cache, whatever becomes of the name of its volume.
    fs::rename(volume, folder.path("moved")).unwrap();
    assert_eq!(left(), [0; 0]);
    server.kill();
    assert_eq!((left().len(), left()[0]["cache"].as_str()), (1, file.to_str()));
    // Another file under the old name is another volume.
    folder.volume("v");
    assert_eq!(left()[0]["state"], "volume_gone");
    // A copy has the cache of the volume that is gone, and nothing completes that.
    let (moved, copy) = (folder.text("moved"), folder.text("copy"));
    fs::copy(&moved, &copy).unwrap();
    let removal = format!("rm {}", file.display());
    let told = run(&["info", "--pmem", &copy]).stdout;
    assert!(told.contains("left") && told.contains(&removal), "{told}");
    let elsewhere = &format!("unix:{}", folder.text("t"));
    let mut server = Server::start(&["--pmem", &copy, "--listen", elsewhere, "--write-cache", "off"]);
    assert_eq!(server.stop().code(), Some(0));
    assert!(server.said.contains(&removal), "{}", server.said);
    assert!(file.exists(), "nothing removes it");
    // Served where it is now, it is completed.
    assert!(run(&["info", "--pmem", &moved]).stdout.contains(&format!("tidegate serve --pmem {moved}")));
    let mut server = Server::start(&["--pmem", &moved, "--listen", listen, "--write-cache", "off"]);
    assert!(!file.exists());
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_cache_that_has_no_room_is_refused_if_it_was_asked_for() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let listen = &format!("unix:{}", folder.text("s"));
    let refused = run(&["serve", "--pmem", volume, "--listen", listen, "--write-cache", "8T"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("have no room in /dev/shm/"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("next: ask for a smaller one, or for none: --write-cache off"),
        "{}",
        refused.stderr
    );
    crate::program::need_root("mount a file system without room");
    // Nobody asked for one: the volume is served without.
    let serve =
        format!("exec {} serve --pmem {volume} --listen {listen} --emulate pcm", env!("CARGO_BIN_EXE_tidegate"));
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("mount -t tmpfs -o size=1M none /dev/shm && {serve}")]);
    let mut server = Server::spawn(&mut command);
    assert!(server.said.contains("off: /dev/shm has no room for it"), "{}", server.said);
    assert_eq!(server.stop().code(), Some(0));
}
