//! Who is let in, how many, and what those do to others who mean no good.

use crate::program::{Folder, NOBODY, Server, as_nobody, ended, need_root, peer, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidegate_media::Durability;

const GREETING_BYTES: usize = 18;

/// Connections held open by clients that are silent, slow, wrong or half gone.
const HOSTILE: usize = 2_400;

/// What an idle connection may cost the server: pages of its thread's stack, of its buffers, and
/// the kernel's for them.
const IDLE_BYTES_MAX: u64 = 64 << 10;

fn greeted(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.read_exact(&mut [0; GREETING_BYTES]).unwrap();
    stream
}

/// Whether the server has closed the connection; what it said before that is skipped.
fn is_closed(stream: &mut UnixStream) -> bool {
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        }
    }
}

#[test]
fn sockets_have_the_mode_that_was_asked_for() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    for (arguments, mode) in [(&[][..], 0o600), (&["--socket-mode", "0660"], 0o660), (&["--socket-mode", "606"], 0o606)]
    {
        let socket = folder.path("s");
        let listen = format!("unix:{}", socket.display());
        let mut server = Server::start(&[&["--pmem", volume, "--listen", &listen], arguments].concat());
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, mode, "{arguments:?}");
        assert!(server.stop().success());
    }
    for text in ["rw", "", "1777", "+600", "0o600"] {
        let refused = run(&["serve", "--pmem", volume, "--socket-mode", text]);
        assert!(refused.code == 2 && refused.stderr.contains("is no mode of a socket"), "{}", refused.stderr);
    }
}

#[test]
fn strangers_are_turned_away_whatever_the_mode_and_named_ones_are_not() {
    need_root("be another user");
    let folder = Folder::new();
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let listen = format!("unix:{}", socket.display());
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let nobody = NOBODY.to_string();
    for (allowed, admitted) in [
        (&[][..], false),
        (&["--allow-uid", "1"], false),
        (&["--allow-uid", &nobody], true),
        (&["--allow-gid", &nobody], true),
    ] {
        let arguments = ["--pmem", volume, "--listen", &listen, "--socket-mode", "0666"];
        let mut server = Server::start(&[&arguments[..], allowed].concat());
        let mut stranger = Command::new("nbdinfo");
        stranger.args(["--size", &uri]).uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(stranger.status().unwrap().success(), admitted, "{allowed:?}");
        if !admitted {
            server.hear(&format!("from uid {NOBODY}, gid {NOBODY} (not allowed)"));
        }
        peer("nbdinfo", &["--size", &uri]);
        assert!(server.stop().success());
    }
}

#[test]
fn the_one_group_that_is_allowed_can_open_the_socket_and_who_cannot_is_told() {
    need_root("be another user");
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let listen = format!("unix:{}", socket.display());
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let nobody = NOBODY.to_string();
    let serve = |more: &[&str]| Server::start(&[&["--pmem", volume, "--listen", &listen], more].concat());
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut shut = serve(&["--socket-mode", "0660", "--allow-gid", &nobody]);
    shut.hear_or_heard(&format!("group {nobody} is allowed, and cannot reach socket"));
    assert!(shut.stop().success());
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = serve(&["--socket-mode", "0660", "--allow-gid", &nobody]);
    assert_eq!(fs::metadata(&socket).unwrap().gid(), NOBODY);
    let mut member = Command::new("nbdinfo");
    member.args(["--size", &uri]).uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(member.status().unwrap().success());
    assert!(server.stop().success() && !server.said.contains("cannot reach"), "{}", server.said);
    for more in [&["--allow-uid", &nobody][..], &["--socket-mode", "0660", "--allow-gid", "1", "--allow-gid", &nobody]]
    {
        let mut server = serve(more);
        server.hear_or_heard(&format!("{nobody} is allowed, and cannot reach socket"));
        assert_eq!(fs::metadata(&socket).unwrap().gid(), 0);
        assert!(server.stop().success());
    }
    fs::set_permissions(volume, fs::Permissions::from_mode(0o666)).unwrap();
    let mut nobodys = as_nobody(&folder);
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = ended(nobodys.args([
        "serve",
        "--pmem",
        volume,
        "--listen",
        &listen,
        "--socket-mode",
        "0660",
        "--allow-gid",
        "0",
    ]));
    assert!(refused.code == 5 && refused.stderr.contains("cannot be given to group 0"), "{}", refused.stderr);
    assert!(!socket.exists());
}

#[test]
fn clients_beyond_the_limit_are_turned_away_with_one_line() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let listen = format!("unix:{}", socket.display());
    let mut server = Server::start(&["--pmem", volume, "--listen", &listen, "--connections-max", "8"]);
    let mut served: Vec<UnixStream> = (0..8).map(|_| greeted(&socket)).collect();
    for _ in 0..100 {
        assert!(is_closed(&mut UnixStream::connect(&socket).unwrap()), "one client more was greeted");
    }
    server.hear("8 connections are the limit");
    served.truncate(4);
    assert!(server.stop().success());
    assert_eq!(server.said.matches("are the limit").count(), 1, "{}", server.said);
}

