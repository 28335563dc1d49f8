//! Debian's fio with the engine for direct mappings: its jobs find what they wrote, whoever is
//! killed, and a job that cannot be done is refused in clear words.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tidegate_measure::medium::remove_left_memory;
use tidegate_trials::artefacts::run;
use tidegate_trials::direct::{counted, with_direct_path};
use tidegate_trials::fio::engine;
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::served::{program, until};

const GUIDE: &str = include_str!("../../../docs/guide/mappings.md");

const MIB: u64 = 1 << 20;

/// fio's exit code when a signal ended its jobs.
const INTERRUPTED: i32 = 128;

/// A job of fio on a file, by the engine, with further options.
fn job(fio: &mut Command, options: &[&str]) {
    let engine = engine().unwrap_or_else(|missing| panic!("{missing}"));
    fio.arg("--name=job").arg("--filename=file").arg(format!("--ioengine=external:{}", engine.display()));
    fio.args(["--verify_state_save=0", "--output-format=terse"]).args(options).stdin(Stdio::null());
}

/// The job, in the mount and with the direct path.
fn mapped(testbed: &MountTestbed, options: &[&str]) -> Command {
    let mut fio = with_direct_path(testbed, "fio");
    job(&mut fio, options);
    fio
}

/// The job, to its good end.
fn done(testbed: &MountTestbed, options: &[&str]) {
    run(&mut mapped(testbed, options), "fio").unwrap_or_else(|error| panic!("{error}"));
}

/// What fio says of a file whose blocks it wrote, by plain reads in a directory.
fn verified(folder: &Path, options: &[&str]) -> Output {
    let mut fio = Command::new("fio");
    fio.args(["--name=verify", "--filename=file", "--ioengine=psync", "--rw=read", "--verify=crc32c"]);
    fio.args(["--verify_state_save=0", "--output-format=terse"]).args(options);
    fio.current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until no program has anything mapped, and all is written back.
fn until_below(testbed: &MountTestbed) {
    until("the mapping to end", || counted(testbed, "mapped_bytes") == 0);
    until("write-back", || counted(testbed, "out_of_sync_bytes") == 0);
}

/// Ends the mount, and demands that the bytes below are those of the mount.
fn end_with_equal_bytes(testbed: MountTestbed) {
    let bytes = fs::read(testbed.mountpoint().join("file")).unwrap();
    let ended = testbed.end();
    assert!(ended.is_written_back() && ended.read("file") == bytes);
}

/// Requests that a job's syncs and writes made.
fn requests(testbed: &MountTestbed, options: &[&str]) -> u64 {
    let before = counted(testbed, "requests");
    done(testbed, options);
    counted(testbed, "requests") - before
}

#[test]
fn jobs_find_what_they_stored_and_their_syncs_are_no_requests() {
    let testbed = MountTestbed::new();
    let plain = ["--filename=plain", "--rw=randwrite", "--verify=crc32c", "--bs=4k", "--size=8m", "--fsync=1"];
    let plain = requests(&testbed, &plain);
    assert!(plain > 2048, "a sync of the kernel's pages is a request: {plain}");
    done(&testbed, &["--rw=write", "--bs=4k", "--size=8m", "--create_only=1"]);
    let write = ["--rw=randwrite", "--verify=crc32c", "--verify_fatal=1", "--dax=1"];
    for options in [
        &["--bs=4k", "--size=8m", "--fsync=1"][..],
        &["--bs=4k", "--size=8m", "--fdatasync=1", "--thread", "--dax_pin=1", "--loops=2"],
        &["--bs=64", "--size=256k", "--sync=dsync", "--offset=1001k"],
        &["--bs=4k", "--size=8m", "--sync_file_range=write:1", "--end_fsync=1"],
    ] {
        let requests = requests(&testbed, &[&write[..], options].concat());
        // Of 2048 syncs and more. Opening a file may take as many as 200.
        assert!(requests < 1000, "{requests} requests with {options:?}");
        done(&testbed, &[&["--rw=randread", "--dax=1"][..], &options[..2]].concat());
    }
    until_below(&testbed);
    let read = ["--bs=4k", "--size=8m"];
    let (said, source) = (verified(&testbed.source(), &read), testbed.source());
    assert!(said.status.success(), "{}", stderr(&said));
    // It sees a byte that is another.
    let (mut bytes, file) = (fs::read(source.join("file")).unwrap(), testbed.beside().join("file"));
    bytes[5000] ^= 1;
    fs::write(file, bytes).unwrap();
    assert!(!verified(&testbed.beside(), &read).status.success());
    end_with_equal_bytes(testbed);
}

/// A job that goes on until it is told to end.
fn begun(testbed: &MountTestbed, bytes: u64) -> Child {
    until("the end of a former mapping", || counted(testbed, "mapped_bytes") == 0);
    let size = format!("--size={bytes}");
    let options = ["--rw=randwrite", "--bs=4k", "--fsync=1", "--dax=1", "--verify=crc32c", "--do_verify=0"];
    let mut fio = mapped(testbed, &[&options[..], &[&size, "--time_based", "--runtime=1h"]].concat());
    let fio = fio.stdout(Stdio::null()).spawn().unwrap();
    until("the job's mapping", || counted(testbed, "mapped_bytes") == bytes);
    fio
}

/// Tells a job to end after the write that it is at.
fn interrupt(mut fio: Child) {
    kill_process(Pid::from_child(&fio), Signal::INT).unwrap();
    let ended = fio.wait().unwrap();
    assert_eq!(ended.code(), Some(INTERRUPTED), "{ended}");
}

#[test]
fn what_a_job_synced_is_there_after_a_kill_of_the_server_and_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    let bytes = 4 * MIB;
    let size = format!("--size={bytes}");
    done(&testbed, &["--rw=write", "--bs=4k", &size, "--dax=1", "--verify=crc32c", "--do_verify=0", "--end_fsync=1"]);
    let fio = begun(&testbed, bytes);
    testbed.kill_server();
    until("the next server to know the mapping", || counted(&testbed, "mapped_bytes") == bytes);
    interrupt(fio);
    let read = ["--bs=4k", &size];
    let in_mount = verified(&testbed.mountpoint(), &read);
    assert!(in_mount.status.success(), "{}", stderr(&in_mount));
    interrupt(begun(&testbed, bytes));
    testbed.lose_power();
    testbed.mount_again();
    let after = verified(&testbed.mountpoint(), &read);
    assert!(after.status.success(), "{}", stderr(&after));
    done(&testbed, &["--rw=randread", "--bs=4k", &size, "--dax=1", "--verify=crc32c"]);
    until_below(&testbed);
    end_with_equal_bytes(testbed);
}

