//! Mirrors that are refused: they change nothing, and tell what to do.

use crate::disk::{REFUSED, USAGE, assert_tells};
use crate::program::{Folder, Server, run};
use std::fs;

#[test]
fn a_refused_mirror_leaves_no_file_that_it_made() {
    let folder = Folder::new();
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (pmem, absent) = (folder.text("v"), in_memory.path().join("absent"));
    let empty = in_memory.path().join("empty");
    fs::write(&empty, "").unwrap();
    for twin in [&absent, &empty] {
        let refused = run(&["create", "--pmem", &pmem, "--mirror", twin.to_str().unwrap(), "--size", "20M"]);
        assert_tells(&refused, REFUSED, &["do not survive the same failures"]);
        assert!(!folder.path("v").exists() && !absent.exists());
        assert_eq!(fs::read(&empty).unwrap(), b"");
    }
}

#[test]
fn two_names_of_one_file_are_no_two_sides() {
    let folder = Folder::new();
    let [one, other, link] = ["one", "other", "link"].map(|name| folder.text(name));
    let make = ["create", "--pmem", &one, "--mirror", &other, "--size", "20M"];
    assert_eq!(run(&make).code, 0);
    fs::hard_link(&one, &link).unwrap();
    for command in [&["serve"][..], &["rebuild"], &["rebuild", "--force"], &["create", "--force", "--size", "20M"]] {
        let refused = run(&[command, &["--pmem", &one, "--mirror", &link]].concat());
        assert_tells(&refused, USAGE, &["cannot be both sides of a mirror"]);
    }
}

#[test]
fn an_empty_side_is_missing_until_it_is_rebuilt() {
    let folder = Folder::new();
    let [one, other] = ["one", "other"].map(|name| folder.text(name));
    assert_eq!(run(&["create", "--pmem", &one, "--mirror", &other, "--size", "20M"]).code, 0);
    fs::write(&other, "").unwrap();
    let both = ["--pmem", &one, "--mirror", &other];
    let rebuild = format!("tidegate rebuild --pmem {one} --mirror {other}");
    assert_tells(&run(&[&["check"][..], &both].concat()), REFUSED, &["the file is empty", &rebuild]);
    let rebuilt = run(&[&["rebuild"][..], &both].concat());
    assert_eq!(rebuilt.code, 0, "{}", rebuilt.stderr);
    assert_eq!(run(&[&["check"][..], &both].concat()).code, 0);
}

#[test]
fn a_mirrored_cache_that_was_detached_gets_a_disk_again_without_a_server() {
    let folder = Folder::new();
    let [one, other, disk, socket] = ["one", "other", "disk", "socket"].map(|name| folder.text(name));
    fs::File::create(&disk).and_then(|file| file.set_len(8 << 20)).unwrap();
    let both = ["--pmem", &one, "--mirror", &other];
    assert_eq!(run(&[&["create", "--size", "4M", "--disk", &disk][..], &both].concat()).code, 0);
    let listen = format!("unix:{socket}");
    let mut server = Server::start(&[&["--listen", &listen][..], &both].concat());
    assert_eq!(run(&["detach", "--pmem", &one]).code, 0);
    assert_eq!(server.stop().code(), Some(0));
    assert_tells(&run(&[&["serve"][..], &both].concat()), REFUSED, &["has no disk", "attach", "--mirror FILE"]);
    assert_tells(&run(&["attach", "--pmem", &one, "--disk", &disk]), REFUSED, &["one side of a mirror"]);
    let attached = run(&[&["attach", "--disk", &disk][..], &both].concat());
    assert_eq!(attached.code, 0, "{}", attached.stderr);
    assert!(attached.stdout.contains(&format!("next: tidegate serve --pmem {one} --mirror {other} --disk {disk}")));
    let mut server = Server::start(&[&["--listen", &listen][..], &both].concat());
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(run(&[&["check"][..], &both].concat()).code, 0);
}
