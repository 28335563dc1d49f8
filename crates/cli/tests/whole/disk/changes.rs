//! Changes of a served disk that are cut short, or come at once.

use super::*;
use crate::program::PATIENCE;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;
use tidegate_media::{Access, MappedRegion};

/// A command that is on its way.
fn begun(arguments: &[&str]) -> Child {
    let mut command = tidegate();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Looks at the disk until it is `as_wished`.
#[track_caller]
fn look_until(pair: &Pair, mut as_wished: impl FnMut(&Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let disk = &pair.info()["disk"];
        if as_wished(disk) {
            return;
        }
        assert!(Instant::now() < deadline, "in vain: {disk}");
    }
}

#[test]
fn a_client_that_is_killed_leaves_the_mode_as_it_was() {
    let pair = Pair::new();
    let mut server = pair.serve(&["--dirty-age", "3600"]);
    let mut client = pair.client();
    for (turn, size) in [(1, "6M"), (2, "16M"), (3, "7M")] {
        for arguments in [&["detach"][..], &["resize", "--size", size]] {
            (0..900).for_each(|block| write(&mut client, block, turn));
            let mut child = begun(&[arguments, &["--pmem", &pair.pmem]].concat());
            // It has begun, or is over already.
            look_until(&pair, |disk| disk["mode"] != "write-back" || !child.try_wait().is_ok_and(|end| end.is_none()));
            child.kill().unwrap();
            child.wait().unwrap();
            look_until(&pair, |disk| disk["mode"] == "write-back" || disk["attached"] != true);
            if pair.info()["disk"]["attached"] != true {
                // The server may still find out that nobody hears it, and undo what it did.
                let attach = run(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
                let undone = attach.stderr.contains("has a disk already");
                assert!(attach.code == 0 || undone, "{}", attach.stderr);
                look_until(&pair, |disk| disk["mode"] == "write-back" && disk["attached"] == true);
            }
            (0..900).step_by(37).for_each(|block| assert_eq!(read(&mut client, block), stamped(block, turn)));
        }
    }
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
}

/// A server that opens its region anew answers afterwards.
#[test]
fn whoever_asks_a_server_about_its_disk_does_not_keep_the_region_from_it() {
    let pair = Pair::new();
    let control = UnixListener::bind(format!("{}.control", pair.pmem)).unwrap();
    let mut look = begun(&["info", "--pmem", &pair.pmem]);
    let (asked, _) = control.accept().unwrap();
    let opened = MappedRegion::open(Path::new(&pair.pmem), Access::ReadWrite);
    assert!(opened.is_ok(), "{:?}", opened.err());
    drop((opened, asked));
    assert!(look.wait().unwrap().success());
}

#[test]
fn of_two_changes_at_once_one_is_made_and_the_mode_is_as_it_was() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    (0..900).for_each(|block| write(&mut client, block, 1));
    let resizes = ["6M", "16M"].map(|size| begun(&["resize", "--pmem", &pair.pmem, "--size", size]));
    let ends = resizes.map(|child| child.wait_with_output().unwrap());
    let refused = |end: &std::process::Output| String::from_utf8_lossy(&end.stderr).contains("is being changed");
    // Either may come first; on a slow machine the second finds the first one over.
    assert!(ends.iter().any(|end| end.status.success()), "{ends:?}");
    assert!(ends.iter().all(|end| end.status.success() || refused(end)), "{ends:?}");
    let disk = &pair.info()["disk"];
    assert_eq!((disk["mode"].as_str(), disk["attached"].as_bool()), (Some("write-back"), Some(true)), "{disk}");
    let bytes = fs::metadata(&pair.pmem).unwrap().len();
    assert!([6 << 20, 16 << 20].contains(&bytes), "{bytes}");
    (0..900).for_each(|block| assert_eq!(read(&mut client, block), stamped(block, 1)));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_server_that_ends_amid_a_change_ends_in_good_order() {
    let pair = Pair::new();
    for (turn, arguments) in (1..).zip([&["detach"][..], &["resize", "--size", "6M"], &["resize", "--size", "16M"]]) {
        let mut server = pair.serve(&["--dirty-age", "3600"]);
        let mut client = pair.client();
        (0..900).for_each(|block| write(&mut client, block, turn));
        drop(client);
        let mut child = begun(&[arguments, &["--pmem", &pair.pmem]].concat());
        look_until(&pair, |disk| disk["mode"] != "write-back" || !child.try_wait().is_ok_and(|end| end.is_none()));
        assert_eq!(server.stop().code(), Some(0));
        let end = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&end.stderr);
        assert!(end.status.success() || told.contains("stays as it was"), "{told}");
        assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
        if arguments == ["detach"] && end.status.success() {
            json(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]);
        }
        let mut server = pair.serve(&[]);
        let mut client = pair.client();
        (0..900).for_each(|block| assert_eq!(read(&mut client, block), stamped(block, turn)));
        assert_eq!(pair.info()["disk"]["mode"], "write-back");
        assert_eq!(server.stop().code(), Some(0));
    }
}

#[test]
fn a_region_that_a_killed_server_left_longer_than_its_cache_is_served() {
    let pair = Pair::new();
    let mut server = pair.serve(&[]);
    write(&mut pair.client(), 7, 1);
    server.kill();
    let had = pair.info()["volume"]["cached_blocks"].as_u64();
    File::options().write(true).open(&pair.pmem).unwrap().set_len(24 << 20).unwrap();
    assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    assert_eq!((read(&mut client, 7), pair.info()["volume"]["cached_blocks"].as_u64()), (stamped(7, 1), had));
    assert_eq!(run(&["resize", "--pmem", &pair.pmem, "--size", "24M"]).code, 0);
    assert!(pair.info()["volume"]["cached_blocks"].as_u64() > had);
    assert_eq!(read(&mut client, 7), stamped(7, 1));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn whoever_is_killed_amid_a_resize_leaves_a_region_that_is_sound_and_has_everything() {
    for options in [&[][..], &["--ordered"]] {
        let pair = Pair::laid_out(options);
        for (turn, (size, served)) in (1..).zip([("6M", true), ("7M", true), ("5M", false), ("8M", false)]) {
            let mut server = pair.serve(&["--dirty-age", "3600"]);
            let mut client = pair.client();
            (0..900).for_each(|block| write(&mut client, block, turn));
            let resize = ["resize", "--pmem", &pair.pmem, "--size", size];
            let mut child = if served {
                let mut child = begun(&resize);
                let over = |child: &mut Child| !child.try_wait().is_ok_and(|end| end.is_none());
                look_until(&pair, |disk| disk["mode"] == "write-through" || over(&mut child));
                server.kill();
                child
            } else {
                server.kill();
                let mut child = begun(&resize);
                // It has the region, or is over already.
                let deadline = Instant::now() + PATIENCE;
                while pair.info()["in_use"] != true && child.try_wait().is_ok_and(|end| end.is_none()) {
                    assert!(Instant::now() < deadline, "it does not begin");
                }
                child.kill().unwrap();
                child
            };
            child.wait().unwrap();
            assert_eq!(json(&["check", "--pmem", &pair.pmem])["sound"], true);
            let mut server = pair.serve(&[]);
            let mut client = pair.client();
            (0..900).for_each(|block| assert_eq!(read(&mut client, block), stamped(block, turn)));
            drop(client);
            assert_eq!(server.stop().code(), Some(0));
        }
    }
}