#[test]
fn a_file_longer_than_the_pools_room_keeps_what_a_job_wrote() {
    let testbed = MountTestbed::new();
    let job = ["--rw=randwrite", "--bs=4k", "--size=64m", "--io_size=4m", "--dax=1", "--fsync=64", "--verify=crc32c"];
    done(&testbed, &job);
    end_with_equal_bytes(testbed);
}

#[test]
fn a_job_that_cannot_be_mapped_is_refused_in_clear_words() {
    let testbed = MountTestbed::new();
    done(&testbed, &["--rw=write", "--bs=4k", "--size=8m", "--dax=1"]);
    let said = |fio: &mut Command| {
        let output = fio.output().unwrap();
        assert!(!output.status.success(), "{fio:?}");
        stderr(&output)
    };
    let of_job = ["--rw=randwrite", "--bs=4k"];
    for (options, word) in [
        (&["--size=8m", "--dax=2"][..], "max value out of range: 2"),
        (&["--size=8m", "--dax=-1"], "dax and dax_pin are 0 or 1"),
        (&["--size=8m", "--dax=on"], "dax"),
        (&["--size=8m", "--dax_pin=1"], "add dax=1"),
        (&["--size=8m", "--dax=1", "--direct=1"], "leave it out"),
        (&["--size=8m", "--dax=1", "--rw=randtrim"], "choose another rw="),
        (&["--size=64m", "--dax=1", "--dax_pin=1"], "a larger --pin-max of `tidegate mount`"),
    ] {
        let told = said(&mut mapped(&testbed, &[&of_job[..], options].concat()));
        assert!(told.contains(word), "no {word:?} in {told}");
    }
    fs::write(testbed.mountpoint().join("file"), [1; 10_000]).unwrap();
    let told = said(&mut mapped(&testbed, &["--rw=write", "--bs=100", "--size=10000", "--dax=1"]));
    assert!(told.contains("dax=1 maps whole pages"), "{told}");
    let other = fs::File::open(testbed.mountpoint().join("file")).unwrap();
    let told = said(&mut mapped(&testbed, &["--rw=write", "--bs=4k", "--size=8k", "--dax=1"]));
    assert!(told.contains("open elsewhere"), "{told}");
    drop(other);
    let mut outside = Command::new("fio");
    job(&mut outside, &["--rw=write", "--bs=4k", "--size=8k", "--dax=1"]);
    let told = said(outside.current_dir(testbed.mountpoint()));
    assert!(told.contains("mmap (dax=1): Operation not supported; start fio by `tidegate run`"), "{told}");
}

/// The lines of the guide between the next fence of this language and its end.
fn written(language: &str) -> &'static str {
    let after = GUIDE.split_once(&format!("\n```{language}\n")).expect("it is in the guide").1;
    after.split_once("\n```").expect("a fence has an end").0
}

#[test]
fn the_job_of_the_guide_works_as_written() {
    let engine = engine().unwrap_or_else(|missing| panic!("{missing}"));
    let (folder, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let job = written("ini");
    assert!(job.contains("external:./tidegate-mmap.so"), "{job}");
    fs::write(folder.path().join("job.fio"), job).unwrap();
    fs::copy(engine, folder.path().join("tidegate-mmap.so")).unwrap();
    let mut fio = Command::new(program());
    fio.args(["run", "--try", "--size", "128M", "--pool"]).arg(memory.path().join("pool")).arg("--root").arg(&root);
    fio.args(["--", "fio", "--directory"]).arg(&root).arg("job.fio").current_dir(folder.path()).stdin(Stdio::null());
    let output = fio.output().unwrap();
    remove_left_memory(memory.path());
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    let files = fs::read_dir(&root).unwrap().count();
    assert_eq!(files, 2, "a file for each of its jobs");
}
