//! Every format with flipped bytes, image after image: no command panics or hangs, and where
//! checksums stand no block is wrong beside an exit code of 0. `TIDEGATE_IMAGES` says how many
//! images of each format, `TIDEGATE_IMAGE` repeats a single one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use tidegate_layout::btt::Version;
use tidegate_layout::disk_cache::{CachePlan, Superblock};
use tidegate_media::Durability;
use tidegate_nbd_client::client::Client;
use tidegate_trials::artefacts::announce;
use tidegate_trials::flips::{Block, Part, Snapshot, Verdict, flip, images, serve_and_read, tidegate};
use tidegate_trials::mount_folders::MountFolders;
use tidegate_trials::sectors::{fill, generation};
use tidegate_trials::served::Volume;
use tidegate_trials::surgery::Opened;
use zerocopy::FromBytes;

const BLOCK: u32 = 4096;
const BLOCK_BYTES: usize = BLOCK as usize;

/// Blocks of the disk behind a cache, and those of them that are written twice: the cache has the
/// last of them dirty.
const DISK_BLOCKS: u64 = 96;

/// A folder whose name no other test has, and the paths in it.
struct Testbed {
    folder: tempfile::TempDir,
}

impl Testbed {
    /// In memory, as the images are many.
    fn new() -> Testbed {
        Testbed { folder: tempfile::Builder::new().prefix("flips").tempdir_in("/dev/shm").unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Serves the region, and reads every block.
    fn serve(&self, blocks: u64, arguments: &[&str]) -> (Verdict, Option<Vec<Block>>) {
        serve_and_read(self.folder.path(), &self.path("region"), arguments, blocks, BLOCK)
    }
}

fn contents(block: u64, generation: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    fill(&mut bytes, block, generation);
    bytes
}

/// Runs a command that has to succeed.
fn done(arguments: &[&str]) {
    let verdict = tidegate(arguments);
    assert_eq!(verdict.code, 0, "{arguments:?}: {}", verdict.said);
}

/// How the images of a format went: commands that ended with 0, and others.
#[derive(Default)]
struct Tally {
    images: u64,
    done: u64,
    refused: u64,
    /// What the last refused command said.
    words: String,
}

impl Tally {
    fn note(&mut self, verdict: &Verdict) -> bool {
        let is_done = verdict.code == 0;
        if is_done {
            self.done += 1;
        } else {
            self.refused += 1;
            self.words.clone_from(&verdict.said);
        }
        is_done
    }
}

/// Puts back, flips and judges every image.
fn campaign(name: &str, snapshot: &Snapshot, parts: &[Part], mut judge: impl FnMut(u64, &str, &mut Tally)) {
    let mut tally = Tally::default();
    for image in images() {
        snapshot.put_back();
        let flips = format!("TIDEGATE_IMAGE={image}: {:?}", flip(parts, image));
        let refused = tally.refused;
        judge(image, &flips, &mut tally);
        assert!(image > 0 || tally.refused == refused, "refused without a flipped byte: {}", tally.words);
        tally.images += 1;
    }
    let Tally { images, done, refused, words: _ } = tally;
    announce(&format!("{name}: {images} images; {done} commands succeeded, {refused} refused"));
}

#[test]
fn a_block_translation_table_with_flipped_bytes() {
    let testbed = Testbed::new();
    let region = testbed.path("region");
    done(&["create", "--pmem", &testbed.text("region"), "--size", "16781312"]);
    let blocks = {
        let server = Volume::at(&region).serve();
        let mut client = server.connect();
        let blocks = client.bytes() / u64::from(BLOCK);
        for block in 0..blocks {
            client.write(block * u64::from(BLOCK), &contents(block, 1), Durability::Volatile).unwrap();
        }
        drop(client);
        server.stop();
        blocks
    };
    let arena = *Opened::first_arena(&region, Version::V1_1).arena();
    let part = |from, len, weight| Part { file: region.clone(), bytes: from..from + len, weight };
    let parts = [
        part(arena.start(), 128, 2),
        part(arena.info2_at(), 128, 2),
        part(arena.map_at(0), blocks * 4, 4),
        part(arena.flog_at(0), 64 * 256, 4),
        part(0, fs::metadata(&region).unwrap().len(), 1),
    ];
    let snapshot = Snapshot::of(std::slice::from_ref(&region));
    campaign("block translation table", &snapshot, &parts, |_, flips, tally| {
        let path = &testbed.text("region");
        tally.note(&tidegate(&["info", path]));
        let is_sound = tally.note(&tidegate(&["check", path]));
        let (served, read) = testbed.serve(blocks, &[]);
        tally.note(&served);
        if is_sound {
            assert!(read.is_some(), "a sound volume is served; {flips}\n{}", served.said);
        }
        // The format has no checksum of the map or the data: a block may be another one, but is
        // there or refused.
        tally.note(&tidegate(&["check", "--repair", path]));
        let (served, _) = testbed.serve(blocks, &["--write-cache", "64K"]);
        tally.note(&served);
    });
}

/// A cache of a disk with blocks that are dirty and blocks that are clean, as a killed server
/// leaves it, and how it was made.
struct Cached {
    testbed: Testbed,
    snapshot: Snapshot,
    plan: CachePlan,
}

/// What a read of the volume has to give.
fn expected(block: u64) -> Vec<u8> {
    contents(block, if block.is_multiple_of(3) { 1 } else { 2 })
}

impl Cached {
    fn new(how: &[&str]) -> Cached {
        let testbed = Testbed::new();
        let (region, disk) = (testbed.text("region"), testbed.text("disk"));
        File::create(&disk).unwrap().set_len((DISK_BLOCKS + JOURNAL_BLOCKS) * u64::from(BLOCK)).unwrap();
        done(&[&["create", "--pmem", &region, "--size", "1M", "--disk", &disk, "--accept-volatile"][..], how].concat());
        let mut server = Volume::at(testbed.path("region").as_path()).serve_with(&["--accept-volatile"]);
        let mut client = server.connect();
        let mut write = |block: u64, bytes: &[u8]| client.write(block * u64::from(BLOCK), bytes, Durability::Volatile);
        (0..DISK_BLOCKS).for_each(|block| write(block, &contents(block, 1)).unwrap());
        done(&["flush", "--wait", "--pmem", &region]);
        (0..DISK_BLOCKS).for_each(|block| write(block, &expected(block)).unwrap());
        server.kill();
        let snapshot = Snapshot::of(&[testbed.path("region"), testbed.path("disk")]);
        let bytes = fs::read(&region).unwrap();
        let (superblock, _) = Superblock::read_from_prefix(&bytes).unwrap();
        let plan = superblock.check(bytes.len() as u64).unwrap().plan;
        Cached { testbed, snapshot, plan }
    }

    /// The region's parts: those with little in them as often as those with much.
    fn parts(&self) -> Vec<Part> {
        let file = self.testbed.path("region");
        let (plan, len) = (&self.plan, fs::metadata(&file).unwrap().len());
        let part = |bytes, weight| Part { file: file.clone(), bytes, weight };
        let entries_end = plan.entry_at(plan.blocks);
        let mut parts = vec![part(0..512, 1), part(4096..4608, 1), part(8192..8320, 1)];
        parts.extend([part(plan.ring_at..plan.entries_at, 1), part(plan.entries_at..entries_end, 4)]);
        parts.extend(plan.sums_at.map(|at| part(at..plan.data_at, 2)));
        parts.push(part(plan.data_at..len, 4));
        parts
    }

    fn judge(&self, flips: &str, tally: &mut Tally, checked: Checked) {
        let region = &self.testbed.text("region");
        tally.note(&tidegate(&["info", region]));
        tally.note(&tidegate(&["check", region]));
        tally.note(&tidegate(&["scrub", "--pmem", region]));
        let to = self.testbed.text("salvaged");
        if tally.note(&tidegate(&["salvage", "--pmem", region, "--to", &to])) && checked == Checked::Yes {
            let salvaged = fs::read(&to).unwrap();
            for (block, bytes) in (0..DISK_BLOCKS).zip(salvaged.chunks(BLOCK_BYTES)) {
                let is_right = bytes == expected(block) || bytes.iter().all(|byte| *byte == 0);
                assert!(is_right, "block {block} was salvaged wrong; {flips}");
            }
        }
        let _ = fs::remove_file(to);
        let (served, read) = self.testbed.serve(DISK_BLOCKS, &["--accept-volatile"]);
        tally.note(&served);
        for (block, read) in (0..).zip(read.unwrap_or_default()) {
            let is_right = read.is_err() || read.is_ok_and(|bytes| bytes == expected(block));
            assert!(is_right || checked == Checked::No, "block {block} was read wrong; {flips}\n{}", served.said);
        }
        if tally.note(&tidegate(&["detach", "--pmem", region])) && checked == Checked::Yes {
            self.assert_disk(flips, "the end of a detach", |block, bytes| bytes == expected(block));
        }
    }

    fn assert_disk(&self, flips: &str, when: &str, is_right: impl Fn(u64, &[u8]) -> bool) {
        let disk = fs::read(self.testbed.path("disk")).unwrap();
        for (block, bytes) in (0..DISK_BLOCKS).zip(disk.chunks(BLOCK_BYTES)) {
            assert!(is_right(block, bytes), "block {block} of the disk is wrong at {when}; {flips}");
        }
    }
}

/// Whether checksums stand for every block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    Yes,
    No,
}

#[test]
fn a_cache_with_flipped_bytes() {
    let cached = Cached::new(&[]);
    let parts = cached.parts();
    campaign("disk cache", &cached.snapshot, &parts, |_, flips, tally| cached.judge(flips, tally, Checked::No));
}

#[test]
fn a_cache_with_checksums_and_flipped_bytes() {
    let cached = Cached::new(&["--checksums"]);
    let parts = cached.parts();
    campaign("disk cache with checksums", &cached.snapshot, &parts, |_, flips, tally| {
        cached.judge(flips, tally, Checked::Yes);
    });
}

/// Room for the journal of an ordered disk behind a region of this size.
const JOURNAL_BLOCKS: u64 = 320;

/// Writes in turn to all blocks of an ordered disk before its server is killed, at least.
const ORDERED_WRITES: u64 = 40 * DISK_BLOCKS;

/// Writes blocks in turn, each of the next generation when its turn comes again, until the server
/// is killed.
fn write_in_turn(mut client: Client<UnixStream>, acknowledged: &Sender<()>) {
    for write in 0.. {
        let (block, generation) = (write % DISK_BLOCKS, write / DISK_BLOCKS + 1);
        let bytes = contents(block, u32::try_from(generation).unwrap());
        if client.write(block * u64::from(BLOCK), &bytes, Durability::Volatile).is_err() {
            return;
        }
        let _ = acknowledged.send(());
    }
}

/// Whether these are what some number of writes in turn leaves: each block as new as the one
/// before, or one generation older from some block on.
fn is_what_writes_in_turn_leave(blocks: &[Vec<u8>]) -> bool {
    let generations: Result<Vec<_>, _> = (0..).zip(blocks).map(|(block, bytes)| generation(bytes, block)).collect();
    generations.is_ok_and(|all| all.is_sorted_by(|a, b| a >= b) && all[0] - all[all.len() - 1] <= 1)
}

/// A region and its ordered disk, whose server was killed in the middle of writes in turn; the size
/// of its volume in blocks.
fn ordered() -> (Testbed, Snapshot, u64) {
    let testbed = Testbed::new();
    let (region, disk) = (testbed.text("region"), testbed.text("disk"));
    File::create(&disk).unwrap().set_len((DISK_BLOCKS + JOURNAL_BLOCKS) * u64::from(BLOCK)).unwrap();
    done(&["create", "--pmem", &region, "--size", "1M", "--disk", &disk, "--accept-volatile", "--ordered"]);
    let mut server = Volume::at(testbed.path("region").as_path()).serve_with(&["--accept-volatile"]);
    let client = server.connect();
    let blocks = client.bytes() / u64::from(BLOCK);
    assert!(blocks >= DISK_BLOCKS, "the journal leaves room for {blocks} blocks");
    let (tell, acknowledged) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| write_in_turn(client, &tell));
        (0..ORDERED_WRITES).for_each(|_| acknowledged.recv().unwrap());
        server.kill();
    });
    let snapshot = Snapshot::of(&[testbed.path("region"), testbed.path("disk")]);
    (testbed, snapshot, blocks)
}

