//! A server under a supervisor: what it says to systemd, the sockets it is given, and how it ends.

use crate::program::{Folder, Server, peer, tidegate};
use rustix::process::Signal;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;
use tidegate_nbd_client::client::Operation;

/// A supervisor's socket, and the next thing it hears.
fn hear(socket: &UnixDatagram) -> String {
    let mut datagram = [0; 4096];
    let len = socket.recv(&mut datagram).expect("something is said in time");
    String::from_utf8(datagram[..len].to_vec()).unwrap()
}

#[test]
fn a_supervisor_hears_of_the_start_the_life_and_the_end() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let supervisor = UnixDatagram::bind(folder.path("notify")).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let listen = format!("unix:{}", folder.text("s"));
    let mut command = tidegate();
    command.args(["serve", "--pmem", &volume, "--listen", &listen]);
    command.env("NOTIFY_SOCKET", folder.path("notify")).env("WATCHDOG_USEC", "20000").env_remove("WATCHDOG_PID");
    let mut server = Server::spawn(&mut command);
    let ready = hear(&supervisor);
    assert!(ready.starts_with("READY=1\nSTATUS=serving v at nbd+unix:///?socket="), "{ready}");
    assert_eq!((hear(&supervisor), hear(&supervisor)), ("WATCHDOG=1\n".to_owned(), "WATCHDOG=1\n".to_owned()));
    server.signal(Signal::TERM);
    let end = std::iter::repeat_with(|| hear(&supervisor)).find(|said| said != "WATCHDOG=1\n");
    assert_eq!(end.as_deref(), Some("STOPPING=1\nSTATUS=ending\n"));
    assert!(server.wait().success());
}

#[test]
fn a_deaf_supervisor_changes_nothing() {
    let folder = Folder::new();
    let mut command = tidegate();
    command.args(["serve", "--pmem", &folder.volume("v"), "--listen", &format!("unix:{}", folder.text("s"))]);
    let mut server = Server::spawn(command.env("NOTIFY_SOCKET", folder.path("nobody")));
    Server::client(&folder.path("s"));
    assert!(server.stop().success());
}

/// Starts a server as systemd does, with `socket` as descriptor 3.
fn activated(socket: OwnedFd, arguments: &[&str]) -> Server {
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_tidegate")).arg("serve").args(arguments);
    Server::spawn_with_input(&mut command, Stdio::from(socket))
}

#[test]
fn sockets_given_with_the_start_are_served_and_left_in_place() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let path = folder.path("activated");
    let unix = UnixListener::bind(&path).unwrap();
    // A client that comes before the server waits for it.
    let early = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut server = activated(unix.into(), &["--pmem", &volume]);
    assert_eq!(server.uris, [format!("nbd+unix:///?socket={}", path.display())]);
    std::io::Read::read_exact(&mut &early, &mut [0; 18]).unwrap();
    peer("nbdinfo", &["--size", &server.uris[0]]);
    drop(early);
    assert!(server.stop().success());
    assert!(path.exists(), "whoever opened the socket removes it");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nbd://{}/", tcp.local_addr().unwrap());
    let mut server = activated(tcp.into(), &["--pmem", &volume, "--insecure"]);
    assert_eq!(server.uris, [uri]);
    peer("nbdinfo", &["--size", &server.uris[0]]);
    assert!(server.stop().success());
}

#[test]
fn a_socket_given_with_the_start_is_not_exposed_without_consent() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    for address in ["0.0.0.0:0", "127.0.0.1:0"] {
        let tcp = TcpListener::bind(address).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_tidegate")).args(["serve", "--pmem", &volume]);
        let output = command.stdin(Stdio::from(OwnedFd::from(tcp))).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && told.contains("--insecure"), "{told}");
    }
}

#[test]
fn a_second_signal_ends_at_once_and_tells_what_was_left() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let mut server = Server::start(&["--pmem", &volume, "--listen", &format!("unix:{}", folder.text("s")), "-v"]);
    // It takes no replies, so its requests are never finished.
    let mut deaf = Server::client(&folder.path("s"));
    for _ in 0..16 {
        deaf.submit(Operation::Read { offset: 0, len: 8 << 20 }).unwrap();
    }
    // The first byte of a reply: from here on the server is busy with it.
    std::io::Read::read_exact(&mut deaf.stream(), &mut [0]).unwrap();
    server.signal(Signal::TERM);
    server.hear("ending: 1 connections");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(6));
    assert!(server.said.contains("ended by a second signal: 1 connections"), "{}", server.said);
    assert!(server.said.contains(&format!("{volume}: nothing was left to drain")), "{}", server.said);
    assert!(!server.said.contains("still busy"), "it waited all the same: {}", server.said);
}
