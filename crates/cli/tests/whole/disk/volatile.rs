//! Regions in front of a disk whose memory a power loss empties: completed writes lie only there if
//! somebody asked for that by name, and then it is told.

use super::{DISK_BYTES, Pair, REFUSED, assert_tells, stamped, write};
use crate::program::{Folder, Server, json, run};
use std::fs::{self, File};
use tempfile::TempDir;

const BY_NAME: &str = "--accept-volatile";

/// A folder for a disk, and another in memory.
struct Places {
    on_disk: Folder,
    in_memory: TempDir,
}

impl Places {
    fn new() -> Places {
        let places = Places { on_disk: Folder::new(), in_memory: tempfile::tempdir_in("/dev/shm").unwrap() };
        File::create(places.on_disk.path("disk")).unwrap().set_len(DISK_BYTES).unwrap();
        places
    }

    /// A region in memory, made as somebody asked for by name.
    fn pair(&self, options: &[&str]) -> Pair {
        let (pmem, disk) = (self.region(), self.on_disk.text("disk"));
        let create = ["create", "--pmem", &pmem, "--disk", &disk, "--size", "8M", BY_NAME];
        let made = run(&[&create, options].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
        assert!(made.stderr.contains("WARN") && made.stderr.contains("empties the region"), "{}", made.stderr);
        Pair { folder: Folder::new(), pmem, disk }
    }

    fn region(&self) -> String {
        self.in_memory.path().join("v").to_str().unwrap().to_owned()
    }
}

#[test]
fn a_region_that_a_power_loss_empties_is_made_only_by_name_and_nothing_is_changed_before() {
    let places = Places::new();
    let (pmem, disk) = (places.region(), places.on_disk.text("disk"));
    let create = ["create", "--pmem", &pmem, "--disk", &disk, "--size", "8M"];
    let phrases =
        ["memory that a power loss empties", "write-back", "/mnt/pmem/", BY_NAME, "--disk-mode write-through"];
    for options in [&[][..], &["--ordered"], &["--checksums"]] {
        assert_tells(&run(&[&create, options].concat()), REFUSED, &phrases);
        assert!(!fs::exists(&pmem).unwrap());
    }
    File::create(&pmem).unwrap();
    assert_tells(&run(&create), REFUSED, &phrases);
    assert_eq!(fs::metadata(&pmem).unwrap().len(), 0);
    fs::write(&pmem, stamped(1, 1)).unwrap();
    for size in ["8M", "4096"] {
        let forced = run(&["create", "--pmem", &pmem, "--disk", &disk, "--size", size, "--force"]);
        assert_ne!(forced.code, 0);
        assert_eq!(fs::read(&pmem).unwrap(), stamped(1, 1), "it is what it was");
    }
    fs::remove_file(&pmem).unwrap();
    let alone = run(&["create", "--pmem", &pmem, "--size", "32M"]);
    assert_eq!((alone.code, alone.stderr.as_str()), (0, ""), "without a disk none is left out of date");
}

#[test]
fn it_is_served_by_the_modes_that_wait_for_the_disk_and_by_others_only_by_name() {
    let places = Places::new();
    let pair = places.pair(&[]);
    let risk = || pair.info()["disk"]["risk"].as_str().map(str::to_owned);
    for options in [&[][..], &["--disk-mode", "write-only"]] {
        let serve = run(&[&["serve", "--pmem", &pair.pmem], options].concat());
        assert_tells(&serve, REFUSED, &["memory that a power loss empties", "--disk-mode write-through", BY_NAME]);
    }
    assert!(risk().unwrap().contains("empties the region"));
    let mut server = pair.serve(&["--disk-mode", "write-through"]);
    assert!(!server.said.contains("empties the region"), "{}", server.said);
    assert_eq!(risk(), None);
    write(&mut pair.client(), 1, 1);
    assert_eq!(pair.on_disk(1), stamped(1, 1));
    let mode = |options: &[&str], mode| run(&[&["mode", "--pmem", &pair.pmem], options, &[mode]].concat());
    for ahead in ["write-back", "write-only"] {
        let phrases = ["the running server refuses", "would be lost", "write-through", BY_NAME];
        assert_tells(&mode(&[], ahead), REFUSED, &phrases);
    }
    assert_eq!(mode(&[], "pass-through").code, 0);
    let by_name = mode(&[BY_NAME], "write-back");
    assert!(by_name.code == 0 && by_name.stderr.contains("empties the region"), "{}", by_name.stderr);
    server.hear("empties the region");
    assert!(risk().unwrap().contains("flushed ones too"));
    assert_eq!(mode(&[], "write-through").code, 0);
    assert_tells(&mode(&[], "write-back"), REFUSED, &["would be lost"]);
    assert!(server.stop().success());
    let mut server = pair.serve(&["--read-only"]);
    assert!(server.stop().success());
    let mut server = pair.serve(&[BY_NAME]);
    server.hear_or_heard("WARN");
    assert!(server.said.contains("at risk"), "{}", server.said);
    assert_eq!([mode(&[], "write-through").code, mode(&[], "write-back").code], [0, 0], "it was started by name");
    assert!(server.stop().success());
    let config = pair.folder.text("c.toml");
    let listen = pair.folder.text("s");
    for (key, code) in [("", REFUSED), ("accept_volatile = true\n", 0)] {
        fs::write(&config, format!("listen = [\"unix:{listen}\"]\n[[volume]]\npmem = \"{}\"\n{key}", pair.pmem))
            .unwrap();
        if code == 0 {
            assert!(Server::start(&["--config", &config]).stop().success());
        } else {
            assert_tells(&run(&["serve", "--config", &config]), code, &["accept_volatile = true"]);
        }
    }
}

#[test]
fn it_gets_another_disk_only_by_name() {
    let places = Places::new();
    let pair = places.pair(&[]);
    assert_eq!(run(&["detach", "--pmem", &pair.pmem]).code, 0);
    let attach = |options: &[&str]| run(&[&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk], options].concat());
    assert_tells(&attach(&[]), REFUSED, &["memory that a power loss empties", BY_NAME]);
    let by_name = attach(&[BY_NAME]);
    assert!(by_name.code == 0 && by_name.stderr.contains("empties the region"), "{}", by_name.stderr);
    // A running server goes on by the mode that it has.
    let mut server = pair.serve(&["--disk-mode", "write-through"]);
    json(&["mode", "--pmem", &pair.pmem, "write-back", BY_NAME]);
    json(&["detach", "--pmem", &pair.pmem]);
    assert_tells(&attach(&[]), REFUSED, &["the running server refuses", "would be lost"]);
    assert_eq!(attach(&[BY_NAME]).code, 0);
    assert!(server.stop().success());
}

#[test]
fn what_an_ordered_disk_and_a_file_lose_is_told_in_their_own_words() {
    let places = Places::new();
    let pair = places.pair(&["--ordered"]);
    assert_tells(&run(&["serve", "--pmem", &pair.pmem]), REFUSED, &["would lack the last writes", BY_NAME]);
    let shown = run(&["info", "--pmem", &pair.pmem]).stdout;
    assert!(shown.contains("at risk") && shown.contains("tidegate replay"), "{shown}");
    let power = |pair: &Pair| {
        let info = pair.info();
        let contract = info["volume"]["contract"].as_array().unwrap().clone();
        let row = contract.into_iter().find(|row| row["event"] == "power loss, kernel crash").unwrap();
        row["flushed"].as_str().unwrap().to_owned()
    };
    assert_eq!(power(&pair), "kept up to a moment");
    let plain = Places::new();
    assert_eq!(power(&plain.pair(&[])), "lost if dirty");
    let file = Pair::new();
    assert_eq!(power(&file), "no promise");
    assert!(file.info()["disk"]["risk"].as_str().unwrap().contains("nothing is promised"), "{}", file.info());
    let mut server = file.serve(&[]);
    server.hear_or_heard("nothing is promised");
    assert!(server.stop().success());
}