#[test]
fn an_ordered_disk_with_flipped_bytes() {
    let (testbed, snapshot, blocks) = ordered();
    let (region, disk) = (testbed.text("region"), testbed.text("disk"));
    let at = |block: u64| block * u64::from(BLOCK);
    let len = fs::metadata(&disk).unwrap().len();
    let part = |bytes, weight| Part { file: testbed.path("disk"), bytes, weight };
    let headers = [len - at(2), len - at(1)].map(|header| part(header..header + 128, 2));
    let parts = [&headers[..], &[part(at(blocks)..at(blocks + 1), 2), part(at(blocks)..len, 4)]].concat();
    campaign("ordered disk", &snapshot, &parts, |_, flips, tally| {
        tally.note(&tidegate(&["info", &region]));
        tally.note(&tidegate(&["check", &region]));
        tally.note(&tidegate(&["scrub", "--pmem", &region]));
        let (served, read) = testbed.serve(DISK_BLOCKS, &["--accept-volatile"]);
        tally.note(&served);
        // The region is whole: nothing that the journal says may spoil what it holds.
        if let Some(read) = read {
            let read: Result<Vec<_>, _> = read.into_iter().collect();
            assert!(read.is_ok_and(|read| is_what_writes_in_turn_leave(&read)), "read wrong; {flips}\n{}", served.said);
        }
        let detached = tidegate(&["detach", "--pmem", &region]);
        if tally.note(&detached) {
            assert_ordered(&testbed, flips, &detached);
        }
    });
    campaign("ordered disk without its region", &snapshot, &parts, |_, flips, tally| {
        fs::remove_file(&region).unwrap();
        let replayed = tidegate(&["replay", &disk, "--force"]);
        if tally.note(&replayed) {
            assert_ordered(&testbed, flips, &replayed);
        }
    });
}

