//! Regions and disks of other sizes: what is possible, what it costs, and what is refused before
//! anything is done.

use super::*;

/// A region that no server uses, with block 9, which is clean, and 7, which is dirty unless its
/// server found the time.
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
        let dirty = pair.dirty_bytes();
        let smallest = |ended: &Ended| {
            assert_tells(ended, USAGE, &["too small", "use --size"]);
            let words = ended.stderr.split_whitespace().collect::<Vec<_>>();
            let at = words.iter().position(|word| *word == "--size").unwrap();
            words[at + 1].parse::<u64>().unwrap()
        };
        let refused = || run(&["resize", "--pmem", &pair.pmem, "--size", "1M"]);
        let least = smallest(&refused());
        assert_eq!((held(&pair), pair.dirty_bytes()), (had, dirty), "{options:?}");
        let mut server = pair.serve(&["--dirty-percent", "90", "--dirty-age", "3600"]);
        assert_tells(&refused(), USAGE, &["too small", &format!("use --size {least} or more")]);
        assert_eq!((held(&pair), pair.info()["disk"]["mode"].as_str()), (had, Some("write-back")), "{options:?}");
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
fn a_volume_of_its_own_keeps_its_size_and_is_copied_to_a_larger_one() {
    let folder = Folder::new();
    let [pmem, larger] = ["v", "larger"].map(|name| folder.text(name));
    for (region, size) in [(&pmem, "17M"), (&larger, "32M")] {
        assert_eq!(run(&["create", "--pmem", region, "--size", size]).code, 0);
    }
    let resize = |more: &[&str]| run(&[&["resize", "--pmem", &pmem], more].concat());
    let told = ["keeps its size", "only one of 512 GiB", "tidegate create", "nbdcopy"];
    let serve = |region: &str, name: &str| {
        Server::start(&["--pmem", region, "--listen", &format!("unix:{}", folder.text(name))])
    };
    let refused = || {
        for wish in [&["--size", "32M"][..], &["--size", "4K"], &["--to-disk"]] {
            assert_tells(&resize(wish), REFUSED, &told);
        }
        assert_eq!(fs::metadata(&pmem).unwrap().len(), 17 << 20);
    };
    refused();
    let servers = [serve(&pmem, "s"), serve(&larger, "t")];
    write(&mut Server::client(&folder.path("s")), 7, 1);
    refused();
    let [from, to] = ["s", "t"].map(|name| format!("nbd+unix:///?socket={}", folder.text(name)));
    peer("nbdcopy", &[&from, &to]);
    assert_eq!(read(&mut Server::client(&folder.path("t")), 7), stamped(7, 1));
    servers.into_iter().for_each(|mut server| assert_eq!(server.stop().code(), Some(0)));
}

