//! Programs that map files as on any file system, under `tidegate run --upgrade-mappings`: mappings
//! that they sync again and again show pages of the pool, and others find the files as if they did
//! not.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tidegate_trials::direct::counted;
use tidegate_trials::mapper::{Mapper, store_random};
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::served::until;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A program that has mapped all of a new file, and synced it so often that it is upgraded.
fn upgraded(testbed: &MountTestbed, name: &str, bytes: usize) -> Mapper {
    fs::write(testbed.mountpoint().join(name), vec![1; bytes]).expect("written");
    let before = counted(testbed, "mappings_upgraded");
    let mut mapper = Mapper::upgraded(testbed);
    mapper.does(&[&format!("open {name} rw"), &format!("map shared 0 {bytes}"), "count 0 4096 8"]);
    assert_eq!(counted(testbed, "mappings_upgraded"), before + 1);
    mapper
}

/// This process reads the file as any other.
fn read(testbed: &MountTestbed, name: &str) -> Vec<u8> {
    fs::read(testbed.mountpoint().join(name)).expect("readable")
}

#[test]
fn a_mapping_that_is_synced_often_needs_no_requests_until_somebody_wants_the_file() {
    let testbed = MountTestbed::new();
    let mut mapper = upgraded(&testbed, "file", 2 * MIB);
    assert!(counted(&testbed, "mapped_bytes") > 0, "the pages that were touched are there");
    let before = counted(&testbed, "requests");
    mapper.does(&["count 70000 4096 5000", "store 100 5 10", "store 2000000 6 10"]);
    let requests = counted(&testbed, "requests") - before;
    assert!(requests < 100, "{requests} requests");
    // Synced or not, others see it. The last of 5000 bytes that were counted there is 135.
    let mut expected = vec![1; 2 * MIB];
    (expected[0], expected[70_000]) = (7, 135);
    expected[100..110].fill(5);
    expected[2_000_000..2_000_010].fill(6);
    assert!(read(&testbed, "file") == expected);
    assert_eq!(counted(&testbed, "mappings_recalled"), 1);
    let mut other = Mapper::plain(&testbed);
    other.does(&["open file rw", "map shared 0 2097152", "store 5000 9 1"]);
    mapper.does(&["store 6000 8 1"]);
    assert_eq!((mapper.says("load 5000"), other.says("load 6000")), ("9".into(), "8".into()), "both have one page");
    mapper.does(&["count 70000 4096 200"]);
    assert_eq!(counted(&testbed, "mappings_upgraded"), 1, "the other one has the file open");
    drop(other);
    until("the other one to be gone", || {
        mapper.does(&["count 70000 4096 200"]);
        counted(&testbed, "mappings_upgraded") == 2
    });
    mapper.does(&["store 100 4 10"]);
    expected[100..110].fill(4);
    (expected[5000], expected[6000], expected[70_000]) = (9, 8, 199);
    drop(mapper);
    assert!(read(&testbed, "file") == expected, "a program that is killed loses nothing");
    let ended = testbed.end();
    assert!(ended.is_written_back() && ended.read("file") == expected);
}

/// Threads store and sync all the time, while others open, read and write the file: nothing is lost
/// at any of the changes between the kernel's pages and the pool's.
#[test]
fn threads_lose_no_store_while_their_mapping_comes_and_goes() {
    let testbed = MountTestbed::new();
    let bytes = 4 * MIB;
    let mut mapper = upgraded(&testbed, "file", bytes);
    let mut expected = vec![1; bytes];
    let is_over = AtomicBool::new(false);
    let path = testbed.mountpoint().join("file");
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
                let mut page = [0; PAGE];
                file.read_exact_at(&mut page, (rounds * 4096) % (bytes as u64)).expect("read");
                rounds += 1;
                drop(file);
                // The program upgrades it again meanwhile.
                let upgrades = counted(&testbed, "mappings_upgraded");
                until("the next upgrade", || {
                    is_over.load(Ordering::Relaxed) || counted(&testbed, "mappings_upgraded") > upgrades
                });
            }
            rounds
        });
        for round in 0..6 {
            mapper.does(&[&format!("threads {round} 20000")]);
            store_random(&mut expected, round, 20_000, 4);
        }
        is_over.store(true, Ordering::Relaxed);
        others.join().expect("it ended");
    });
    assert!(counted(&testbed, "mappings_recalled") > 0);
    let found = read(&testbed, "file");
    // The first byte was stored to before them.
    assert_eq!((1..bytes).find(|at| found[*at] != expected[*at]), None, "a store is lost");
    drop(mapper);
    assert!(testbed.end().is_written_back());
}

