//! Which disk a disk is: one without a name, and a region's own.

use super::*;
use crate::program::ended;

/// The program where no device has a name.
fn where_nothing_has_a_name(arguments: &[&str]) -> Ended {
    let mut hidden = std::process::Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", "mount -t tmpfs none /sys/dev/block && exec \"$@\"", "sh"]);
    ended(hidden.arg(env!("CARGO_BIN_EXE_tidegate")).args(arguments))
}

#[test]
fn a_disk_without_a_name_gets_nothing_that_is_not_its_own() {
    need_root("hide the names of devices");
    let pair = Pair::new();
    let device = |name: &str| {
        let image = pair.folder.text(name);
        File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let device = peer("losetup", &["--find", "--show", &image]).trim().to_owned();
        (image, device.clone(), Undo("losetup", ["--detach".to_owned(), device]))
    };
    let (image, its, _undo) = device("its");
    let (other_image, other, _undo) = device("other");
    let pmem = pair.folder.text("nameless");
    let created = where_nothing_has_a_name(&["create", "--pmem", &pmem, "--disk", &its, "--size", "8M"]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    let told = "the disk has no name, and is told from others by its size and place alone";
    assert!(created.stdout.contains(told), "{}", created.stdout);
    assert_eq!(json(&["info", "--pmem", &pmem])["volume"]["disk_has_name"], false);
    assert_eq!(pair.info()["volume"]["disk_has_name"], true);
    let fill = |turn| {
        let listen = format!("unix:{}", pair.folder.text("s"));
        let mut server = Server::start(&["--pmem", &pmem, "--listen", &listen, "--dirty-percent", "90"]);
        write(&mut pair.client(), 7, turn);
        server.kill();
    };
    let holds = |image: &str| {
        let mut bytes = stamped(0, 0);
        File::open(image).unwrap().read_exact_at(&mut bytes, 7 * BLOCK).unwrap();
        bytes
    };
    fill(1);
    for command in [&["flush"][..], &["detach"], &["resize", "--size", "16M"], &["serve"]] {
        let wrong = where_nothing_has_a_name(&[command, &["--pmem", &pmem, "--disk", &other]].concat());
        assert_tells(&wrong, REFUSED, &["may not be the disk of", "has no serial number", &its, &other, "--force"]);
    }
    assert!(holds(&other_image).iter().all(|byte| *byte == 0));
    assert_eq!(where_nothing_has_a_name(&["flush", "--pmem", &pmem]).code, 0);
    assert_eq!(holds(&image), stamped(7, 1));
    fill(2);
    assert_eq!(where_nothing_has_a_name(&["flush", "--pmem", &pmem, "--disk", &other, "--force"]).code, 0);
    assert_eq!(holds(&other_image), stamped(7, 2));
    assert_eq!(json(&["info", "--pmem", &pmem])["disk"]["disk"], *other, "it is there from now on");
}

#[test]
fn that_a_disk_is_elsewhere_is_said_of_one_that_is_named() {
    let pair = Pair::new();
    for command in [&["detach"][..], &["resize", "--size", "16M"], &["serve"]] {
        let alone = run(&[command, &["--pmem", &pair.pmem, "--force"]].concat());
        assert_tells(&alone, USAGE, &["--disk <DISK>"]);
        let help = run(&[command[0], "--help"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("--force Accept a disk without a serial number at a new path"), "{help}");
        assert!(help.contains("Needs --disk"), "{help}");
    }
}

#[test]
fn what_a_region_has_is_not_salvaged_to_its_own_disk() {
    let pair = Pair::new();
    let mut server = pair.serve(&["--dirty-percent", "90"]);
    write(&mut pair.client(), 9, 2);
    server.kill();
    let salvage = run(&["salvage", "--pmem", &pair.pmem, "--to", &pair.disk, "--force"]);
    assert_tells(&salvage, REFUSED, &["is the disk of", "tidegate flush", "a copy of the disk"]);
    assert!(pair.on_disk(9).iter().all(|byte| *byte == 0));
    assert_eq!(json(&["flush", "--pmem", &pair.pmem])["flushed"], true);
    assert_eq!(pair.on_disk(9), stamped(9, 2));
}

#[test]
fn a_region_that_forgot_its_disk_asks_for_it() {
    let pair = Pair::new();
    let copy = pair.folder.text("copy-of-v");
    // A copy takes no notes along.
    fs::copy(&pair.pmem, &copy).unwrap();
    let forgot = run(&["serve", "--pmem", &copy]);
    assert_tells(&forgot, USAGE, &["the disk of", "is not known", "name it: --disk"]);
}
