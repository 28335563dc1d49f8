//! Descriptors of leased files that are changed by their copies, by other processes, or within
//! libc: the next write does what it does without the direct path.

use std::process::Command;
use tidegate_trials::artefacts::run;
use tidegate_trials::direct::{counted, with_direct_path};
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::programs::SHARER;

/// Runs the program in each of these ways: on plain files, which says that it demands what is so,
/// and in a mount with the direct path, where each way has a lease.
fn is_as_on_plain_files(ways: &[&str]) {
    let program = SHARER.build().unwrap_or_else(|missing| panic!("{missing}"));
    let program = program.to_str().expect("a plain path");
    let testbed = MountTestbed::new();
    let mut failed = Vec::new();
    for way in ways {
        let names = [format!("{way}.first"), format!("{way}.second")];
        let mut plain = Command::new(program);
        plain.current_dir(testbed.beside()).arg(way).args(&names);
        run(&mut plain, "it is built here").unwrap_or_else(|failure| panic!("on plain files, {way}: {failure}"));
        let before = counted(&testbed, "leases_granted");
        if let Err(failure) = run(with_direct_path(&testbed, program).arg(way).args(&names), "it is built here") {
            failed.push(format!("{way}: {failure}"));
        }
        assert!(counted(&testbed, "leases_granted") > before, "{way} had no lease");
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_flag_that_a_copy_of_the_descriptor_sets_counts_for_all() {
    is_as_on_plain_files(&["dup", "dup2", "__dup2", "dup3", "F_DUPFD"]);
}

#[test]
fn a_flag_that_another_process_sets_counts_too() {
    is_as_on_plain_files(&["fork", "vfork", "posix_spawn", "system", "popen", "message"]);
}

#[test]
fn a_stream_that_is_opened_again_leads_to_its_new_file() {
    is_as_on_plain_files(&["freopen", "freopen64"]);
}

#[test]
fn a_limit_of_file_sizes_counts_from_when_it_is_set() {
    is_as_on_plain_files(&["setrlimit", "prlimit", "ulimit"]);
}
