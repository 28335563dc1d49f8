//! Paths that are no text: every command takes them, and tells them in JSON.

use crate::program::{Ended, Folder, Server, run, tidegate};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

/// Runs the program, which has to succeed, and reads its JSON.
fn answer(arguments: &[&OsStr]) -> Value {
    let output = tidegate().args(arguments).arg("--json").stdin(Stdio::null()).output().unwrap();
    let (code, stdout) = (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap());
    let ended = Ended { code, stdout, stderr: String::from_utf8(output.stderr).unwrap() };
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_volume_and_a_disk_whose_names_are_no_text() {
    let folder = Folder::new();
    let name = |end: &[u8]| -> OsString { folder.0.path().join(OsStr::from_bytes(end)).into() };
    let (pmem, disk, socket) = (&name(b"v\xff"), &name(b"disk\xfe"), folder.path("s"));
    File::create(disk).unwrap().set_len(32 << 20).unwrap();
    let word = |text: &'static str| OsStr::new(text);
    let bytes = |path: &OsStr| json!(path.as_bytes());
    let about = [word("--pmem"), pmem];
    let made = answer(&[&[word("create"), word("--size"), word("8M"), word("--disk"), disk], &about[..]].concat());
    assert_eq!((&made["created"]["file"], &made["disk"]), (&bytes(pmem), &bytes(disk)));
    assert_eq!(answer(&[&[word("check")], &about[..]].concat())["file"], bytes(pmem));
    let listen = format!("unix:{}", socket.display());
    let mut server = Server::spawn(tidegate().arg("serve").args(about).args(["--listen", &listen]));
    let named = |command, more: &[&'static str]| {
        let more: Vec<_> = more.iter().map(OsStr::new).collect();
        answer(&[&[word(command)], &about[..], &more].concat())
    };
    assert_eq!(named("info", &[])["disk"]["disk"], bytes(disk));
    assert_eq!(named("stat", &[])["volumes"][0]["file"], bytes(pmem));
    assert_eq!(named("mode", &["write-through"])["mode"], "write-through");
    assert_eq!(named("flush", &["--wait"])["served"], true);
    assert_eq!(named("scrub", &[])["served"], true);
    assert_eq!(named("detach", &[])["served"], true);
    assert!(server.stop().success(), "{}", server.said);
}

#[test]
fn a_server_whose_path_has_an_end_of_line_is_found_and_told_in_one_line() {
    let folder = Folder::new();
    let (pmem, socket) = (folder.volume("a\nb"), folder.text("s"));
    let mut server = Server::start(&["--pmem", &pmem, "--listen", &format!("unix:{socket}")]);
    let list = run(&["list"]).stdout;
    let told = list.lines().find(|line| line.contains(&format!("process {} of", server.pid()))).unwrap();
    assert!(told.contains("asked on") && told.ends_with("a\\nb.control"), "{told}");
    assert!(list.lines().any(|line| line.trim_start().starts_with("volume") && line.contains("a\\nb in /")), "{list}");
    server.hear_or_heard("a\\nb.control");
    assert!(!server.said.lines().any(|line| line.starts_with('b')), "{}", server.said);
    let stop = run(&["stop", &pmem]);
    assert_eq!(stop.code, 0, "{}{}", stop.stdout, stop.stderr);
    assert!(server.wait().success());
}
