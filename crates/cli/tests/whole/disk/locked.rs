//! Regions and disks that another process has for itself, for a while.

use super::{IN_USE, Pair, assert_tells};
use crate::program::{run, tidegate};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A process that has the lock of `path`, and lets go when its input ends.
fn locker(path: &str) -> Child {
    let mut locker = Command::new("flock");
    locker.args([path, "sh", "-c", "echo locked; read -r line"]);
    let mut locker = locker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 7];
    locker.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    locker
}

/// Runs a command that meets the lock of `path`, which is given up as soon as the command says that
/// it waits.
#[track_caller]
fn assert_waits(arguments: &[&str], path: &str) {
    let mut holder = locker(path);
    let mut waiter = tidegate();
    let mut waiter = waiter.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiter.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.by_ref().find(|line| line.contains("waiting for it")).unwrap_or_default();
    drop(holder.stdin.take());
    let rest: Vec<String> = lines.collect();
    assert_eq!(waiter.wait().unwrap().code(), Some(0), "{arguments:?}: {said} {rest:?}");
    for phrase in [path, &format!("process {} (flock)", holder.id())] {
        assert!(said.contains(phrase), "{said}");
    }
    assert!(!rest.iter().any(|line| line.contains("waiting for it")), "{rest:?}");
    holder.wait().unwrap();
}

#[test]
fn a_lock_that_is_given_up_is_waited_for() {
    let pair = Pair::new();
    let copy = pair.folder.text("copy");
    let volume = pair.folder.volume("alone");
    for (arguments, path) in [
        (&["flush", "--pmem", &pair.pmem][..], &pair.pmem),
        (&["flush", "--pmem", &pair.pmem], &pair.disk),
        (&["check", "--pmem", &pair.pmem], &pair.pmem),
        (&["scrub", "--pmem", &pair.pmem], &pair.pmem),
        (&["salvage", "--pmem", &pair.pmem, "--to", &copy], &pair.pmem),
        (&["resize", "--pmem", &pair.pmem, "--size", "6M"], &pair.pmem),
        (&["detach", "--pmem", &pair.pmem], &pair.disk),
        (&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk], &pair.disk),
        (&["check", "--pmem", &volume], &volume),
        (&["create", "--force", "--pmem", &volume, "--size", "64M"], &volume),
    ] {
        assert_waits(arguments, path);
    }
}

#[test]
fn a_server_waits_for_the_lock_of_its_disk() {
    let pair = Pair::new();
    let mut holder = locker(&pair.disk);
    let mut serve = tidegate();
    serve.args(["serve", "--pmem", &pair.pmem, "--listen", &format!("unix:{}", pair.folder.text("s"))]);
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let waits = errors.any(|line| line.contains(&format!("process {} (flock)", holder.id())));
    drop(holder.stdin.take());
    let serves = BufReader::new(server.stdout.take().unwrap()).lines().any(|line| line.unwrap().starts_with("serving"));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(waits && serves);
    holder.wait().unwrap();
}

#[test]
fn a_server_that_goes_on_is_not_waited_for() {
    let pair = Pair::new();
    let server = pair.serve(&[]);
    let second = run(&["serve", "--pmem", &pair.pmem, "--listen", &format!("unix:{}", pair.folder.text("t"))]);
    assert_tells(&second, IN_USE, &["is in use", &format!("process {} (tidegate)", server.pid())]);
    assert!(!second.stderr.contains("waiting"), "{}", second.stderr);
}
