//! Regions and disks of other sizes: what is possible, what it costs, and what is refused before anything is done.

use super::*;

/// A region with a dirty block, 7, and a clean one, 9, that no server uses.
fn used(options: &[&str]) -> Pair {
    let pair = Pair::laid_out(options);
    let mut server = pair.serve(&["--dirty-percent", "90", "--dirty-age", "3600"]);
    write(&mut pair.client(), 7, 1);
    read(&mut pair.client(), 9);
    server.kill();
    pair
}

/// Bytes that the region holds of the disk, and how long its file is.
fn held(pair: &Pair) -> [u64; 2] {
    let disk = &pair.info()["disk"];
    let bytes = |name: &str| disk[name].as_u64().unwrap();
    [bytes("dirty_bytes") + bytes("clean_bytes"), fs::metadata(&pair.pmem).unwrap().len()]
}

fn resize(pair: &Pair, size: &str) -> Ended {
    run(&["--json", "resize", "--pmem", &pair.pmem, "--size", size])
}

fn changed(ended: &Ended) -> String {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    serde_json::from_str::<Value>(&ended.stdout).unwrap()["changed"].as_str().unwrap().to_owned()
}

#[test]
fn a_region_that_would_be_too_small_is_refused_before_anything_is_done() {
    for options in [&[][..], &["--ordered"], &["--checksums"], &["--block", "512"]] {
        let pair = used(options);
        let had = held(&pair);
        // An ordered disk gets what is dirty soon, whoever asks.
        let keeps_its_dirty_block = || options == ["--ordered"] || pair.dirty_bytes() > 0;
        let smallest = |ended: &Ended| {
            assert_tells(ended, USAGE, &["too small", "use --size"]);
            let words = ended.stderr.split_whitespace().collect::<Vec<_>>();
            let at = words.iter().position(|word| *word == "--size").unwrap();
            words[at + 1].parse::<u64>().unwrap()
        };
        let refused = || run(&["resize", "--pmem", &pair.pmem, "--size", "1M"]);
        let least = smallest(&refused());
        assert!(held(&pair) == had && keeps_its_dirty_block(), "{options:?}");
        let mut server = pair.serve(&["--dirty-percent", "90", "--dirty-age", "3600"]);
        assert_tells(&refused(), USAGE, &["too small", &format!("use --size {least} or more")]);
        assert_eq!((held(&pair), pair.info()["disk"]["mode"].as_str()), (had, Some("write-back")), "{options:?}");
        assert!(keeps_its_dirty_block(), "{options:?}");
        assert_eq!(server.stop().code(), Some(0));
        assert_eq!(smallest(&run(&["resize", "--pmem", &pair.pmem, "--size", &(least - 4096).to_string()])), least);
        assert_eq!(changed(&resize(&pair, &least.to_string())), "cache");
        assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
        let _server = pair.serve(&[]);
        assert_eq!(read(&mut pair.client(), 7), stamped(7, 1), "{options:?}");
    }
}

#[test]
fn a_size_that_changes_nothing_drops_nothing() {
    for options in [&[][..], &["--ordered"]] {
        let pair = used(options);
        let had = held(&pair);
        let same = || run(&["resize", "--pmem", &pair.pmem, "--size", "8M"]);
        assert!(same().stdout.contains("has 8 MiB already, and keeps what it holds"), "{}", same().stdout);
        assert_eq!((changed(&resize(&pair, "8M")).as_str(), held(&pair)), ("nothing", had));
        let mut server = pair.serve(&["--dirty-percent", "90", "--dirty-age", "3600"]);
        assert_eq!((changed(&resize(&pair, "8M")).as_str(), held(&pair)), ("nothing", had));
        assert_eq!(pair.info()["disk"]["mode"], "write-back");
        assert_eq!(server.stop().code(), Some(0));
        assert_eq!(held(&pair), had);
    }
}

#[test]
fn a_cache_that_has_room_for_no_more_blocks_keeps_what_it_holds() {
    // The journal has room for no more, be the region ever so large.
    let pair = used(&["--ordered"]);
    let [cached, _] = held(&pair);
    for (served, sizes) in [(false, [16, 12]), (true, [20, 9])] {
        let server = served.then(|| pair.serve(&["--dirty-percent", "90", "--dirty-age", "3600"]));
        for mib in sizes {
            let ended = resize(&pair, &format!("{mib}M"));
            assert_eq!((changed(&ended).as_str(), held(&pair)), ("file", [cached, mib << 20]));
        }
        drop(server);
        assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
    }
    // Back to what it was, and smaller: from there on the blocks are fewer.
    let mut server = pair.serve(&["--dirty-percent", "90", "--dirty-age", "3600"]);
    assert_eq!((changed(&resize(&pair, "8M")).as_str(), held(&pair)), ("file", [cached, 8 << 20]));
    let mut client = pair.client();
    assert_eq!(changed(&resize(&pair, "12M")), "file");
    write(&mut client, 8, 2);
    assert_eq!(changed(&resize(&pair, "6M")), "cache");
    assert_eq!(changed(&resize(&pair, "32M")), "cache");
    assert_eq!([7, 8].map(|block| read(&mut client, block)), [stamped(7, 1), stamped(8, 2)]);
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
}

#[test]
fn a_region_without_room_to_grow_is_told_and_stays_as_it_was() {
    // tmpfs knows its limit beforehand: nothing is allocated on the way.
    let folder = Folder(tempfile::tempdir_in("/dev/shm").unwrap());
    let disk = folder.text("disk");
    let pair = Pair::over(folder, disk);
    let resize = || run(&["resize", "--pmem", &pair.pmem, "--size", "2P"]);
    assert_tells(&resize(), ENVIRONMENT, &["stays as it was", "no room for", "smaller --size"]);
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    write(&mut client, 9, 2);
    assert_tells(&resize(), ENVIRONMENT, &["the running server refuses", "stays as it was", "smaller --size"]);
    assert_eq!(read(&mut client, 9), stamped(9, 2));
    write(&mut client, 9, 3);
    assert!(server.stop().success());
    assert_eq!(pair.info()["volume"]["region_bytes"], 8 << 20);
    assert_eq!(fs::metadata(&pair.pmem).unwrap().len(), 8 << 20);
}