#[test]
fn what_the_kernel_does_with_its_own_pages_is_done_with_them() {
    let testbed = MountTestbed::new();
    let bytes = 64 * PAGE;
    let recalled = || counted(&testbed, "mappings_recalled");
    for (number, lines) in [
        &["cut 100000", "load 99999", "cut 262144"][..],
        &["lock 0 8192", "unlock 0 8192"],
        &["lockall 1", "unlockall"],
        &["punch", "store 5000 7 3"],
        &["fork", "load 100"],
        &["map shared 0 8192", "load 10"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("file{number}");
        let mut mapper = upgraded(&testbed, &name, bytes);
        mapper.does(&["store 5000 7 3"]);
        let before = recalled();
        for line in lines {
            let said = mapper.says(line);
            assert!(said == "ok" || said.parse::<u8>().is_ok(), "{line}: {said}");
        }
        assert_eq!(recalled(), before + 1, "{lines:?}");
        assert_eq!(mapper.says("load 5001"), "7", "{lines:?}");
        drop(mapper);
        assert!(read(&testbed, &name)[5000..5003] == [7; 3], "{lines:?}");
    }
    let before = recalled();
    let mut mapper = upgraded(&testbed, "moved", bytes);
    mapper.does(&["store 5000 7 3", "move"]);
    assert_eq!(recalled(), before + 1, "its addresses are the kernel's to give");
    drop(mapper);
    assert!(read(&testbed, "moved")[5000..5003] == [7; 3]);
}

/// The program reads and writes the file by its descriptor too.
#[test]
fn its_own_reads_see_what_it_stored() {
    let testbed = MountTestbed::new();
    let mut mapper = upgraded(&testbed, "file", 16 * PAGE);
    for turn in 2..40 {
        mapper.does(&[&format!("store 5000 {turn} 1")]);
        assert_eq!(mapper.says("read 5000"), turn.to_string());
        mapper.does(&[&format!("write 9000 {turn} 100")]);
        assert_eq!((mapper.says("load 9099"), mapper.says("read 9000")), (turn.to_string(), turn.to_string()));
    }
    assert_eq!(mapper.says("reread 20000 2000"), "0", "reads that find older bytes");
    mapper.does(&["store 5000 39 1"]);
    mapper.does(&["protect 4096 4096 none", "protect 4096 4096 rw", "unmap 8192 4096", "msync 0 8192", "fsync"]);
    assert_eq!((mapper.says("load 5000"), mapper.says("probe 9000")), ("39".into(), "SEGV".into()));
    assert_eq!(counted(&testbed, "mappings_recalled"), 1, "the fork of the probe");
    drop(mapper);
    assert!(testbed.end().is_written_back());
}

#[test]
fn what_was_synced_is_there_after_a_kill_of_the_server_and_of_all() {
    let mut testbed = MountTestbed::on_own_disk();
    let mut mapper = upgraded(&testbed, "file", 16 * PAGE);
    mapper.does(&["store 5000 2 10", "msync 4096 4096"]);
    testbed.kill_server();
    mapper.does(&["store 9000 3 10", "store 60000 4 10", "msync 0 65536"]);
    // The next server knows of the mapping, and has it recalled.
    let mut expected = vec![1; 16 * PAGE];
    expected[0] = 7;
    [(5000, 2), (9000, 3), (60_000, 4)].into_iter().for_each(|(at, byte)| expected[at..at + 10].fill(byte));
    assert!(read(&testbed, "file") == expected);
    assert_eq!(counted(&testbed, "mappings_recalled"), 1);
    let before = counted(&testbed, "mappings_upgraded");
    until("the next upgrade", || {
        mapper.does(&["store 5000 5 10", "msync 4096 4096"]);
        counted(&testbed, "mappings_upgraded") > before
    });
    mapper.does(&["store 9000 6 10", "msync 8192 4096"]);
    drop(mapper);
    testbed.lose_power();
    testbed.mount_again();
    expected[5000..5010].fill(5);
    expected[9000..9010].fill(6);
    assert!(read(&testbed, "file") == expected, "the power was lost");
    assert!(testbed.end().is_written_back());
}

/// A program that is stopped does not give its pages back. Who opens the file waits a moment, and
/// uses it without pages of the kernel's.
#[test]
fn nobody_waits_for_ever_for_a_program_that_is_stopped() {
    let testbed = MountTestbed::new();
    let mut mapper = upgraded(&testbed, "file", 16 * PAGE);
    mapper.does(&["store 5000 2 10"]);
    let pid = rustix::process::Pid::from_raw(mapper.pid().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    let file = File::open(testbed.mountpoint().join("file")).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5005).expect("read");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("goes on");
    assert_eq!(byte, [2]);
    mapper.does(&["store 5000 3 10", "msync 0 65536"]);
    until("it to be read", || {
        file.read_exact_at(&mut byte, 5005).expect("read");
        byte == [3]
    });
}

/// Others have the file open, or map it: the program's mapping stays the kernel's.
#[test]
fn a_file_that_others_use_is_not_upgraded() {
    let testbed = MountTestbed::new();
    fs::write(testbed.mountpoint().join("file"), vec![1; 64 * PAGE]).expect("written");
    let other = File::open(testbed.mountpoint().join("file")).expect("opened");
    let mut mapper = Mapper::upgraded(&testbed);
    mapper.does(&["open file rw", "map shared 0 262144", "count 0 4096 100"]);
    assert_eq!(counted(&testbed, "mappings_upgraded"), 0, "another process has it open");
    drop(other);
    let mut twice = Mapper::upgraded(&testbed);
    fs::write(testbed.mountpoint().join("twice"), vec![1; 64 * PAGE]).expect("written");
    twice.does(&["open twice rw", "map shared 4096 8192", "map shared 0 262144", "count 0 4096 100"]);
    assert_eq!(counted(&testbed, "mappings_upgraded"), 0, "it is mapped twice");
    let mut forked = Mapper::upgraded(&testbed);
    fs::write(testbed.mountpoint().join("forked"), vec![1; 64 * PAGE]).expect("written");
    forked.does(&["open forked rw", "map shared 0 262144", "probe 0", "count 0 4096 100"]);
    assert_eq!(counted(&testbed, "mappings_upgraded"), 0, "a child has its descriptor");
}
