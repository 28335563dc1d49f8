//! Volumes served by the program to clients that other people wrote, and to one that knows what was
//! acknowledged.

use crate::program::{Folder, Server, json, need_root, peer, run, tidegate};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use tidegate_media::Durability;
use tidegate_nbd_client::client::{ClientError, Operation};

const BLOCK: u64 = 4096;
/// The protocol's error number for a device without room.
const NO_SPACE: u32 = 28;

fn qemu_io(uri: &str, commands: &[&str]) -> String {
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(uri);
    peer("qemu-io", &arguments)
}

/// A block's contents that tell its number and when it was written.
fn stamped(block: u64, turn: u64) -> Vec<u8> {
    [block.to_le_bytes(), turn.to_le_bytes()].concat().repeat(usize::try_from(BLOCK).unwrap() / 16)
}

#[test]
fn other_peoples_clients_over_unix_and_tcp() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let listen = &format!("unix:{}", folder.text("s"));
    let mut server =
        Server::start(&["--pmem", volume, "--listen", listen, "--listen", "tcp:127.0.0.1:0", "--insecure"]);
    assert!(server.said.contains("disk-file") && server.said.contains("after flush, with FUA"), "{}", server.said);
    server.hear_or_heard("is open to every user of this machine, without encryption");
    assert!(server.said.contains("nbdinfo '") && server.said.contains("nbd-client -unix"), "{}", server.said);
    let [unix, tcp] = &server.uris[..] else { panic!("{:?}", server.uris) };
    let blocks = json(&["info", "--pmem", volume])["volume"]["blocks"].as_u64().unwrap();
    for uri in [unix, tcp] {
        assert_eq!(peer("nbdinfo", &["--size", uri]).trim(), (blocks * BLOCK).to_string());
    }
    qemu_io(unix, &["write -P 0x5a 8192 12288", "write -f -P 0x33 1M 4096", "flush", "read -P 0x5a 8192 12288"]);
    assert!(qemu_io(tcp, &["read -P 0x5a 8192 12288", "read -P 0 0 8192"]).contains("12288/12288 bytes"));
    let (source, back) = (folder.text("source"), folder.text("back"));
    let noise: Vec<u8> = (0..4 << 10).flat_map(|block| stamped(block, 7)).collect();
    fs::write(&source, &noise).unwrap();
    peer("nbdcopy", &[&source, unix]);
    peer("nbdcopy", &[tcp, &back]);
    assert!(fs::read(&back).unwrap().starts_with(&noise), "the copy differs");
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(json(&["check", "--pmem", volume])["sound"], true);
}

#[test]
fn each_v_tells_more() {
    let folder = Folder::new();
    let (volume, socket) = (&folder.volume("v"), folder.path("s"));
    let listen = &format!("unix:{}", socket.display());
    let me = format!("is process {} of user", std::process::id());
    let all = ["client 0 connected", &me, "a control socket is asked by", "write 4096 bytes at block 7, Fua: done"];
    for (flag, told) in [("-q", 0), ("-v", 1), ("-vv", 3), ("-vvv", 4), ("-vvvv", 4)] {
        let flags: &[&str] = if told == 0 { &[] } else { &[flag] };
        let mut server = Server::start(&[&["--pmem", volume, "--listen", listen], flags].concat());
        let mut client = Server::client(&socket);
        client.write(7 * BLOCK, &stamped(7, 1), Durability::Fua).unwrap();
        json(&["stat", "--pmem", volume]);
        client.disconnect().unwrap();
        assert!(server.stop().success());
        let heard = all.map(|words| server.said.contains(words));
        assert_eq!(heard, [1, 2, 3, 4].map(|nth| nth <= told), "{flag}: {}", server.said);
    }
}

#[test]
fn every_format_is_served() {
    let folder = Folder::new();
    for (version, block) in [("1.1", "512"), ("2.0", "4096"), ("2.0", "520"), ("1.1", "4224")] {
        let volume = &folder.text(&format!("{version}-{block}"));
        json(&["create", "--pmem", volume, "--size", "20M", "--btt", version, "--block", block, "--sparse"]);
        let listen = &format!("unix:{}", folder.text("s"));
        let mut server = Server::start(&["--pmem", volume, "--listen", listen]);
        qemu_io(&server.uris[0], &["write -P 0x5a 4096 12288", "write -z 8192 4096", "read -P 0 8192 4096"]);
        assert!(server.stop().success());
        assert_eq!(json(&["check", "--pmem", volume])["sound"], true, "{version} {block}");
    }
}