#[test]
fn a_region_that_got_shorter_beside_its_cache_is_detached() {
    let pair = Pair::new();
    File::options().write(true).open(&pair.pmem).unwrap().set_len(24 << 20).unwrap();
    let mut server = pair.serve(&[]);
    write(&mut pair.client(), 7, 1);
    assert_eq!((changed(&resize(&pair, "8M")).as_str(), held(&pair)[1]), ("file", 8 << 20));
    json(&["detach", "--pmem", &pair.pmem]);
    json(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
    assert_eq!((read(&mut pair.client(), 7), held(&pair)[1]), (stamped(7, 1), 8 << 20));
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
}

/// Makes the disk longer, as `truncate` does.
fn lengthen_disk(pair: &Pair, bytes: u64) {
    File::options().write(true).open(&pair.disk).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_disk_that_has_grown_is_told_and_its_volume_grows() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    write(&mut pair.client(), 7, 1);
    assert_eq!(server.stop().code(), Some(0));
    json(&["flush", "--pmem", &pair.pmem]);
    let grow = || run(&["resize", "--pmem", &pair.pmem, "--to-disk"]);
    assert!(grow().stdout.contains("as large as its disk, 32 MiB"), "{}", grow().stdout);
    assert_eq!(json(&["info", "--pmem", &pair.pmem])["disk_grown"], Value::Null);
    let bytes = DISK_BYTES + (5 << 20) + 4096;
    lengthen_disk(&pair, bytes + 100);
    let told = format!("the disk has {} bytes", bytes + 100);
    let way = format!("tidegate resize --pmem {} --to-disk", pair.pmem);
    let info = run(&["info", "--pmem", &pair.pmem]).stdout;
    assert!(info.contains(&told) && info.contains(&way), "{info}");
    let mut server = pair.serve(&[]);
    assert_eq!(pair.info()["disk_grown"]["disk_bytes"].as_u64(), Some(bytes + 100));
    let mut client = pair.client();
    assert_eq!((client.bytes(), read(&mut client, 7)), (DISK_BYTES, stamped(7, 1)));
    write(&mut client, 8, 2);
    assert_tells(&grow(), IN_USE, &["is in use"]);
    drop(client);
    assert_eq!(server.stop().code(), Some(0));
    let grown = json(&["resize", "--pmem", &pair.pmem, "--to-disk"]);
    assert_eq!((grown["was_bytes"].as_u64(), grown["volume_bytes"].as_u64()), (Some(DISK_BYTES), Some(bytes)));
    assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
    assert!(grow().stdout.contains("unchanged"), "{}", grow().stdout);
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    assert_eq!((client.bytes(), pair.info()["disk_grown"].is_null()), (bytes, true));
    assert_eq!([7, 8].map(|block| read(&mut client, block)), [stamped(7, 1), stamped(8, 2)]);
    let last = bytes / BLOCK - 1;
    write(&mut client, last, 3);
    assert_eq!(server.stop().code(), Some(0));
    json(&["flush", "--pmem", &pair.pmem]);
    assert_eq!(pair.on_disk(last), stamped(last, 3));
}

#[test]
fn an_ordered_disk_that_has_grown_is_told_the_way_which_works() {
    let pair = Pair::laid_out(&["--ordered"]);
    let mut server = pair.serve(&[]);
    write(&mut pair.client(), 7, 1);
    let had = pair.client().bytes();
    assert_eq!(server.stop().code(), Some(0));
    json(&["flush", "--pmem", &pair.pmem]);
    lengthen_disk(&pair, DISK_BYTES + (5 << 20));
    let detach = format!("tidegate detach --pmem {}", pair.pmem);
    let attach = format!("tidegate attach --pmem {} --disk {}", pair.pmem, pair.disk);
    let grow = || run(&["resize", "--pmem", &pair.pmem, "--to-disk"]);
    assert_tells(&grow(), REFUSED, &["keeps its size", "has its journal at its end", &detach, &attach]);
    let info = run(&["info", "--pmem", &pair.pmem]).stdout;
    assert!(info.contains(&detach) && info.contains("does not find the journal"), "{info}");
    let mut server = pair.serve(&[]);
    assert_eq!((pair.client().bytes(), read(&mut pair.client(), 7)), (had, stamped(7, 1)));
    write(&mut pair.client(), 8, 2);
    assert_eq!(server.stop().code(), Some(0));
    json(&["detach", "--pmem", &pair.pmem]);
    json(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
    let _server = pair.serve(&[]);
    assert_eq!((pair.client().bytes(), pair.info()["disk_grown"].is_null()), (had + (5 << 20), true));
    assert_eq!([7, 8].map(|block| read(&mut pair.client(), block)), [stamped(7, 1), stamped(8, 2)]);
    assert!(grow().code == IN_USE);
}

#[test]
fn a_region_without_room_to_grow_is_told_and_stays_as_it_was() {
    // tmpfs knows its limit beforehand: nothing is allocated on the way.
    let folder = Folder(tempfile::tempdir_in("/dev/shm").unwrap());
    let disk = folder.text("disk");
    let pair = Pair::made(folder, disk, &["--accept-volatile"]);
    let resize = || run(&["resize", "--pmem", &pair.pmem, "--size", "2P"]);
    assert_tells(&resize(), ENVIRONMENT, &["stays as it was", "no room for", "smaller --size"]);
    let mut server = pair.serve(&["--accept-volatile"]);
    let mut client = pair.client();
    write(&mut client, 9, 2);
    assert_tells(&resize(), ENVIRONMENT, &["the running server refuses", "stays as it was", "smaller --size"]);
    assert_eq!(read(&mut client, 9), stamped(9, 2));
    write(&mut client, 9, 3);
    assert!(server.stop().success());
    assert_eq!(pair.info()["volume"]["region_bytes"], 8 << 20);
    assert_eq!(fs::metadata(&pair.pmem).unwrap().len(), 8 << 20);
}
