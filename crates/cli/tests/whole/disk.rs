//! Volumes that cache a disk: nothing that was answered is lost, the disk gets everything in the
//! end, and what is wrong is told.

mod changed;
mod changes;
mod ended;
mod foreign;
mod full;
mod locked;
mod lost;
mod ordered;
mod reads;
mod refusing;
mod sizes;
mod told;
mod volatile;
mod which;

use crate::program::{Ended, Folder, Server, json, need_root, peer, run, tidegate};
use serde_json::Value;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Operation};

pub(crate) const BLOCK: u64 = 4096;
const DISK_BYTES: u64 = 32 << 20;
pub(crate) const USAGE: i32 = 2;
pub(crate) const REFUSED: i32 = 3;
const IN_USE: i32 = 4;
pub(crate) const ENVIRONMENT: i32 = 5;

/// A disk in a file, and a region of a quarter of its size in front of it.
pub(crate) struct Pair {
    pub(crate) folder: Folder,
    pub(crate) pmem: String,
    disk: String,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let folder = Folder::new();
        let disk = folder.text("disk");
        Pair::over(folder, disk)
    }

    /// A region in front of a disk, made by `options` of `create`.
    fn laid_out(options: &[&str]) -> Pair {
        let folder = Folder::new();
        let disk = folder.text("disk");
        Pair::made(folder, disk, options)
    }

    /// A region in front of `disk`.
    fn over(folder: Folder, disk: String) -> Pair {
        Pair::made(folder, disk, &[])
    }

    fn made(folder: Folder, disk: String, options: &[&str]) -> Pair {
        File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
        let pmem = folder.text("v");
        let ended = run(&[&["create", "--pmem", &pmem, "--disk", &disk, "--size", "8M"], options].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        Pair { folder, pmem, disk }
    }

    fn serve(&self, more: &[&str]) -> Server {
        let listen = format!("unix:{}", self.folder.text("s"));
        Server::start(&[&["--pmem", &self.pmem, "--listen", &listen], more].concat())
    }

    pub(crate) fn client(&self) -> Client<UnixStream> {
        Server::client(&self.folder.path("s"))
    }

    pub(crate) fn on_disk(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(BLOCK).unwrap()];
        File::open(&self.disk).unwrap().read_exact_at(&mut bytes, block * BLOCK).unwrap();
        bytes
    }

    /// Changes a bit of the region in the middle of the block that holds `bytes`.
    fn spoil(&self, bytes: &[u8]) {
        let mut region = fs::read(&self.pmem).unwrap();
        let at = region.chunks(bytes.len()).position(|chunk| chunk == bytes).unwrap() * bytes.len() + 100;
        region[at] ^= 1;
        File::options().write(true).open(&self.pmem).unwrap().write_all_at(&region[at..=at], at as u64).unwrap();
    }

    fn info(&self) -> Value {
        json(&["info", "--pmem", &self.pmem])
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.info()["disk"]["dirty_bytes"].as_u64().unwrap()
    }

    /// Writes `blocks` in a turn after `turn` and kills the server before it brings one of them to
    /// the disk, which it does when writers pause: until that succeeds, and `dirty` blocks are
    /// dirty then. The turn.
    fn killed_with(&self, dirty: u64, blocks: Range<u64>, turn: u64) -> u64 {
        for turn in turn + 1..turn + 100 {
            let mut server = self.serve(&[]);
            let mut client = self.client();
            blocks.clone().for_each(|block| write(&mut client, block, turn));
            server.kill();
            if self.dirty_bytes() == dirty * BLOCK {
                return turn;
            }
        }
        panic!("every kill came when the disk had a block");
    }
}

pub(crate) fn stamped(block: u64, turn: u64) -> Vec<u8> {
    [block.to_le_bytes(), turn.to_le_bytes()].concat().repeat(usize::try_from(BLOCK).unwrap() / 16)
}

pub(crate) fn read(client: &mut Client<UnixStream>, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(BLOCK).unwrap()];
    client.read(block * BLOCK, &mut bytes).unwrap();
    bytes
}

