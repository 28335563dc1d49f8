//! Ordered disks: without their region they are what all writes up to a moment left.

use super::*;
use tidegate_layout::disk_cache::{JournalHeader, JournalRecord, TrustedJournal};
use zerocopy::{FromBytes, IntoBytes};

/// Two places far apart, each of two blocks that are written by one request.
const PLACES: [u64; 2] = [3, 2000];

/// The turn of which the disk alone shows two whole blocks at `first`.
fn turn_of(disk: &File, first: u64) -> u64 {
    let mut bytes = vec![0; usize::try_from(2 * BLOCK).unwrap()];
    disk.read_exact_at(&mut bytes, first * BLOCK).unwrap();
    let turn = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let whole = [stamped(first, turn), stamped(first + 1, turn)].concat();
    assert!(bytes == whole || turn == 0, "the write to block {first} is torn");
    turn
}

#[test]
fn a_disk_that_lost_its_region_is_what_all_writes_up_to_a_moment_left() {
    let pair = Pair::laid_out(&["--ordered"]);
    let info = json(&["info", "--pmem", &pair.pmem]);
    assert_eq!(info["volume"]["ordered"], true, "{info}");
    let mut turn = 0;
    let (mut put_in_place, mut behind) = (0, 0);
    for round in 0..20 {
        let mut server = pair.serve(&["--dirty-percent", "1"]);
        let mut client = pair.client();
        for _ in 0..40 + round * 13 {
            turn += 1;
            for first in PLACES {
                let bytes = [stamped(first, turn), stamped(first + 1, turn)].concat();
                client.write(first * BLOCK, &bytes, Durability::Volatile).unwrap();
            }
            write(&mut client, 100 + turn % 1000, turn);
        }
        server.kill();
        let alone = pair.folder.text("alone");
        fs::copy(&pair.disk, &alone).unwrap();
        let replayed = json(&["replay", &alone, "--force"]);
        put_in_place += replayed["blocks"].as_u64().unwrap();
        let disk = File::open(&alone).unwrap();
        let [one, other] = PLACES.map(|first| turn_of(&disk, first));
        assert!(one == other || one == other + 1, "{one} and {other} were never there together");
        behind += u64::from(one < turn);
    }
    println!("{turn} turns, {behind} disks behind, {put_in_place} blocks put in place");
    assert!(behind > 0 && turn_of(&File::open(&pair.disk).unwrap(), PLACES[0]) > 0, "some of it reached the disk");
    json(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_eq!(PLACES.map(|first| turn_of(&File::open(&pair.disk).unwrap(), first)), [turn; 2]);
    assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
}

#[test]
fn an_ordered_region_that_is_not_served_is_scrubbed() {
    let pair = Pair::laid_out(&["--ordered", "--checksums"]);
    let scrub = || run(&["--json", "scrub", "--pmem", &pair.pmem]);
    let found = |ended: &Ended| serde_json::from_str::<Value>(&ended.stdout).unwrap();
    let mut server = pair.serve(&["--dirty-percent", "90", "--dirty-age", "3600"]);
    let mut client = pair.client();
    (0..20).for_each(|block| write(&mut client, block, 1));
    server.kill();
    let ended = scrub();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!((found(&ended)["sound"].as_u64(), found(&ended)["served"].as_bool()), (Some(20), Some(false)));
    pair.spoil(&stamped(7, 1));
    let ended = scrub();
    assert_eq!((ended.code, found(&ended)["damaged"].as_u64()), (REFUSED, Some(1)), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_ordered_or_replayed_is_told() {
    let folder = Folder::new();
    let (disk, pmem) = (folder.text("disk"), folder.text("v"));
    let create = |more: &[&str]| {
        run(&[&["create", "--pmem", &pmem, "--disk", &disk, "--size", "8M", "--ordered"], more].concat())
    };
    File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    assert_tells(&create(&[]), USAGE, &["too small to be ordered", "truncate"]);
    File::options().write(true).open(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    File::options().write(true).open(&disk).unwrap().write_all_at(b"precious", DISK_BYTES - 8).unwrap();
    assert_tells(&create(&[]), REFUSED, &["the end of", "holds something", "--force"]);
    assert_tells(&run(&["replay", &disk, "--force"]), REFUSED, &["has no journal"]);
    assert_eq!(create(&["--force"]).code, 0);
    let had = json(&["info", "--pmem", &pmem])["volume"]["cached_blocks"].clone();
    assert_tells(&run(&["replay", &disk]), USAGE, &["is left as it is", "--force"]);
    assert_eq!(run(&["resize", "--pmem", &pmem, "--size", "16M"]).code, 0);
    assert_eq!(
        json(&["info", "--pmem", &pmem])["volume"]["cached_blocks"],
        had,
        "no more than the journal has room for"
    );
    assert_eq!(run(&["resize", "--pmem", &pmem, "--size", "4M"]).code, 0);
    assert_eq!(run(&["detach", "--pmem", &pmem]).code, 0);
    assert_eq!(run(&["attach", "--pmem", &pmem, "--disk", &disk]).code, 0, "its journal is known, and holds nothing");
    let other = folder.text("other");
    fs::write(&other, vec![1; 16 << 20]).unwrap();
    assert_eq!(run(&["detach", "--pmem", &pmem]).code, 0);
    assert_tells(&run(&["attach", "--pmem", &pmem, "--disk", &other]), REFUSED, &["holds something"]);
    assert_eq!(run(&["attach", "--pmem", &pmem, "--disk", &other, "--force"]).code, 0);
}

#[test]
fn a_journal_goes_over_no_end_that_a_file_system_calls_its_own() {
    let folder = Folder::new();
    let (disk, pmem) = (folder.text("disk"), folder.text("v"));
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    peer("mkfs.ext4", &["-q", "-F", "-b", "4096", &disk]);
    let told = ["the end of", "ext4", "takes 33554432 bytes", "--force"];
    let create = ["create", "--pmem", &pmem, "--disk", &disk, "--size", "8M", "--ordered"];
    assert_tells(&run(&create), REFUSED, &told);
    // Behind it a larger disk has room.
    File::options().write(true).open(&disk).unwrap().set_len(DISK_BYTES + (9 << 20)).unwrap();
    assert_eq!(run(&create).code, 0);
    let pair = Pair { folder, pmem, disk };
    assert_eq!(run(&["detach", "--pmem", &pair.pmem]).code, 0);
    let attach = |more: &[&str]| run(&[&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk][..], more].concat());
    assert_eq!(attach(&[]).code, 0, "it is the volume's, which has room for it");
    assert_eq!(run(&["detach", "--pmem", &pair.pmem]).code, 0);
    peer("mkfs.ext4", &["-q", "-F", "-b", "4096", &pair.disk]);
    let told = ["the end of", "ext4", "takes 42991616 bytes", "--force"];
    assert_tells(&attach(&[]), REFUSED, &told);
    assert_eq!(attach(&["--force"]).code, 0);
    let mut server = pair.serve(&[]);
    assert_eq!(run(&["detach", "--pmem", &pair.pmem]).code, 0);
    assert_tells(&attach(&[]), REFUSED, &told);
    assert_eq!(attach(&["--force"]).code, 0);
    assert_eq!(server.stop().code(), Some(0));
}

/// Makes the ordered disk at `path` one that was amid a group when it lost its region: of one
/// block, which says `turn`. Returns where its header lies.
fn amid_a_group(path: &str, block: u64, turn: u64) -> u64 {
    let disk = File::options().read(true).write(true).open(path).unwrap();
    let end = disk.metadata().unwrap().len();
    let header_at = |at: u64| {
        let mut bytes = [0; size_of::<JournalHeader>()];
        disk.read_exact_at(&mut bytes, at).unwrap();
        JournalHeader::read_from_bytes(&bytes).unwrap().check().unwrap()
    };
    let newest = [header_at(end - 2 * BLOCK), header_at(end - BLOCK)].into_iter().max_by_key(|header| header.sequence);
    let TrustedJournal { plan, uuid, sequence, .. } = newest.unwrap();
    let content = stamped(block, turn);
    let record = JournalRecord::of(block, &content);
    disk.write_all_at(record.as_bytes(), plan.records_at() * BLOCK).unwrap();
    disk.write_all_at(&content, plan.data_at() * BLOCK).unwrap();
    let (sequence, records_sum) = (sequence + 1, JournalRecord::sum_of_all(&[record]));
    let told = TrustedJournal { plan, uuid, sequence, blocks: 1, records_sum };
    disk.write_all_at(told.header().as_bytes(), plan.header_at(sequence) * BLOCK).unwrap();
    plan.header_at(sequence) * BLOCK
}

#[test]
fn a_disk_amid_a_group_gets_no_other_region_before_it_is_put_in_order() {
    let pair = Pair::laid_out(&["--ordered"]);
    amid_a_group(&pair.disk, 7, 1);
    let other = pair.folder.text("other");
    for more in [&[][..], &["--ordered"], &["--ordered", "--force"]] {
        let create = [&["create", "--pmem", &other, "--disk", &pair.disk, "--size", "8M"], more].concat();
        assert_tells(&run(&create), REFUSED, &["is not whole", "1 blocks were being put in place", "tidegate replay"]);
        assert!(!fs::exists(&other).unwrap());
    }
    assert_eq!(json(&["replay", &pair.disk, "--force"])["blocks"], 1);
    assert_eq!(pair.on_disk(7), stamped(7, 1));
    let create = ["create", "--pmem", &other, "--disk", &pair.disk, "--size", "8M"];
    assert_tells(&run(&create), REFUSED, &["is the disk of another region"]);
    assert_eq!(run(&[&create[..], &["--force"]].concat()).code, 0, "its region was said to be lost");
}

/// An ordered region with a dirty block, 7, that no server uses.
fn with_a_dirty_block() -> Pair {
    let pair = Pair::laid_out(&["--ordered"]);
    let mut server = pair.serve(&["--dirty-percent", "90"]);
    write(&mut pair.client(), 7, 1);
    server.kill();
    assert_eq!(pair.dirty_bytes(), BLOCK);
    pair
}

/// A region of the same size that was detached from a disk of its own.
fn detached(pair: &Pair, name: &str, options: &[&str]) -> String {
    let (pmem, disk) = (pair.folder.text(name), pair.folder.text("disk of another"));
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    assert_eq!(run(&[&["create", "--pmem", &pmem, "--disk", &disk, "--size", "8M"], options].concat()).code, 0);
    assert_eq!(run(&["detach", "--pmem", &pmem]).code, 0);
    pmem
}

#[test]
fn the_disk_of_a_living_region_gets_no_other_before_it_is_detached() {
    let pair = with_a_dirty_block();
    let other = pair.folder.text("other");
    let create =
        |more: &[&str]| run(&[&["create", "--pmem", &other, "--disk", &pair.disk, "--size", "8M"], more].concat());
    let told = ["is the disk of another region", "uuid", "tidegate detach", "tidegate replay", "--force"];
    for more in [&[][..], &["--ordered"]] {
        assert_tells(&create(more), REFUSED, &told[..1]);
        assert_tells(&create(more), REFUSED, &told[2..]);
        assert!(!fs::exists(&other).unwrap());
    }
    for (name, options) in [("plain", &[][..]), ("ordered", &["--ordered"])] {
        let pmem = detached(&pair, name, options);
        let attach = run(&["attach", "--pmem", &pmem, "--disk", &pair.disk]);
        assert_tells(&attach, REFUSED, &told[..1]);
    }
    json(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_eq!(pair.on_disk(7), stamped(7, 1));
    assert_tells(&create(&["--ordered"]), REFUSED, &told[..1]);
    assert_eq!(run(&["detach", "--pmem", &pair.pmem]).code, 0);
    assert_eq!(create(&["--ordered"]).code, 0, "the disk is free");
    assert_eq!(run(&["detach", "--pmem", &other]).code, 0);
    assert_eq!(run(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]).code, 0);
}

#[test]
fn a_region_whose_journal_was_written_over_says_so_and_leaves_the_other_alone() {
    let forced = |pair: &Pair| {
        let other = pair.folder.text("other");
        let create = ["create", "--pmem", &other, "--disk", &pair.disk, "--size", "8M", "--ordered", "--force"];
        assert_eq!(run(&create).code, 0);
        json(&["info", "--pmem", &other])["volume"]["uuid"].clone()
    };
    let pair = with_a_dirty_block();
    let uuid = forced(&pair);
    let told = ["4096 bytes", "is that of another cache, uuid", uuid.as_str().unwrap(), "salvage", "--to COPY"];
    let taken = ["is the disk of another region", uuid.as_str().unwrap(), "--force"];
    assert_tells(&run(&["flush", "--pmem", &pair.pmem]), REFUSED, &taken);
    assert_tells(&run(&["flush", "--pmem", &pair.pmem, "--force"]), REFUSED, &told);
    let mut server = pair.serve(&["--dirty-percent", "90", "--disk", &pair.disk, "--force"]);
    assert_tells(&run(&["flush", "--pmem", &pair.pmem, "--wait"]), REFUSED, &told);
    assert_tells(&run(&["detach", "--pmem", &pair.pmem]), REFUSED, &told[1..]);
    server.kill();
    let copy = pair.folder.text("copy");
    fs::copy(&pair.disk, &copy).unwrap();
    assert_eq!(json(&["salvage", "--pmem", &pair.pmem, "--to", &copy, "--force"])["blocks"], 1);
    let clean = Pair::laid_out(&["--ordered"]);
    let uuid = forced(&clean);
    assert_eq!(run(&["detach", "--pmem", &clean.pmem, "--disk", &clean.disk, "--force"]).code, 0);
    assert_eq!(json(&["replay", &clean.disk, "--force"])["uuid"], uuid, "the journal is there still");
}

#[test]
fn what_is_salvaged_to_a_copy_amid_a_group_is_not_undone_by_that() {
    let pair = Pair::laid_out(&["--ordered"]);
    let mut server = pair.serve(&["--dirty-percent", "90"]);
    write(&mut pair.client(), 7, 2);
    server.kill();
    let (copy, file) = (pair.folder.text("copy"), pair.folder.text("file"));
    fs::copy(&pair.disk, &copy).unwrap();
    amid_a_group(&copy, 7, 1);
    assert_eq!(json(&["salvage", "--pmem", &pair.pmem, "--to", &copy, "--force"])["blocks"], 1);
    assert_eq!(json(&["replay", &copy, "--force"])["blocks"], 0, "its journal tells of no group any more");
    let mut shown = vec![0; usize::try_from(BLOCK).unwrap()];
    File::open(&copy).unwrap().read_exact_at(&mut shown, 7 * BLOCK).unwrap();
    assert_eq!(shown, stamped(7, 2));
    assert_eq!(json(&["salvage", "--pmem", &pair.pmem, "--to", &file])["blocks"], 1);
    assert_tells(&run(&["replay", &file, "--force"]), REFUSED, &["has no journal"]);
}

#[test]
fn a_disk_that_lost_its_end_is_told_to_be_smaller() {
    let pair = Pair::laid_out(&["--ordered"]);
    for less in [1, 2, 500] {
        File::options().write(true).open(&pair.disk).unwrap().set_len(DISK_BYTES - less * BLOCK).unwrap();
        for command in [&["flush", "--pmem", &pair.pmem, "--wait"][..], &["serve", "--pmem", &pair.pmem]] {
            assert_tells(&run(command), REFUSED, &["is smaller than the volume", "restore its size", "salvage"]);
        }
    }
}

#[test]
fn a_damaged_group_is_made_anew_from_the_region_which_says_what_it_lacks_if_it_cannot() {
    let pair = Pair::laid_out(&["--ordered"]);
    let mut server = pair.serve(&["--dirty-percent", "90"]);
    write(&mut pair.client(), 7, 2);
    server.kill();
    let spoil = |block| {
        let header = amid_a_group(&pair.disk, block, 1);
        let disk = File::options().read(true).write(true).open(&pair.disk).unwrap();
        let mut bytes = [0; size_of::<JournalHeader>()];
        disk.read_exact_at(&mut bytes, header).unwrap();
        let plan = JournalHeader::read_from_bytes(&bytes).unwrap().check().unwrap().plan;
        disk.write_all_at(b"damage", plan.data_at() * BLOCK).unwrap();
    };
    spoil(7);
    assert_tells(&run(&["replay", &pair.disk, "--force"]), REFUSED, &["cannot be used", "fits its checksum"]);
    json(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_eq!(pair.on_disk(7), stamped(7, 2));
    let mut server = pair.serve(&["--dirty-percent", "90"]);
    write(&mut pair.client(), 7, 3);
    server.kill();
    spoil(8);
    let flush = run(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_tells(&flush, REFUSED, &["not block 8", "nothing goes past it", "write the block anew", "salvage"]);
    let server = pair.serve(&["--dirty-percent", "90"]);
    write(&mut pair.client(), 8, 3);
    drop(server);
    json(&["flush", "--pmem", &pair.pmem, "--wait"]);
    assert_eq!([7, 8].map(|block| pair.on_disk(block)), [7, 8].map(|block| stamped(block, 3)));
}
