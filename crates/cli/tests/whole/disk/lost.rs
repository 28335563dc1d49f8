//! A lost disk, and a lost region: what the other one still has, and what is said of it.

use super::{BLOCK, Pair, REFUSED, assert_tells, read, stamped, write};
use crate::program::{Folder, json, run};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[test]
fn a_lost_disk_gets_the_clean_blocks_back_too_and_every_salvage_tells_their_number() {
    let pair = Pair::laid_out(&["--checksums"]);
    let server = pair.serve(&[]);
    let mut client = pair.client();
    // The last one after a gap.
    let clean = [10, 11, 12, 700];
    clean.into_iter().for_each(|block| write(&mut client, block, 3));
    assert_eq!(run(&["flush", "--pmem", &pair.pmem, "--wait"]).code, 0);
    assert_eq!(json(&["mode", "--pmem", &pair.pmem, "write-back"])["mode"], "write-back");
    assert_eq!(read(&mut client, 10), stamped(10, 3));
    drop(server);
    fs::remove_file(&pair.disk).unwrap();
    let to = |name: &str| pair.folder.text(name);
    let salvaged = json(&["salvage", "--pmem", &pair.pmem, "--to", &to("dirty")]);
    let counts = ["blocks", "clean_blocks", "clean_bytes"].map(|name| salvaged[name].as_u64().unwrap());
    assert_eq!(counts, [0, 4, 4 * BLOCK], "{salvaged}");
    let told = run(&["salvage", "--pmem", &pair.pmem, "--to", &to("told")]).stdout;
    assert!(
        told.contains("clean      4 blocks (16384 bytes) that the disk had are not in it")
            && told.contains("--clean-too"),
        "{told}"
    );
    let salvaged = json(&["salvage", "--pmem", &pair.pmem, "--to", &to("all"), "--clean-too"]);
    assert_eq!((&salvaged["clean_blocks"], &salvaged["clean_too"]), (&4.into(), &true.into()), "{salvaged}");
    let block_of = |name: &str, block: u64| {
        let mut bytes = stamped(0, 0);
        File::open(to(name)).unwrap().read_exact_at(&mut bytes, block * BLOCK).unwrap();
        bytes
    };
    for block in clean {
        assert_eq!((block_of("all", block), block_of("dirty", block)), (stamped(block, 3), vec![0; 4096]));
    }
    pair.spoil(&stamped(11, 3));
    let salvage = run(&["salvage", "--pmem", &pair.pmem, "--to", &to("spoilt"), "--clean-too"]);
    assert!(salvage.code == 3 && salvage.stdout.contains("1 blocks are not in it"), "{}", salvage.stdout);
    for (block, there) in [(10, true), (11, false), (12, true), (700, true)] {
        assert_eq!(block_of("spoilt", block) == stamped(block, 3), there, "block {block}");
    }
}

#[test]
fn a_replay_tells_the_moment_up_to_which_the_disk_has_every_write() {
    let pair = Pair::laid_out(&["--ordered"]);
    let server = pair.serve(&[]);
    let mut client = pair.client();
    let replayed_after_a_flush = |name: &str| {
        assert_eq!(run(&["flush", "--pmem", &pair.pmem, "--wait"]).code, 0);
        let copy = pair.folder.text(name);
        fs::copy(&pair.disk, &copy).unwrap();
        let replayed = json(&["replay", &copy, "--force"]);
        assert!(replayed["last_written_s"].as_i64().unwrap() > 0, "{replayed}");
        replayed["sequence"].as_u64().unwrap()
    };
    write(&mut client, 5, 1);
    let earlier = replayed_after_a_flush("earlier");
    write(&mut client, 6, 1);
    let later = replayed_after_a_flush("later");
    assert!(later > earlier, "{earlier}, {later}");
    drop(server);
    let told = run(&["replay", &pair.disk, "--force"]).stdout;
    assert!(told.contains("moment     number ") && told.contains("what only the region had is lost"), "{told}");
}

#[test]
fn a_disk_that_is_not_there_has_no_region() {
    let folder = Folder::new();
    let disk = folder.text("disk");
    for words in [&["replay", &disk][..], &["replay", &disk, "--force"]] {
        let refused = run(words);
        assert_tells(&refused, REFUSED, &["no such file", &disk]);
        assert!(!refused.stderr.contains("region"), "{}", refused.stderr);
    }
}
