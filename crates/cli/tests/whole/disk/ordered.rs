//! Ordered disks: without their region they are what all writes up to a moment left.

use super::*;

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