#[test]
fn sighup_changes_nothing() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
    let mut client = Server::client(&socket);
    server.signal(Signal::HUP);
    client.write(0, &stamped(0, 1), Durability::Fua).unwrap();
    let mut later = Server::client(&socket);
    let mut block = stamped(0, 0);
    later.read(0, &mut block).unwrap();
    assert_eq!(block, stamped(0, 1));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn sigterm_ends_with_0_under_load_and_in_the_middle_of_a_request() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let listen = &format!("unix:{}", socket.display());
    let mut server = Server::start(&["--pmem", volume, "--listen", listen, "-v"]);
    let mut stuck = Server::client(&socket);
    stuck.write(0, &stamped(0, 1), Durability::Fua).unwrap();
    // The head of a WRITE of one block at offset 4096, and a part of its payload.
    let head =
        [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0, 0, 1], &[9; 8], &BLOCK.to_be_bytes(), &4096_u32.to_be_bytes()];
    let mut raw = stuck.stream();
    raw.write_all(&[&head.concat()[..], &[7; 1000]].concat()).unwrap();
    let load = {
        let socket = socket.clone();
        let (started, wait) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let mut client = Server::client(&socket);
            let mut acknowledged = 0;
            for turn in 1.. {
                let block = 10 + turn % 100;
                if client.write(block * BLOCK, &stamped(block, turn), Durability::Volatile).is_err() {
                    break;
                }
                acknowledged = turn;
                let _ = started.send(());
            }
            acknowledged
        });
        wait.recv().unwrap();
        thread
    };
    let silent = UnixStream::connect(&socket).unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let acknowledged = load.join().unwrap();
    assert!(acknowledged > 0 && !socket.exists());
    drop((silent, stuck));
    assert_eq!(json(&["check", "--pmem", volume])["sound"], true);
    let mut server = Server::start(&["--pmem", volume, "--listen", listen]);
    let mut client = Server::client(&socket);
    let mut block = stamped(0, 0);
    for (at, turn) in (acknowledged.saturating_sub(99).max(1)..=acknowledged).map(|turn| (10 + turn % 100, turn)) {
        client.read(at * BLOCK, &mut block).unwrap();
        // The last write may have been carried out and not acknowledged.
        let written = u64::from_le_bytes(block[8..16].try_into().unwrap());
        assert!(written == turn || written == acknowledged + 1, "block {at}: {written} instead of {turn}");
        assert_eq!(block, stamped(at, written));
    }
    client.read(4096, &mut block).unwrap();
    assert!(block.iter().all(|byte| *byte == 0), "half a request was carried out");
    assert!(server.stop().success());
}

