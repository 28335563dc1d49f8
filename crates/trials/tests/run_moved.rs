//! Files that get another path under `tidegate run-log`, on a file system of their own. Program and
//! supervisor are killed, and the file system is what its disk had got by then: perhaps not the new
//! path. What was synced since is there after recovery, at that path.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use tidegate_trials::run::{MOVER, Mounted, Testbed, empty_file_system, kill_all};

/// Of the file system.
const IMAGE_BYTES: u64 = 32 << 20;
/// The program changes the path behind its 20th sync, and is killed behind this one: the file is
/// held anew by then, and the file system has not yet had five seconds, after which it makes new
/// paths durable by itself.
const SYNCS: u64 = 60;

/// The number that the file at `bytes` has.
fn number_in(bytes: &[u8]) -> u64 {
    String::from_utf8_lossy(&bytes[100..]).lines().next().unwrap().parse().unwrap()
}

/// One life and its power cut; whether anything only the pool had was brought back.
fn cut(how: &str, path: &str) -> bool {
    let testbed = Testbed::new();
    let (image, copy, root) = (testbed.folder().join("image"), testbed.folder().join("copy"), testbed.root());
    empty_file_system(&image, IMAGE_BYTES);
    let mounted = Mounted::new(&image, &root);
    let mut command = testbed.run();
    command.arg(MOVER.build().unwrap()).arg(how).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut run = command.spawn().unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    for _ in 0..SYNCS {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "{how}: it ended by itself");
    }
    kill_all(&mut run);
    fs::copy(&image, &copy).unwrap();
    said.read_to_string(&mut line).unwrap();
    let last: u64 = line.rsplit_once('\n').unwrap().0.lines().last().unwrap().parse().unwrap();
    drop(mounted);
    let mounted = Mounted::new(&copy, &root);
    testbed.change_boot();
    testbed.leave_files_alone();
    let recovered = testbed.recover().output().unwrap();
    let said = String::from_utf8_lossy(&recovered.stdout).into_owned();
    assert!(recovered.status.success(), "{how}: {said}");
    assert!(number_in(&fs::read(root.join(path)).unwrap()) >= last, "{how}: {said}");
    drop(mounted);
    said.contains("recovered")
}

#[test]
fn what_is_synced_to_a_file_that_got_another_path_is_there_after_the_power_failed() {
    let ways = [
        ("renamed", "from/new"),
        ("moved", "to/new"),
        ("exchanged", "from/other"),
        ("put-over", "from/other"),
        ("folder", "new/file"),
    ];
    let brought_back = ways.into_iter().filter(|(how, path)| cut(how, path)).count();
    println!("of {} files the disk had less than the pool", brought_back);
}
