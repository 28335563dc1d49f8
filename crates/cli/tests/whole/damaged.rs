//! Damaged volumes: what is served all the same, and that nothing of it is written that a write
//! could destroy.

use crate::program::{Folder, Server, json, run};
use crate::refusals::{INFO_AT, INFO2_AT, info_block, poke};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use tidegate_media::Durability;
use zerocopy::IntoBytes;

/// The NBD flag of an export that takes no writes.
const READ_ONLY: u16 = 1 << 1;

/// Serves the volume, writes its block 7, and ends the server.
fn write_block_7(folder: &Folder, volume: &str) {
    let socket = folder.path("s");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
    Server::client(&socket).write(7 * 4096, &[7; 4096], Durability::Fua).unwrap();
    assert!(server.stop().success());
}

/// The block that the map of the volume names for block 7.
fn place_of_7(volume: &str) -> u32 {
    let mut entry = [0; 4];
    let at = INFO_AT + info_block(volume, INFO_AT).mapoff.get() + 4 * 7;
    fs::File::open(volume).unwrap().read_exact_at(&mut entry, at).unwrap();
    u32::from_le_bytes(entry) & 0x3fff_ffff
}

/// Writes the place of block 7 into the flog as the free block of lane 200, which never wrote: a
/// stale line looks so.
fn free_the_place_of_7(volume: &str) {
    let flog_at = INFO_AT + info_block(volume, INFO_AT).logoff.get();
    let place = place_of_7(volume).to_le_bytes();
    poke(volume, flog_at + 64 * 200 + 4, &[place, place].concat());
}

fn set_error_flag(volume: &str) {
    for at in [INFO_AT, INFO2_AT] {
        poke(volume, at, info_block(volume, at).with_error(true).as_bytes());
    }
}

/// Serves the volume, which has to be read-only, and reads its block 7; nothing in its file
/// changes.
fn is_served_for_reading(folder: &Folder, volume: &str, phrases: &[&str]) {
    let before = fs::read(volume).unwrap();
    let socket = folder.path("s");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
    server.hear_or_heard("WARN");
    for phrase in [phrases, &["access     read-only", "the volume is read-only"]].concat() {
        assert!(server.said.contains(phrase), "no {phrase:?} in {}", server.said);
    }
    let mut client = Server::client(&socket);
    assert_eq!(client.transmission_flags() & READ_ONLY, READ_ONLY);
    let mut read = [0; 4096];
    client.read(7 * 4096, &mut read).unwrap();
    assert_eq!(read, [7; 4096]);
    assert!(client.write(9 * 4096, &[9; 4096], Durability::Fua).is_err());
    assert!(server.stop().success());
    assert!(fs::read(volume).unwrap() == before, "the file changed");
    let damage = &json(&["info", "--pmem", volume])["volume"]["damage"];
    assert_eq!(damage["read_only"], true, "{damage}");
    let shown = run(&["info", "--pmem", volume]);
    assert!(phrases.iter().all(|phrase| shown.stdout.contains(phrase)) && shown.code == 0, "{}", shown.stdout);
}

#[test]
fn a_block_that_is_also_free_is_served_and_never_written() {
    // In memory the server measures what a write costs; on a disk it syncs.
    for folder in [Folder::new(), Folder(tempfile::tempdir_in("/dev/shm").unwrap())] {
        let volume = &folder.volume("v");
        write_block_7(&folder, volume);
        free_the_place_of_7(volume);
        is_served_for_reading(&folder, volume, &["a lane's free block is named nowhere else", "tidegate check --pmem"]);
        assert_eq!(run(&["check", "--pmem", volume, "--repair"]).code, 0);
        write_block_7(&folder, volume);
    }
}

#[test]
fn an_error_flag_is_told_when_the_volume_opens() {
    let folder = Folder(tempfile::tempdir_in("/dev/shm").unwrap());
    let volume = &folder.volume("v");
    write_block_7(&folder, volume);
    set_error_flag(volume);
    is_served_for_reading(&folder, volume, &["error flag is clear (found set)", "check --repair --pmem"]);
    assert_eq!(run(&["check", "--pmem", volume, "--repair"]).code, 0);
    write_block_7(&folder, volume);
}

#[test]
fn a_volume_with_one_good_info_block_is_served_and_shown() {
    for folder in [Folder::new(), Folder(tempfile::tempdir_in("/dev/shm").unwrap())] {
        for (at, rule) in [(INFO_AT, "the first info block is good"), (INFO2_AT, "the second info block is good")] {
            let volume = &folder.volume(&format!("v{at}"));
            poke(volume, at + 60, &[0xff; 4]);
            let info = json(&["info", "--pmem", volume]);
            let damage = &info["volume"]["damage"];
            assert!(damage["first"].as_str().unwrap().contains(rule), "{info}");
            assert_eq!((&damage["read_only"], &damage["broken"]), (&false.into(), &1.into()));
            let socket = folder.path("s");
            let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
            server.hear_or_heard("WARN");
            assert!(server.said.contains(rule) && server.said.contains("check --repair --pmem"), "{}", server.said);
            Server::client(&socket).write(7 * 4096, &[7; 4096], Durability::Fua).unwrap();
            assert_eq!(run(&["info", "--pmem", volume]).code, 0);
            assert!(server.stop().success());
            assert_eq!(run(&["check", "--pmem", volume, "--repair"]).code, 0);
            assert_eq!(json(&["info", "--pmem", volume])["volume"]["damage"], serde_json::Value::Null);
        }
    }
}

/// What `check --repair` of the volume says on a terminal on which `answer` is typed, and its exit
/// code.
fn repair_on_a_terminal(volume: &str, answer: &str) -> (i32, String) {
    let repair = format!("exec {} check --repair --pmem {volume}", env!("CARGO_BIN_EXE_tidegate"));
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &repair, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut terminal = script.spawn().unwrap();
    terminal.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = terminal.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_repair_that_gives_blocks_up_asks_on_a_terminal() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let map_at = INFO_AT + info_block(volume, INFO_AT).mapoff.get();
    poke(volume, map_at + 4 * 3, &0xc000_ffff_u32.to_le_bytes());
    let before = fs::read(volume).unwrap();
    let (code, said) = repair_on_a_terminal(volume, "no\n");
    assert!(code == 3 && said.contains("gives up 1 blocks (4 KiB): 3") && said.contains("was not repaired"), "{said}");
    assert!(fs::read(volume).unwrap() == before, "the file changed");
    let (code, said) = repair_on_a_terminal(volume, "yes\n");
    assert!(code == 3 && said.contains("the data of 1 sectors was lost"), "{said}");
    assert_eq!(json(&["check", "--pmem", volume])["sound"], true);
}