#[test]
fn sigint_ends_with_0() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", folder.text("s"))]);
    server.signal(Signal::INT);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn nothing_given_serves_a_default_volume() {
    let folder = Folder::new();
    let (state, runtime) = (folder.path("state"), folder.path("run"));
    let with_folders = |arguments: &[&str]| {
        let mut command = tidegate();
        command.args(arguments).env("XDG_STATE_HOME", &state).env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    // What a creation leaves that is killed.
    fs::create_dir_all(state.join("tidegate")).unwrap();
    fs::write(state.join("tidegate/default.pmem.unfinished"), "half a volume").unwrap();
    let mut server = Server::spawn(&mut with_folders(&["serve"]));
    let (volume, socket) = (state.join("tidegate/default.pmem"), runtime.join("tidegate/default.sock"));
    assert!(server.said.contains("created") && server.said.contains("disk-file"), "{}", server.said);
    assert_eq!(server.uris, [format!("nbd+unix:///?socket={}", socket.display())]);
    assert_eq!(fs::metadata(&volume).unwrap().len(), 1 << 30);
    assert_eq!(fs::read_dir(volume.parent().unwrap()).unwrap().count(), 2, "the volume and its control socket");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    qemu_io(&server.uris[0], &["write -P 0x5a 0 4096", "flush"]);
    let info = crate::program::ended(&mut with_folders(&["info"]));
    assert!(info.stdout.contains("in use     yes"), "{}{}", info.stdout, info.stderr);
    assert_eq!(server.stop().code(), Some(0));
    assert!(!socket.exists());
    let check = crate::program::ended(&mut with_folders(&["check"]));
    assert!(check.stdout.contains("1 data") && check.code == 0, "{}{}", check.stdout, check.stderr);
    let again = Server::spawn(&mut with_folders(&["serve"]));
    assert!(!again.said.contains("created"), "{}", again.said);
    qemu_io(&again.uris[0], &["read -P 0x5a 0 4096"]);
}

#[test]
fn read_only_refuses_writes_and_changes_nothing() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let before = fs::read(volume).unwrap();
    let (one, two) = (format!("unix:{}", folder.text("one")), format!("unix:{}", folder.text("two")));
    let mut server = Server::start(&["--pmem", volume, "--listen", &one, "--read-only"]);
    let mut second = Server::start(&["--pmem", volume, "--listen", &two, "--read-only"]);
    assert!(server.said.contains("read-only"), "{}", server.said);
    let mut client = Server::client(&folder.path("one"));
    let refused = client.write(0, &stamped(0, 1), Durability::Volatile);
    assert!(refused.is_err(), "a write went through");
    client.flush().unwrap();
    assert!(peer("nbdinfo", &[&server.uris[0]]).contains("is_read_only: true"));
    peer("nbdcopy", &[&second.uris[0], &folder.text("copy")]);
    assert!(fs::read(folder.path("copy")).unwrap().iter().all(|byte| *byte == 0));
    assert!(server.stop().success() && second.stop().success());
    assert!(fs::read(volume).unwrap() == before, "the file changed");
}

#[test]
fn a_killed_server_loses_nothing_and_its_socket_is_replaced() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let listen = &format!("unix:{}", socket.display());
    for turn in 1..4 {
        let mut server = Server::start(&["--pmem", volume, "--listen", listen]);
        let mut client = Server::client(&socket);
        let mut block = stamped(0, 0);
        for at in 0..200 {
            client.read(at * BLOCK, &mut block).unwrap();
            assert!(turn == 1 || block == stamped(at, turn - 1), "block {at} after {turn} kills");
            client.write(at * BLOCK, &stamped(at, turn), Durability::Volatile).unwrap();
        }
        server.kill();
        assert!(socket.exists(), "a killed server leaves its socket");
        assert_eq!(json(&["check", "--pmem", volume])["sound"], true);
    }
}

#[test]
fn a_region_cut_short_while_served_fails_requests_and_the_last_flush_but_not_the_server() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
    let mut client = Server::client(&socket);
    client.write(0, &stamped(0, 1), Durability::Fua).unwrap();
    fs::File::options().write(true).open(volume).unwrap().set_len(4096).unwrap();
    assert!(client.write(0, &stamped(0, 2), Durability::Fua).is_err(), "a write to memory that is gone");
    assert!(client.flush().is_err(), "a flush after a lost store");
    let mut other = Server::client(&socket);
    assert!(other.read(24 << 20, &mut stamped(0, 0)).is_err(), "a read of memory that is gone");
    assert_eq!(server.stop().code(), Some(5));
    assert!(server.said.contains("was not made durable"), "{}", server.said);
    assert!(!socket.exists());
}

#[test]
fn a_client_that_reads_no_replies_does_not_hold_the_end_up() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
    let mut deaf = Server::client(&socket);
    for _ in 0..16 {
        deaf.submit(Operation::Read { offset: 0, len: 8 << 20 }).unwrap();
    }
    // The first bytes of the first reply are here, and more than a socket holds are still to come.
    let mut raw = deaf.stream();
    raw.read_exact(&mut [0; 16]).unwrap();
    assert_eq!(server.stop().code(), Some(0));
    assert!(server.said.contains("still busy"), "{}", server.said);
}

