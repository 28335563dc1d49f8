//! Clients that other people wrote: libnbd's and QEMU's, over a unix socket.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod porous;

use porous::Porous;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use tempfile::TempDir;
use tidegate_block_export::Export;
use tidegate_nbd::{Exports, Service, serve};
use tidegate_nbd_client::ram::Ram;

const DEVICE_BYTES: usize = 24 << 20;

/// A server of `ram` (writable, the default), `porous` (with holes) and `frozen` (not writable), as
/// long as the test runs.
struct Server {
    folder: TempDir,
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let service = Arc::new(Service::plain(
            Exports::new(vec![
                Export::new("ram", "memory of a test", Arc::new(Ram::new(4096, DEVICE_BYTES as u64 / 4096))),
                Export::new("porous", "holes of a test", Arc::new(Porous::new(2048, true))),
                Export::new("frozen", "zeroes for ever", Arc::new(Ram::read_only(512, 2048))),
            ])
            .unwrap(),
        ));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let service = Arc::clone(&service);
                thread::spawn(move || serve(&service, &stream.unwrap()));
            }
        });
        Server { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.path("socket").display())
    }

    /// A file of bytes that do not repeat at any block size.
    fn file_of_noise(&self, name: &str) -> PathBuf {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = (0..DEVICE_BYTES / 8).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let path = self.path(name);
        fs::write(&path, words.collect::<Vec<u8>>()).unwrap();
        path
    }
}

/// Runs a program and returns what it printed, whether or not it succeeded.
fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("{program}: {error}; install it by `apt-get install libnbd-bin qemu-utils`");
    });
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn run_well(program: &str, arguments: &[&str]) -> String {
    let (good, text) = run(program, arguments);
    assert!(good, "{program} {arguments:?}: {text}");
    text
}

fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn qemu_io(uri: &str, commands: &[&str]) -> String {
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(uri);
    run_well("qemu-io", &arguments)
}

#[test]
fn nbdinfo_sees_the_export_as_it_is() {
    let server = Server::start();
    let text = run_well("nbdinfo", &["--json", "--no-content", &server.uri("")]);
    let info: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(info["protocol"], "newstyle-fixed");
    assert_eq!(info["structured"], true);
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], DEVICE_BYTES);
    for (key, value) in [
        ("is_read_only", false),
        ("can_flush", true),
        ("can_fua", true),
        ("can_trim", true),
        ("can_zero", true),
        ("can_df", true),
        ("can_multi_conn", true),
        ("can_cache", true),
        ("can_fast_zero", true),
    ] {
        assert_eq!(export[key], value, "{key} in {text}");
    }
    assert_eq!(export["contexts"][0], "base:allocation");
    assert_eq!(export["block_size_minimum"], 1);
    assert_eq!(export["block_size_preferred"], 4096);
    assert_eq!(export["block_size_maximum"], 32 << 20);
}