fn assert_ordered(testbed: &Testbed, flips: &str, after: &Verdict) {
    let disk = fs::read(testbed.path("disk")).unwrap();
    let disk: Vec<_> =
        disk.chunks(BLOCK_BYTES).take(usize::try_from(DISK_BLOCKS).unwrap()).map(<[u8]>::to_vec).collect();
    assert!(is_what_writes_in_turn_leave(&disk), "the disk is wrong; {flips}\n{}", after.said);
}

/// The file with the slots of the volume in `region`, which a killed server left.
fn slots_of(region: &Path) -> Option<PathBuf> {
    let files = fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path());
    files.into_iter().find(|file| {
        let mut volume = [0; 4096];
        let len = rustix::fs::getxattr(file, "user.tidegate.volume", &mut volume[..]).unwrap_or(0);
        Path::new(OsStr::from_bytes(&volume[..len])) == region
    })
}

#[test]
fn slots_with_flipped_bytes() {
    let testbed = Testbed::new();
    let region = testbed.path("region");
    done(&["create", "--pmem", &testbed.text("region"), "--size", "16781312"]);
    let mut server = Volume::at(&region).serve_with(&["--write-cache", "256K"]);
    let client = server.connect();
    let (tell, acknowledged) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| write_in_turn(client, &tell));
        (0..ORDERED_WRITES).for_each(|_| acknowledged.recv().unwrap());
        server.kill();
    });
    let slots = slots_of(&region).expect("a killed server leaves its cache");
    let snapshot = Snapshot::of(&[region.clone(), slots.clone()]);
    let part = |bytes, weight| Part { file: slots.clone(), bytes, weight };
    let len = fs::metadata(&slots).unwrap().len();
    let parts = [part(0..64, 2), part(4096..4096 + 64 * 16, 4), part(0..len, 1)];
    campaign("slots", &snapshot, &parts, |_, _, tally| {
        tally.note(&tidegate(&["info", &testbed.text("region")]));
        // What is completed is not judged: the headers of slots carry no checksum.
        tally.note(&testbed.serve(DISK_BLOCKS, &["--write-cache", "off"]).0);
    });
    let _ = fs::remove_file(slots);
}