pub(crate) fn write(client: &mut Client<UnixStream>, block: u64, turn: u64) {
    client.write(block * BLOCK, &stamped(block, turn), Durability::Volatile).unwrap();
}

#[track_caller]
pub(crate) fn assert_tells(ended: &Ended, code: i32, phrases: &[&str]) {
    assert_eq!(ended.code, code, "{}{}", ended.stdout, ended.stderr);
    for phrase in phrases {
        assert!(ended.stderr.contains(phrase), "no {phrase:?} in: {}", ended.stderr);
    }
    for begin in ["tidegate: error: ", "  why: ", "  next: "] {
        assert!(ended.stderr.lines().any(|line| line.starts_with(begin)), "{}", ended.stderr);
    }
}

#[test]
fn what_the_disk_held_is_the_volume_and_what_is_written_reaches_it() {
    let pair = Pair::new();
    File::options().write(true).open(&pair.disk).unwrap().write_all_at(&stamped(5, 99), 5 * BLOCK).unwrap();
    let mut server = pair.serve(&["--replacement", "s3-fifo"]);
    assert!(server.said.contains("replacement s3-fifo") && server.said.contains("whole write torn"), "{}", server.said);
    let mut client = pair.client();
    assert_eq!((client.bytes(), read(&mut client, 5)), (DISK_BYTES, stamped(5, 99)));
    // More than the cache holds.
    (0..4000).for_each(|block| write(&mut client, block, 1));
    assert_eq!(read(&mut client, 3999), stamped(3999, 1));
    let flushed = json(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_eq!((&flushed["served"], &flushed["flushed"]), (&Value::Bool(true), &Value::Bool(true)), "{flushed}");
    assert!((0..4000).all(|block| pair.on_disk(block) == stamped(block, 1)));
    let state = &pair.info()["disk"];
    assert_eq!((state["dirty_bytes"].as_u64(), state["mode"].as_str()), (Some(0), Some("write-back")), "{state}");
    assert_eq!(state["writes"]["misses"], 3999, "block 5 was read before: {state}");
    let stat = json(&["stat", "--pmem", &pair.pmem]);
    assert!(stat["volumes"][0]["counters"]["disk_cache_destaged_blocks"].as_f64().unwrap() >= 4000.0, "{stat}");
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
}

#[test]
fn killed_over_and_over_it_keeps_what_it_answered() {
    let pair = Pair::new();
    let mut turns = vec![0; usize::try_from(DISK_BYTES / BLOCK).unwrap()];
    let mut dirty_after_a_kill = 0;
    for turn in 1..=12_u64 {
        let mut server = pair.serve(&[]);
        let mut client = pair.client();
        for (block, last) in (0..).zip(&turns) {
            let expected = if *last == 0 { vec![0; stamped(0, 0).len()] } else { stamped(block, *last) };
            assert_eq!(read(&mut client, block), expected, "block {block} in turn {turn}");
        }
        // A stride that meets new and old blocks, some in one request.
        let first = |nth: u64| nth * (turn * 7 + 3) % 8000;
        for nth in 0..200 {
            let blocks = first(nth)..first(nth) + 1 + nth % 5;
            let data: Vec<u8> = blocks.clone().flat_map(|block| stamped(block, turn)).collect();
            client.write(blocks.start * BLOCK, &data, Durability::Fua).unwrap();
            blocks.for_each(|block| turns[usize::try_from(block).unwrap()] = turn);
        }
        server.kill();
        dirty_after_a_kill += pair.dirty_bytes();
        assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
    }
    assert!(dirty_after_a_kill > 0, "every kill came when the disk had everything");
    // Without a server the command does the work itself.
    let flushed = json(&["flush", "--pmem", &pair.pmem]);
    assert_eq!((&flushed["served"], pair.dirty_bytes()), (&Value::Bool(false), 0), "{flushed}");
    for (block, turn) in (0..).zip(&turns).filter(|(_, turn)| **turn > 0) {
        assert_eq!(pair.on_disk(block), stamped(block, *turn), "block {block}");
    }
}

#[test]
fn requests_that_were_under_way_at_a_kill_are_there_as_a_whole_or_not_at_all() {
    let pair = Pair::new();
    let blocks = 32_u64;
    for turn in 1..=10_u64 {
        let mut server = pair.serve(&[]);
        let mut client = pair.client();
        for place in 0..8 {
            let first = place * blocks;
            let data: Vec<u8> = (first..first + blocks).flat_map(|block| stamped(block, turn)).collect();
            let operation = Operation::Write { offset: first * BLOCK, data: &data, durability: Durability::Volatile };
            client.submit(operation).unwrap();
        }
        (0..turn % 4).for_each(|_| drop(client.complete().unwrap().outcome.unwrap()));
        server.kill();
        let mut server = pair.serve(&[]);
        let mut client = pair.client();
        for place in 0..8 {
            let found: Vec<Vec<u8>> = (0..blocks).map(|nth| read(&mut client, place * blocks + nth)).collect();
            let turns = found.iter().map(|bytes| u64::from_le_bytes(bytes[8..16].try_into().unwrap()));
            let turns: std::collections::BTreeSet<u64> = turns.collect();
            assert_eq!(turns.len(), 1, "torn at place {place}: {turns:?}");
        }
        assert_eq!(server.stop().code(), Some(0));
    }
}

#[test]
fn the_mode_is_changed_while_it_is_served() {
    let pair = Pair::new();
    let mut server = pair.serve(&["--disk-mode", "write-through"]);
    let mut client = pair.client();
    write(&mut client, 1, 1);
    assert_eq!(pair.on_disk(1), stamped(1, 1), "the disk had it when it was answered");
    let mode = |mode: &str| json(&["mode", "--pmem", &pair.pmem, mode])["mode"].as_str().unwrap().to_owned();
    for (name, block) in [("write-around", 2), ("pass-through", 3)] {
        assert_eq!(mode(name), name);
        write(&mut client, block, 1);
        assert_eq!(pair.on_disk(block), stamped(block, 1), "{name}");
    }
    assert_eq!(mode("read-only"), "read-only");
    assert!(client.write(0, &stamped(0, 1), Durability::Volatile).is_err());
    assert_eq!(read(&mut client, 3), stamped(3, 1));
    assert_eq!(mode("write-back"), "write-back");
    write(&mut client, 3, 2);
    assert_eq!(read(&mut client, 3), stamped(3, 2));
    assert_tells(&run(&["mode", "--pmem", &pair.pmem, "fast"]), USAGE, &["\"fast\" is no mode", "write-around"]);
    assert_eq!(server.stop().code(), Some(0));
    assert_tells(&run(&["mode", "--pmem", &pair.pmem, "write-back"]), ENVIRONMENT, &["no server answers"]);
}

#[test]
fn one_that_began_read_only_is_written_once_its_mode_allows_it() {
    let pair = Pair::new();
    let mut server = pair.serve(&["--disk-mode", "read-only"]);
    let mut early = pair.client();
    assert!(early.write(0, &stamped(0, 1), Durability::Volatile).is_err());
    assert_eq!(json(&["mode", "--pmem", &pair.pmem, "write-back"])["mode"], "write-back");
    write(&mut early, 0, 1);
    let mut late = pair.client();
    let read_only = [&early, &late].map(|client| client.transmission_flags() & 2 != 0);
    assert_eq!(read_only, [true, false], "as told at the beginning of each");
    assert_eq!(read(&mut late, 0), stamped(0, 1));
    write(&mut late, 1, 1);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_scrub_names_what_the_memory_changed_with_a_server_and_without() {
    let pair = Pair::laid_out(&["--checksums"]);
    let scrub = || {
        let ended = run(&["--json", "scrub", "--pmem", &pair.pmem]);
        (ended.code, serde_json::from_str::<Value>(&ended.stdout).unwrap())
    };
    let mut server = pair.serve(&["--dirty-age", "3600"]);
    assert!(server.said.contains("checksums  one of each block"), "{}", server.said);
    let mut client = pair.client();
    (0..20).for_each(|block| write(&mut client, block, 1));
    let (code, found) = scrub();
    assert_eq!((code, found["served"].as_bool(), found["sound"].as_u64()), (0, Some(true), Some(20)));
    drop(client);
    server.kill();
    let (code, found) = scrub();
    assert_eq!((code, found["served"].as_bool(), found["sound"].as_u64()), (0, Some(false), Some(20)));
    // A clean block would be read from the disk.
    let turn = pair.killed_with(20, 0..20, 1);
    let before = pair.on_disk(7);
    pair.spoil(&stamped(7, turn));
    let (code, found) = scrub();
    assert_eq!((code, found["damaged"].as_u64(), found["checksums"].as_bool()), (REFUSED, Some(1), Some(true)));
    assert!(found["named"][0].as_str().unwrap().contains("block 7 of the disk"), "{found}");
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    assert!(client.read(7 * BLOCK, &mut stamped(0, 0)).is_err());
    assert_eq!((read(&mut client, 8), scrub().0), (stamped(8, turn), REFUSED));
    let flushed = run(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_tells(&flushed, REFUSED, &["block 7", "the checksum it was stored with"]);
    assert_eq!([7, 8].map(|block| pair.on_disk(block)), [before, stamped(8, turn)]);
    drop(client);
    server.kill();
    let turn = pair.killed_with(2, 9..10, turn);
    // What the memory changed is named, and keeps nothing else from being saved.
    let saved = pair.folder.text("saved");
    let salvage = run(&["--json", "salvage", "--pmem", &pair.pmem, "--to", &saved]);
    let told: Value = serde_json::from_str(&salvage.stdout).unwrap();
    assert_eq!((salvage.code, told["blocks"].as_u64(), told["not_saved"].as_u64()), (REFUSED, Some(1), Some(1)));
    assert!(told["damaged"].as_str().unwrap().contains("block 7"), "{told}");
    assert_eq!(fs::read(&saved).unwrap()[9 * 4096..10 * 4096], stamped(9, turn));
    assert_tells(&run(&["detach", "--pmem", &pair.pmem]), REFUSED, &["4096 bytes", "block 7", "tidegate scrub"]);
    assert_eq!(pair.on_disk(9), stamped(9, turn));
}

#[test]
fn a_mode_outlasts_the_cache_that_it_was_set_for() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    let set = |mode: &str| json(&["mode", "--pmem", &pair.pmem, mode]);
    let mode = || pair.info()["disk"]["mode"].as_str().unwrap().to_owned();
    set("write-through");
    assert_eq!(run(&["resize", "--pmem", &pair.pmem, "--size", "16M"]).code, 0);
    assert_eq!(mode(), "write-through");
    json(&["detach", "--pmem", &pair.pmem]);
    json(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
    assert_eq!(mode(), "write-through");
    write(&mut client, 1, 1);
    set("read-only");
    assert_eq!(run(&["resize", "--pmem", &pair.pmem, "--size", "8M"]).code, 0);
    json(&["detach", "--pmem", &pair.pmem]);
    assert!(client.write(BLOCK, &stamped(1, 2), Durability::Volatile).is_err(), "the disk alone is read only too");
    assert_eq!(read(&mut client, 1), stamped(1, 1));
    json(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
    set("write-back");
    write(&mut client, 1, 3);
    assert_eq!(read(&mut client, 1), stamped(1, 3));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn clients_learn_how_large_a_write_is_whole() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    assert!(!peer("nbdinfo", &[&server.uris[0]]).contains("tidegate:atomic"), "a disk's file may tear at a power loss");
    assert_eq!(server.stop().code(), Some(0));
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let pair = Pair { pmem: memory.path().join("v").to_str().unwrap().to_owned(), ..pair };
    let create = ["create", "--pmem", &pair.pmem, "--disk", &pair.disk, "--size", "8M", "--accept-volatile"];
    let ended = run(&create);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let mut server = pair.serve(&["--accept-volatile"]);
    let uri = server.uris[0].clone();
    let atomic = pair.info()["volume"]["atomic_bytes"].to_string();
    let map = peer("nbdinfo", &["--map=tidegate:atomic", &uri]);
    assert!(map.contains(&DISK_BYTES.to_string()) && map.contains(&atomic), "{map}");
    let script = format!(
        "h.add_meta_context('base:allocation')\nh.add_meta_context('tidegate:atomic')\nh.connect_uri('{uri}')\n\
         h.block_status(65536, 4096, lambda context, at, extents, error: print(context, at, extents))"
    );
    // What nbdsh does, with the Python that the package is made for.
    let told = peer("/usr/bin/python3", &["-m", "nbd", "--command", &script]);
    let whole = format!("tidegate:atomic 4096 [65536, {atomic}]");
    for context in ["base:allocation 4096 [65536, ", &whole] {
        assert!(told.contains(context), "{told}");
    }
    json(&["mode", "--pmem", &pair.pmem, "pass-through"]);
    assert!(!peer("nbdinfo", &[&uri]).contains("tidegate:atomic"), "past the cache the disk's promises hold");
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_cache_parts_from_its_disk_and_gets_another() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    (0..500).for_each(|block| write(&mut client, block, 3));
    let attach = run(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
    assert_tells(&attach, REFUSED, &["has a disk already"]);
    let elsewhere = run(&["detach", "--pmem", &pair.pmem, "--control", &pair.folder.text("nowhere")]);
    assert_tells(&elsewhere, ENVIRONMENT, &["no server answers"]);
    server.kill();
    assert_tells(&run(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]), REFUSED, &["has a disk", "detach"]);
    let detached = run(&["detach", "--pmem", &pair.pmem]);
    assert_eq!(detached.code, 0, "{}", detached.stderr);
    assert!((0..500).all(|block| pair.on_disk(block) == stamped(block, 3)));
    let serve = run(&["serve", "--pmem", &pair.pmem, "--disk", &pair.disk]);
    assert_tells(&serve, REFUSED, &["has no disk", "was detached", "tidegate attach"]);
    let (look, shown) = (pair.info(), run(&["info", "--pmem", &pair.pmem]).stdout);
    assert_eq!((look["disk"]["attached"].as_bool(), &look["disk"]["disk"]), (Some(false), &Value::Null), "{look}");
    assert_eq!(
        (&look["volume"]["contract"], &look["volume"]["atomic_bytes"]),
        (&Value::Array(Vec::new()), &Value::Null)
    );
    assert!(shown.contains("tidegate attach") && shown.contains("none while it is detached"), "{shown}");
    assert!(!shown.contains("--disk") && !shown.contains("the memory is lost"), "{shown}");
    let other = pair.folder.text("other");
    fs::write(&other, stamped(0, 8).repeat(100)).unwrap();
    let attached = json(&["attach", "--pmem", &pair.pmem, "--disk", &other]);
    assert_eq!(attached["blocks"], 100);
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    assert_eq!((client.bytes(), read(&mut client, 99)), (100 * BLOCK, stamped(0, 8)));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_served_disk_parts_from_its_cache_and_gets_it_back_larger_and_smaller() {
    let pair = Pair::laid_out(&["--checksums"]);
    let mut server = pair.serve(&["--dirty-age", "3600"]);
    let mut client = pair.client();
    let cache_bytes = || pair.info()["disk"]["cache_bytes"].as_u64().unwrap();
    let rest_of = |turn: u64| (0..500).map(move |block| (block, turn));
    rest_of(1).for_each(|(block, turn)| write(&mut client, block, turn));
    // Some are dirty, unless the writer was kept from writing for so long that it seemed to pause.
    let detached = json(&["detach", "--pmem", &pair.pmem]);
    assert_eq!(detached["served"].as_bool(), Some(true));
    rest_of(1).for_each(|(block, turn)| assert_eq!(pair.on_disk(block), stamped(block, turn)));
    write(&mut client, 3, 2);
    client.flush().unwrap();
    assert_eq!((read(&mut client, 3), pair.on_disk(3)), (stamped(3, 2), stamped(3, 2)), "the disk alone");
    // The region is free for anybody.
    let (look, shown) = (pair.info(), run(&["info", "--pmem", &pair.pmem]).stdout);
    assert_eq!((look["in_use"].as_bool(), look["disk"]["attached"].as_bool()), (Some(false), Some(false)), "{look}");
    assert_eq!(look["disk"]["disk"].as_str(), Some(&*pair.disk), "its server knows the disk");
    assert!(shown.contains("requests go to the disk") && shown.contains("goes on with the disk alone"), "{shown}");
    assert!(!shown.contains("the memory is lost"), "{shown}");
    assert_tells(&run(&["detach", "--pmem", &pair.pmem]), REFUSED, &["has no disk"]);
    let other = pair.folder.text("other");
    File::create(&other).unwrap().set_len(DISK_BYTES).unwrap();
    assert_tells(&run(&["attach", "--pmem", &pair.pmem, "--disk", &other]), REFUSED, &["is not the disk of"]);
    let attached = json(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
    assert_eq!(attached["served"].as_bool(), Some(true));
    let before = cache_bytes();
    for (size, turn) in [("16M", 3), ("4M", 4)] {
        rest_of(turn).for_each(|(block, turn)| write(&mut client, block, turn));
        let resized = json(&["resize", "--pmem", &pair.pmem, "--size", size]);
        assert_eq!(resized["served"].as_bool(), Some(true));
        assert_eq!(pair.on_disk(499), stamped(499, turn));
        rest_of(turn).for_each(|(block, turn)| assert_eq!(read(&mut client, block), stamped(block, turn)));
        let (bytes, grown) = (fs::metadata(&pair.pmem).unwrap().len(), cache_bytes() > before);
        assert_eq!((bytes, grown), if size == "16M" { (16 << 20, true) } else { (4 << 20, false) });
    }
    assert_eq!(json(&["info", "--pmem", &pair.pmem])["disk"]["mode"].as_str(), Some("write-back"));
    write(&mut client, 7, 9);
    server.kill();
    assert_eq!(run(&["check", "--pmem", &pair.pmem]).code, 0);
    let mut server = pair.serve(&[]);
    assert_eq!(read(&mut pair.client(), 7), stamped(7, 9));
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(json(&["resize", "--pmem", &pair.pmem, "--size", "6M"])["served"].as_bool(), Some(false));
    assert_eq!((pair.on_disk(7), fs::metadata(&pair.pmem).unwrap().len()), (stamped(7, 9), 6 << 20));
}

#[test]
fn the_wrong_disk_is_refused_and_the_right_one_untouched() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    write(&mut pair.client(), 7, 1);
    server.kill();
    let serve = |disk: &str| run(&["serve", "--pmem", &pair.pmem, "--disk", disk]);
    let copy = pair.folder.text("copy");
    fs::copy(&pair.disk, &copy).unwrap();
    assert_tells(&serve(&copy), REFUSED, &["is not the disk of", "salvage"]);
    let absent = serve(&pair.folder.text("absent"));
    assert_tells(&absent, REFUSED, &["the disk of", "no such file", "--disk", "tidegate salvage"]);
    assert_tells(&serve(pair.folder.0.path().to_str().unwrap()), ENVIRONMENT, &["it is a folder", "block device"]);
    // Whoever has it open for writing keeps the server off.
    let set_len = |bytes| File::options().write(true).open(&pair.disk).and_then(|disk| disk.set_len(bytes)).unwrap();
    set_len(DISK_BYTES / 2);
    assert_tells(&serve(&pair.disk), REFUSED, &["is smaller than the volume", "16777216", "restore its size"]);
    set_len(2 * DISK_BYTES);
    let mut server = pair.serve(&[]);
    assert_eq!(pair.client().bytes(), DISK_BYTES, "a disk that has grown is used as far as it was known");
    let second = pair.folder.text("second");
    let create = run(&["create", "--pmem", &second, "--disk", &pair.disk, "--size", "8M"]);
    assert_tells(&create, IN_USE, &["cannot be used", &format!("process {} (tidegate)", server.pid())]);
    assert!(!PathBuf::from(&second).exists());
    assert_eq!(server.stop().code(), Some(0));
    // Moved, it is still the same disk, but has to be named.
    let moved = pair.folder.text("moved");
    fs::rename(&pair.disk, &moved).unwrap();
    assert_tells(&run(&["serve", "--pmem", &pair.pmem]), REFUSED, &["no such file"]);
    let mut server = pair.serve(&["--disk", &moved]);
    assert_eq!(read(&mut pair.client(), 7), stamped(7, 1));
    assert_eq!(server.stop().code(), Some(0));
    let mut server = pair.serve(&[]);
    assert!(server.said.contains(&moved), "noted for the next time: {}", server.said);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn what_cannot_be_is_told_before_anything_is_touched() {
    let pair = Pair::new();
    let new = pair.folder.text("new");
    let create = |more: &[&str]| run(&[&["create", "--pmem", &new, "--size", "8M"], more].concat());
    assert_tells(&create(&["--disk", &pair.folder.text("absent")]), REFUSED, &["no such file", "truncate -s"]);
    let empty = pair.folder.text("empty");
    File::create(&empty).unwrap();
    assert_tells(&create(&["--disk", &empty]), ENVIRONMENT, &["not even one block", "truncate -s"]);
    assert_tells(
        &create(&["--disk", &pair.disk, "--block", "520"]),
        USAGE,
        &["no blocks of 520 bytes", "power of two"],
    );
    assert_tells(&create(&["--disk", &pair.disk, "--block", "1000"]), USAGE, &["1000"]);
    assert_tells(&create(&["--block", "8192"]), USAGE, &["8192", "use one of 512, 520"]);
    assert_tells(&create(&["--disk", &pair.disk, "--btt", "1.1"]), USAGE, &["--btt"]);
    let small = run(&["create", "--pmem", &new, "--disk", &pair.disk, "--size", "64K"]);
    assert_tells(&small, USAGE, &["too small for a cache", "--size 1048576"]);
    assert!(!PathBuf::from(&new).exists());
    let again = run(&["create", "--pmem", &pair.pmem, "--disk", &pair.disk, "--size", "8M"]);
    assert_tells(&again, REFUSED, &["already exists", "a cache of the disk", "which lacks nothing"]);
    assert_tells(&run(&["create", "--pmem", &pair.pmem, "--size", "32M"]), REFUSED, &["a cache of the disk"]);
    let serve = |pmem: &str, more: &[&str]| run(&[&["serve", "--pmem", pmem], more].concat());
    assert_tells(&serve(&pair.pmem, &["--write-cache", "1M"]), USAGE, &["no cache in DRAM", "leave --write-cache out"]);
    assert_tells(
        &serve(&pair.pmem, &["--wear-leveling", "9"]),
        USAGE,
        &["cannot be levelled", "leave --wear-leveling out"],
    );
    assert_tells(&serve(&pair.pmem, &["--replacement", "arc"]), USAGE, &["\"arc\"", "s3-fifo"]);
    assert_tells(&serve(&pair.pmem, &["--dirty-percent", "0"]), USAGE, &["--dirty-percent"]);
    let btt = pair.folder.volume("btt");
    for flags in [["--disk", &pair.disk], ["--disk-mode", "write-through"], ["--dirty-age", "5"]] {
        assert_tells(&serve(&btt, &flags), REFUSED, &["is no cache of a disk", "create --disk"]);
    }
    for command in ["flush", "detach"] {
        assert_tells(&run(&[command, "--pmem", &btt]), REFUSED, &["is no cache of a disk"]);
    }
    // Both superblocks lost.
    let pmem = File::options().write(true).open(&pair.pmem).unwrap();
    [100, 4196].into_iter().for_each(|at| pmem.write_all_at(&[7; 64], at).unwrap());
    for command in ["serve", "info", "check"] {
        assert_tells(&run(&[command, "--pmem", &pair.pmem]), REFUSED, &["is damaged", "keep a copy"]);
    }
}

/// A command that undoes something at the end.
struct Undo(&'static str, [String; 2]);

impl Drop for Undo {
    fn drop(&mut self) {
        // A failed assertion may have left it in use.
        let _ = std::process::Command::new(self.0).args(&self.1).status();
    }
}

#[test]
fn a_block_device_is_a_disk_and_a_configuration_file_may_name_it() {
    need_root("make a loop device");
    let pair = Pair::new();
    let image = pair.folder.text("image");
    File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
    let device = peer("losetup", &["--find", "--show", &image]).trim().to_owned();
    let detach = Undo("losetup", ["--detach".to_owned(), device.clone()]);
    let pmem = pair.folder.text("loop.pmem");
    let created = run(&["create", "--pmem", &pmem, "--disk", &device, "--size", "8M", "--block", "16384"]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    let config = pair.folder.text("c.toml");
    let listen = format!("unix:{}", pair.folder.text("s"));
    let text =
        format!("listen = [\"{listen}\"]\n[[volume]]\npmem = \"loop.pmem\"\ndisk = \"{device}\"\ndirty_age = 1\n");
    fs::write(&config, text).unwrap();
    let mut server = Server::start(&["--config", &config]);
    let mut client = pair.client();
    (0..300).for_each(|block| write(&mut client, block, 6));
    assert_eq!(json(&["flush", "--pmem", &pmem, "--wait"])["flushed"], true);
    assert_eq!(server.stop().code(), Some(0));
    peer("blockdev", &["--flushbufs", &device]);
    let mut bytes = stamped(0, 0);
    for block in 0..300 {
        File::open(&image).unwrap().read_exact_at(&mut bytes, block * BLOCK).unwrap();
        assert_eq!(bytes, stamped(block, 6), "block {block}");
    }
    drop(detach);
}

#[test]
fn the_longest_whole_write_is_one_commit_wherever_it_begins() {
    let folder = Folder::new();
    let disk = folder.text("disk");
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    let pmem = folder.text("v");
    json(&["create", "--pmem", &pmem, "--disk", &disk, "--size", "64M"]);
    let pair = Pair { folder, pmem, disk };
    let mut server = pair.serve(&[]);
    let whole = usize::try_from(pair.info()["volume"]["atomic_bytes"].as_u64().unwrap()).unwrap();
    assert_eq!(whole, 1 << 20);
    let commits = || {
        let stat = json(&["stat", "--pmem", &pair.pmem]);
        stat["volumes"][0]["counters"]["disk_cache_commits"].as_f64().unwrap()
    };
    let mut client = pair.client();
    for (nth, block) in [3, 64, 1000].into_iter().enumerate() {
        let before = commits();
        client.write(block * BLOCK, &vec![u8::try_from(nth).unwrap(); whole], Durability::Fua).unwrap();
        assert!((commits() - before - 1.0).abs() < 0.5, "at block {block}");
    }
    assert!(server.stop().success());
}

#[test]
fn read_only_it_shows_what_the_cache_has_and_changes_nothing() {
    let pair = Pair::new();
    let turn = pair.killed_with(1, 9..10, 1);
    let (region, disk) = (fs::read(&pair.pmem).unwrap(), fs::read(&pair.disk).unwrap());
    let mut server = pair.serve(&["--read-only"]);
    let mut client = pair.client();
    assert_eq!(read(&mut client, 9), stamped(9, turn));
    assert!(client.write(0, &stamped(0, 1), Durability::Volatile).is_err());
    assert_eq!(pair.dirty_bytes(), BLOCK);
    for arguments in [&["flush", "--wait"][..], &["flush"], &["detach"]] {
        let ended = run(&[arguments, &["--pmem", &pair.pmem]].concat());
        assert_tells(&ended, REFUSED, &["is left as it is", "--read-only"]);
    }
    assert_eq!(server.stop().code(), Some(0));
    assert!(fs::read(&pair.pmem).unwrap() == region && fs::read(&pair.disk).unwrap() == disk);
    let answer = tidegate().args(["info", "--pmem", &pair.pmem]).output().unwrap();
    let text = String::from_utf8(answer.stdout).unwrap();
    assert!(text.contains("the disk fails") && text.contains(&pair.disk), "{text}");
}