#[test]
fn the_systems_limit_on_files_is_raised_as_far_as_it_goes_and_then_is_the_limit() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    for (limit, clients, served) in [("ulimit -S -n 80", 120, 120), ("ulimit -n 192", 70, 64)] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limit}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_tidegate"), "serve"]);
        command.args(["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
        let mut server = Server::spawn(&mut command);
        let mut greeted = Vec::new();
        for _ in 0..clients {
            let mut stream = UnixStream::connect(&socket).unwrap();
            greeted.extend(stream.read_exact(&mut [0; GREETING_BYTES]).map(|()| stream));
        }
        assert_eq!(greeted.len(), served, "{limit}");
        assert!(server.stop().success());
        assert_eq!(server.said.contains("64 connections are the limit"), served < clients, "{}", server.said);
    }
}

#[test]
fn a_client_that_picks_no_export_is_let_go_and_one_that_did_may_be_silent() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display()), "-v"]);
    let mut patient = Server::client(&socket);
    let mut silent = greeted(&socket);
    // One byte of an option each time the server stayed silent for a moment does not buy more time.
    let mut slow = greeted(&socket);
    slow.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    slow.write_all(&3_u32.to_be_bytes()).unwrap();
    let mut bytes = b"IHAVEOPT\0\0\0\x03\0\0\x10\0".iter().chain(std::iter::repeat(&0)).take(1000);
    let still_open = |error: ErrorKind| matches!(error, ErrorKind::WouldBlock | ErrorKind::TimedOut);
    while slow.read(&mut [0]).is_err_and(|error| still_open(error.kind())) {
        let byte = bytes.next().expect("the server takes an option's bytes for ever");
        let _ = slow.write_all(&[*byte]);
    }
    assert!(is_closed(&mut silent));
    server.hear("no export was picked within 10 s");
    patient.write(0, &[7; 4096], Durability::Fua).unwrap();
    assert!(server.stop().success());
}

/// Opens a connection that does harm in one of several ways, and keeps what has to stay open.
fn attack(socket: &Path, number: usize) -> UnixStream {
    let request = |magic: u32, len: u32| {
        let head = [&magic.to_be_bytes()[..], &[0, 0, 0, 1], &[9; 8], &0_u64.to_be_bytes(), &len.to_be_bytes()];
        head.concat()
    };
    match number % 6 {
        // Silent from the start.
        0 => UnixStream::connect(socket).unwrap(),
        // Half an option.
        1 => {
            let mut stream = greeted(socket);
            stream.write_all(b"\0\0\0\x03IHAVE").unwrap();
            stream
        }
        // No protocol at all.
        2 => {
            let mut stream = greeted(socket);
            let _ = stream.write_all(&[0xff; 4096]);
            stream
        }
        // A write that announces 32 MiB and stops after a little.
        3 => {
            let stream = Server::client(socket).disconnect_without_a_word();
            (&stream).write_all(&[&request(0x2560_9513, 32 << 20)[..], &[1; 512]].concat()).unwrap();
            stream
        }
        // A request of more than there may be, then a wrong magic.
        4 => {
            let stream = Server::client(socket).disconnect_without_a_word();
            let _ = (&stream).write_all(&[request(0x2560_9513, u32::MAX), request(0xdead_beef, 1)].concat());
            stream
        }
        // Half closed in the middle of a request.
        _ => {
            let stream = Server::client(socket).disconnect_without_a_word();
            (&stream).write_all(&request(0x2560_9513, 4096)[..20]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream
        }
    }
}

trait GiveUp {
    fn disconnect_without_a_word(self) -> UnixStream;
}

impl GiveUp for tidegate_nbd_client::client::Client<UnixStream> {
    fn disconnect_without_a_word(self) -> UnixStream {
        self.stream().try_clone().unwrap()
    }
}

fn resident_bytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn thousands_of_hostile_connections_leave_a_good_client_unharmed() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let socket = folder.path("s");
    let mut server = Server::start(&["--pmem", volume, "--listen", &format!("unix:{}", socket.display())]);
    let mut good = Server::client(&socket);
    good.write(0, &[1; 4096], Durability::Volatile).unwrap();
    let before = resident_bytes(&server);
    let mut held = Vec::new();
    let mut block = [0; 4096];
    for number in 0..HOSTILE {
        held.push(attack(&socket, number));
        let (at, stamp) = (number as u64 % 1000 * 4096, u8::try_from(number % 251).unwrap());
        good.write(at, &[stamp; 4096], Durability::Fua).unwrap();
        good.read(at, &mut block).unwrap();
        assert_eq!(block, [stamp; 4096], "beside {number} hostile clients");
    }
    let grown = resident_bytes(&server).saturating_sub(before);
    println!("{HOSTILE} hostile connections: {grown} bytes, {} each", grown / HOSTILE as u64);
    assert!(grown < HOSTILE as u64 * IDLE_BYTES_MAX, "{grown} bytes for {HOSTILE} connections");
    let mut late = Server::client(&socket);
    late.read(0, &mut block).unwrap();
    drop(held);
    assert!(server.stop().success());
    assert!(server.said.lines().filter(|line| line.contains("WARN")).count() <= 2, "{}", server.said);
}
