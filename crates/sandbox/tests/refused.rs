//! A process in the sandbox, in every one of its threads. It is this test's own process, so there
//! is one test, which nothing follows.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use tidegate_sandbox::{Served, enter};

fn status() -> String {
    fs::read_to_string("/proc/thread-self/status").unwrap()
}

/// Whether the kernel refuses to start a program, other sockets, signals, namespaces and mounts.
fn all_is_refused() {
    let refused = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    refused(Command::new("/bin/true").status().map(drop));
    refused(socket(AddressFamily::NETLINK, SocketType::RAW, None).map(drop).map_err(io::Error::from));
    refused(socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop).map_err(io::Error::from));
    let own = Pid::from_raw(std::process::id().cast_signed()).unwrap();
    assert_eq!(kill_process(own, Signal::CONT), Err(Errno::PERM));
    for namespace in [nix::sched::CloneFlags::CLONE_NEWUSER, nix::sched::CloneFlags::CLONE_NEWNS] {
        assert_eq!(nix::sched::unshare(namespace), Err(nix::errno::Errno::EPERM));
    }
    assert_eq!(rustix::process::chroot("/"), Err(Errno::PERM));
    let status = status();
    assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
}

#[test]
fn a_process_in_the_sandbox_starts_nothing_and_goes_on_serving_in_every_thread() {
    assert!(Command::new("/bin/true").status().unwrap().success(), "before");
    assert!(status().contains("Seccomp:\t0\n"), "a filter from outside: {}", status());
    let (entered, enters) = channel::<()>();
    let (begun, begins) = channel();
    let early = thread::spawn(move || {
        begun.send(()).unwrap();
        enters.recv().unwrap();
        all_is_refused();
    });
    begins.recv().unwrap();
    enter(Served::Volumes).unwrap();
    entered.send(()).unwrap();
    early.join().expect("a thread that ran before is in it");
    all_is_refused();
    thread::spawn(all_is_refused).join().expect("a thread that began after is in it");
    // What a server does.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"x").unwrap();
    listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    enter(Served::Volumes).expect("once more changes nothing");
}
