//! A process in the sandbox of a mount's server, with what that needs of root's rights. It is this
//! test's own process, so there is one test, which nothing follows.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use rustix::fs::{CWD, Mode, XattrFlags, chown, mknodat, setxattr};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{CapabilitySet, capabilities};
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use tidegate_sandbox::{OF_MOUNT, SandboxWish, Served, enter, give_up_capabilities};

/// What the kernel refuses with its filter, though root may do it.
fn all_is_refused() {
    let refused = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    refused(Command::new("/bin/true").status().map(drop));
    for family in [AddressFamily::INET, AddressFamily::INET6, AddressFamily::NETLINK] {
        refused(socket(family, SocketType::DGRAM, None).map(drop).map_err(io::Error::from));
    }
    assert_eq!(mount("none", "/mnt", "tmpfs", MountFlags::empty(), None), Err(Errno::PERM));
    assert_eq!(unmount("/proc", UnmountFlags::DETACH), Err(Errno::PERM));
    assert_eq!(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS), Err(nix::errno::Errno::EPERM));
}

/// What it has is within what a mount needs.
fn little_is_left(before: CapabilitySet) {
    let now = capabilities(None).unwrap();
    let kept = before.intersection(OF_MOUNT);
    assert_eq!((now.effective, now.permitted, now.inheritable), (kept, kept, CapabilitySet::empty()));
}

#[test]
fn a_server_of_a_mount_keeps_the_rights_on_files_and_nothing_else_of_root() {
    assert!(rustix::process::geteuid().is_root(), "this test gives up capabilities: run it as root");
    let before = capabilities(None).unwrap().effective;
    let some = CapabilitySet::CHOWN.union(CapabilitySet::SYS_ADMIN).union(CapabilitySet::SYS_PTRACE);
    assert!(before.contains(some), "root has fewer rights: {before:?}");
    assert!(Command::new("/bin/true").status().unwrap().success(), "before");
    give_up_capabilities(SandboxWish::On, OF_MOUNT).unwrap();
    let own = thread::spawn(move || little_is_left(before));
    own.join().expect("threads that begin afterwards have no more");
    enter(Served::Mount).unwrap();
    all_is_refused();
    thread::spawn(all_is_refused).join().expect("in each thread");
    // What the server does with the files of others.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    chown(&file, Some(rustix::fs::Uid::from_raw(1)), None).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o4000)).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"x");
    match setxattr(&file, "trusted.x", b"y", XattrFlags::empty()) {
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(errno) => panic!("{errno}"),
    }
    let device = rustix::fs::makedev(1, 3);
    mknodat(CWD, folder.path().join("null"), rustix::fs::FileType::CharacterDevice, Mode::RUSR, device).unwrap();
    UnixStream::pair().unwrap();
}
