//! A SIGBUS that no leaf routine met takes its old course: each case runs in a process of its own,
//! and ends it.

use crate::memory::{Mapping, Sharing};
use rustix::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs one of the ignored tests below in a new process.
fn in_new_process(test: &str) -> ExitStatus {
    let name = format!("memory::sigbus::tests::{test}");
    let test_program = std::env::current_exe().expect("a program");
    let output = Command::new(test_program).args(["--exact", &name, "--ignored"]).output().expect("runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "{name} exists");
    output.status
}

/// Maps a page of a file, cuts the file short, and loads from the page with no leaf routine.
fn fault_outside_the_leaf_routines() {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(4096).expect("grows");
    let mapping = Mapping::of_file(file.as_fd(), 4096, Sharing::Shared).expect("maps");
    file.set_len(0).expect("shrinks");
    // SAFETY: the address is mapped; the fault is what is wanted.
    unsafe { mapping.base.as_ptr().read_volatile() };
}

#[test]
fn a_fault_elsewhere_ends_the_process_as_ever() {
    assert_eq!(in_new_process("child_faults_elsewhere").signal(), Some(libc::SIGBUS));
}

#[test]
#[ignore = "ends its process; run by the test above"]
fn child_faults_elsewhere() {
    fault_outside_the_leaf_routines();
}

#[test]
fn a_fault_elsewhere_reaches_the_handler_of_before() {
    assert_eq!(in_new_process("child_has_a_handler_of_its_own").code(), Some(EXIT_OF_OWN));
}

const EXIT_OF_OWN: i32 = 77;

extern "C" fn own_handler(_: i32) {
    // SAFETY: async-signal-safe, and nothing runs after it.
    unsafe { libc::_exit(EXIT_OF_OWN) }
}

#[test]
#[ignore = "ends its process; run by the test above"]
fn child_has_a_handler_of_its_own() {
    // SAFETY: the handler has the signature that `signal` asks for, and is async-signal-safe.
    unsafe { libc::signal(libc::SIGBUS, own_handler as extern "C" fn(i32) as *const () as usize) };
    fault_outside_the_leaf_routines();
}

#[test]
fn a_signal_sent_by_somebody_goes_to_the_handler_of_before() {
    assert!(in_new_process("child_sends_itself_the_signal").success());
}

static RECEIVED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counting_handler(_: i32) {
    RECEIVED.fetch_add(1, Ordering::Relaxed);
}

#[test]
#[ignore = "changes its process's handler; run by the test above"]
fn child_sends_itself_the_signal() {
    // SAFETY: the handler has the signature that `signal` asks for, and is async-signal-safe.
    unsafe { libc::signal(libc::SIGBUS, counting_handler as extern "C" fn(i32) as *const () as usize) };
    let _mapping = Mapping::anonymous(4096).expect("maps");
    // SAFETY: a handler is installed.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(RECEIVED.load(Ordering::Relaxed), 1);
}