#[test]
fn many_connections_with_long_requests_share_a_limited_number_of_second_threads() {
    const CLIENTS: usize = 300;
    let folder = Folder::new();
    let socket = folder.path("s");
    let listen = &format!("unix:{}", socket.display());
    let mut server = Server::start(&["--pmem", &folder.volume("v"), "--listen", listen, "--write-cache", "off"]);
    let tasks = format!("/proc/{}/task", server.pid());
    let threads = || fs::read_dir(&tasks).unwrap().count();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Server::client(&socket)).collect();
    let before = threads();
    for client in &mut clients {
        client.submit(Operation::Trim { offset: 0, len: 2 << 20 }).unwrap();
        client.submit(Operation::Read { offset: 0, len: 4096 }).unwrap();
    }
    for client in &mut clients {
        (0..2).for_each(|_| drop(client.complete().unwrap().outcome.unwrap()));
    }
    let more = threads().saturating_sub(before);
    // Those that end at this moment may still be listed.
    assert!(more <= tidegate_nbd::OFFLOAD_THREADS_MAX + 8, "{more} more");
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn emulated_media_are_served() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    for name in ["nvdimm", "stt-ram", "pcm", "optane", "cxl"] {
        let listen = &format!("unix:{}", folder.text("s"));
        let mut server = Server::start(&["--pmem", volume, "--listen", listen, "--emulate", name]);
        qemu_io(&server.uris[0], &["write -P 0x11 0 64k", "flush", "read -P 0x11 0 64k"]);
        assert!(server.stop().success());
    }
}

#[test]
fn the_answer_of_serve_in_json_tells_where() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let listen = format!("unix:{}", folder.text("s"));
    let mut command = tidegate();
    command.args(["serve", "--json", "--pmem", &volume, "--listen", &listen]);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = command.stdout(writer).spawn().unwrap();
    drop(command);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(reader), &mut line).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["serving"][0], format!("nbd+unix:///?socket={}", folder.text("s")));
    assert_eq!(answer["volumes"][0]["domain"], "disk-file");
    assert!(answer["volumes"][0]["contract"].as_array().is_some_and(|rows| rows.len() == 5), "{answer}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_region_in_memory_survives_processes_only_and_says_so() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = folder.path().join("v");
    let created = run(&["create", "--pmem", volume.to_str().unwrap(), "--size", "32M"]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    assert!(created.stdout.contains("process-crash"), "{}", created.stdout);
}

/// A program of `folder`, in a view of the files where a file system of 8 MiB is at `mount`.
fn with_a_small_file_system(mount: &str, script: &str) -> Command {
    let mut command = Command::new("unshare");
    // The mount belongs to a namespace that ends with the process.
    command.args(["--mount", "sh", "-c", &format!("mount -t tmpfs -o size=8M none {mount} && {script}")]);
    command
}

#[test]
fn a_file_system_that_fills_up_is_told_to_clients_and_in_the_log() {
    need_root("mount");
    let folder = Folder::new();
    let (mount, socket) = (&folder.text("mount"), folder.path("s"));
    fs::create_dir(mount).unwrap();
    let program = env!("CARGO_BIN_EXE_tidegate");
    let create = format!("{program} create --sparse --size 32M --pmem {mount}/v > /dev/null");
    let serve = format!(
        "{create} && exec {program} serve --write-cache off --pmem {mount}/v --listen unix:{}",
        socket.display()
    );
    let mut server = Server::spawn(&mut with_a_small_file_system(mount, &serve));
    let mut client = Server::client(&socket);
    let mut write = |block: u64| client.write(block * BLOCK, &stamped(block, 1), Durability::Volatile);
    let last = 4095;
    let refused = (0..last).find_map(|block| write(block).err()).expect("32 MiB do not fit into 8");
    // The table has no page yet that tells of the last block.
    for error in [refused, write(last).unwrap_err(), client.flush().unwrap_err()] {
        assert!(matches!(&error, ClientError::Refused(refusal) if refusal.code == NO_SPACE), "{error}");
    }
    let line = server.hear("takes no more writes");
    for phrase in ["file system is full: make room", &format!("fallocate --length {} {mount}/v", 32 << 20)] {
        assert!(line.contains(phrase), "{line}");
    }
    let mut bytes = vec![0; usize::try_from(BLOCK).unwrap()];
    for block in [0, last] {
        client.read(block * BLOCK, &mut bytes).unwrap();
        assert_eq!(bytes == stamped(0, 1), block == 0);
    }
    let check = format!("{create} && (head -c 9M /dev/zero > {mount}/filler; {program} check --pmem {mount}/v)");
    let check = with_a_small_file_system(mount, &check).output().unwrap();
    let told = String::from_utf8(check.stdout).unwrap();
    assert!(told.contains("sound: every rule is kept"), "{told}");
}