#[test]
fn nbdinfo_lists_exports_with_their_descriptions() {
    let server = Server::start();
    let text = run_well("nbdinfo", &["--list", "--json", "--no-content", &server.uri("")]);
    let info: serde_json::Value = serde_json::from_str(&text).unwrap();
    let exports: Vec<_> = info["exports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|export| (&export["export-name"], &export["description"]))
        .collect();
    assert_eq!(
        format!("{exports:?}"),
        r#"[(String("ram"), String("memory of a test")), (String("porous"), String("holes of a test")), (String("frozen"), String("zeroes for ever"))]"#
    );
}

#[test]
fn an_unknown_export_is_refused_in_words() {
    let server = Server::start();
    let (good, text) = run("nbdinfo", &[&server.uri("nowhere")]);
    assert!(!good && text.contains("nowhere"), "{text}");
}

#[test]
fn nbdcopy_brings_every_byte_there_and_back() {
    for (there, here) in [(&[][..], &[][..]), (&["--flush", "--request-size=33554432"], &["--request-size=33554432"])] {
        let server = Server::start();
        let (source, back) = (server.file_of_noise("source"), server.path("back"));
        run_well("nbdcopy", &[there, &[text_of(&source), &server.uri("ram")]].concat());
        run_well("nbdcopy", &[here, &[&server.uri("ram"), text_of(&back)]].concat());
        assert!(fs::read(&source).unwrap() == fs::read(&back).unwrap(), "the copy differs");
    }
}

#[test]
fn qemu_img_compares_equal_after_convert() {
    let server = Server::start();
    let source = server.file_of_noise("source");
    let uri = server.uri("ram");
    run_well("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text_of(&source), &uri]);
    let text = run_well("qemu-img", &["compare", "-f", "raw", "-F", "raw", text_of(&source), &uri]);
    assert!(text.contains("identical"), "{text}");
}

#[test]
fn qemu_io_writes_reads_zeroes_discards_and_flushes_any_range() {
    let server = Server::start();
    let text = qemu_io(
        &server.uri("ram"),
        &[
            "write -P 0xab 1000 9000",
            "write -f -P 0xcd 5000 1",
            "write -z 6000 100",
            "write -z -f -u 7000 1000",
            "flush",
            "read -P 0 0 1000",
            "read -P 0xab 1000 4000",
            "read -P 0xcd 5000 1",
            "read -P 0xab 5001 999",
            "read -P 0 6000 100",
            "read -P 0xab 6100 900",
            "read -P 0 7000 1000",
            "read -P 0xab 8000 2000",
            "read -P 0 10000 5000",
            "discard 0 1M",
            "write -P 0x11 1M 20M",
            "aio_write -P 0x22 1M 4k",
            "aio_write -P 0x33 1028k 4k",
            "aio_flush",
            "read -P 0x22 1M 4k",
            "read -P 0x33 1028k 4k",
            "read -P 0x11 1032k 8M",
        ],
    );
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn qemu_io_may_read_and_not_write_what_is_read_only() {
    let server = Server::start();
    let (good, text) = run("qemu-io", &["-f", "raw", "-c", "write 0 512", &server.uri("frozen")]);
    assert!(!good && text.contains("Permission denied"), "{text}");
    let text = run_well("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 0 1M", &server.uri("frozen")]);
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn qemu_img_bench_keeps_many_requests_and_flushes_in_flight() {
    let server = Server::start();
    let uri = server.uri("ram");
    let arguments = ["bench", "-f", "raw", "-w", "-c", "3000", "-d", "32", "-s", "4096", "--pattern=90"];
    run_well("qemu-img", &[&arguments[..], &["--flush-interval=50", &uri]].concat());
    assert!(!qemu_io(&uri, &["read -P 90 0 11M"]).contains("failed"));
    run_well("qemu-img", &["bench", "-f", "raw", "-c", "200", "-d", "32", "-s", "100000", &uri]);
}

/// Offset, length and whether it is a hole, of each entry of a map in JSON.
fn map(text: &str, offset: &str, is_hole: impl Fn(&serde_json::Value) -> bool) -> Vec<(u64, u64, bool)> {
    let entries: serde_json::Value = serde_json::from_str(text).unwrap();
    let number = |entry: &serde_json::Value, key: &str| entry[key].as_u64().unwrap();
    let extent = |entry| (number(entry, offset), number(entry, "length"), is_hole(entry));
    entries.as_array().unwrap().iter().map(extent).collect()
}

#[test]
fn maps_show_holes_and_copies_keep_them() {
    let server = Server::start();
    let uri = server.uri("porous");
    let holes = || {
        let by_nbdinfo = map(&run_well("nbdinfo", &["--map", "--json", &uri]), "offset", |entry| entry["type"] == 3);
        let by_qemu = run_well("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
        assert_eq!(by_nbdinfo, map(&by_qemu, "start", |entry| entry["zero"] == true));
        by_nbdinfo
    };
    assert_eq!(holes(), [(0, 1 << 20, true)]);
    qemu_io(&uri, &["write -P 0x77 64k 64k", "write -P 0x77 512k 512"]);
    let written = [
        (0, 64 << 10, true),
        (64 << 10, 64 << 10, false),
        (128 << 10, 384 << 10, true),
        (512 << 10, 512, false),
        ((512 << 10) + 512, (512 << 10) - 512, true),
    ];
    assert_eq!(holes(), written);
    // Without leave to make holes zeroes are data; with it they are none.
    qemu_io(&uri, &["write -z 0 64k", "write -z -u 64k 64k"]);
    assert_eq!(holes()[..2], [(0, 64 << 10, false), (64 << 10, 448 << 10, true)]);
    let copy = server.path("copy");
    run_well("nbdcopy", &[&uri, text_of(&copy)]);
    let blocks = fs::metadata(&copy).unwrap().blocks();
    assert!(blocks * 512 < 512 << 10, "{blocks} sectors of the copy are data");
}
