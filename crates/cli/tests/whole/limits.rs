//! Limits of the process: what they forbid is refused with the limit's name, and loses nothing.

use crate::disk::{BLOCK, ENVIRONMENT, Pair, assert_tells, read, stamped, write};
use crate::program::{Folder, Server, ended, run};
use std::path::Path;
use std::process::Command;

/// The program under the limit that a shell's `ulimit` sets by these words.
fn limited(ulimit: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit {ulimit} && exec \"$@\"");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_tidegate")]);
    command
}

/// Files of at most 1 MiB, in the blocks of `ulimit -f`.
const MEBIBYTE: &str = "-f 2048";

#[test]
fn a_region_larger_than_a_file_may_be_is_refused_and_leaves_no_file() {
    let folder = Folder::new();
    let pmem = folder.text("v");
    for more in [&[][..], &["--sparse"]] {
        let made = ended(limited(MEBIBYTE).args(["create", "--pmem", &pmem, "--size", "20M"]).args(more));
        assert_tells(&made, ENVIRONMENT, &["may write to a file", "ulimit -f unlimited"]);
        assert!(!Path::new(&pmem).exists(), "{more:?}");
    }
}

#[test]
fn blocks_past_the_limit_on_files_stay_dirty_and_the_server_goes_on() {
    let pair = Pair::new();
    let listen = format!("unix:{}", pair.folder.text("s"));
    let mut server = Server::spawn(limited(MEBIBYTE).args(["serve", "--pmem", &pair.pmem, "--listen", &listen]));
    let mut client = pair.client();
    let blocks = [1, 4000, 5000];
    blocks.into_iter().for_each(|block| write(&mut client, block, 7));
    let flush = ["flush", "--pmem", &pair.pmem, "--wait"];
    assert_tells(&run(&flush), ENVIRONMENT, &["refuses block", "File too large", "ulimit -f unlimited"]);
    assert!(blocks.into_iter().all(|block| read(&mut client, block) == stamped(block, 7)));
    assert_eq!(server.stop().code(), Some(0), "{}", server.said);
    assert_eq!(pair.dirty_bytes(), 2 * BLOCK);
    let unserved = ended(limited(MEBIBYTE).args(flush));
    assert_tells(&unserved, ENVIRONMENT, &["File too large", "ulimit -f unlimited"]);
    assert_eq!(run(&flush).code, 0);
    assert!(blocks.into_iter().all(|block| pair.on_disk(block) == stamped(block, 7)));
}

#[test]
fn a_limit_on_address_space_is_named() {
    let folder = Folder::new();
    let pmem = folder.text("v");
    assert_eq!(run(&["create", "--pmem", &pmem, "--size", "2G", "--sparse"]).code, 0);
    for command in ["check", "serve", "info"] {
        let refused = ended(limited("-v 1000000").args([command, "--pmem", &pmem]));
        assert_tells(&refused, ENVIRONMENT, &["Cannot allocate memory", "ulimit -v unlimited"]);
    }
    let other = folder.text("other");
    let refused = ended(limited("-v 1000000").args(["create", "--pmem", &other, "--size", "2G", "--sparse"]));
    assert_tells(&refused, ENVIRONMENT, &["ulimit -v unlimited"]);
    assert!(!Path::new(&other).exists());
}

#[test]
fn a_limit_on_open_files_is_named() {
    let folder = Folder::new();
    let (pmem, listen) = (folder.volume("v"), format!("unix:{}", folder.text("s")));
    for files in 5..=9 {
        let refused = ended(limited(&format!("-n {files}")).args(["serve", "--pmem", &pmem, "--listen", &listen]));
        assert_tells(&refused, ENVIRONMENT, &["Too many open files", "ulimit -n"]);
    }
}