/// Lines that are synced before the service of a mount is killed.
const LINES: u64 = 300;

#[test]
fn a_pool_with_flipped_bytes() {
    let bed = MountFolders::new();
    let service = bed.mount();
    let mut log = File::create(bed.at("mnt").join("log")).unwrap();
    for line in 0..LINES {
        writeln!(log, "line {line:010}").unwrap();
        log.sync_data().unwrap();
    }
    drop(log);
    bed.kill(service);
    let (pool, record, log) = (bed.pool(), bed.pool().with_added_extension("mount"), bed.at("source").join("log"));
    let snapshot = Snapshot::of(&[pool.clone(), record.clone()]);
    let expected: String = (0..LINES).map(|line| format!("line {line:010}\n")).collect();
    let bytes = fs::read(&pool).unwrap();
    let used = (0_u64..).step_by(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES));
    let used = used.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)).map(|(at, _)| at);
    let part = |file: &PathBuf, bytes, weight| Part { file: file.clone(), bytes, weight };
    let whole = part(&record, 0..fs::metadata(&record).unwrap().len(), 20);
    let parts: Vec<_> = used.map(|at| part(&pool, at..at + u64::from(BLOCK), 1)).chain([whole]).collect();
    let pool = pool.to_str().unwrap();
    // Contents carry no checksums: what they come to say is done, or refused. The first recovery
    // changes the file, so the later ones retain what the pool has, or save it.
    campaign("pool of a mount", &snapshot, &parts, |image, flips, tally| {
        tally.note(&tidegate(&["check", pool]));
        let recovered = tidegate(&["recover", pool]);
        tally.note(&recovered);
        let text = fs::read_to_string(&log).unwrap_or_default();
        assert!(image > 0 || text == expected, "wrong after {}; {flips}", recovered.said);
        tally.note(&tidegate(&["recover", "--force", pool]));
        let _ = fs::remove_dir_all(format!("{pool}.salvaged"));
    });
}
