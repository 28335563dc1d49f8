//! Programs that pin pages of the pool: what is pinned stays, all of a call is pinned or nothing,
//! and no program pins more than all may together.

use std::fs;
use tidegate_trials::direct::counted;
use tidegate_trials::mapper::Mapper;
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::served::until;

const PAGE: usize = 4096;
const EXTENT: usize = 256 << 10;
const MIB: usize = 1 << 20;

/// More than the pool has.
const LARGE: usize = 64 * MIB;

/// What programs may pin of a pool of 16 MiB if nothing else is said.
const MOST: usize = 2 * MIB;

const MCL_CURRENT: i32 = 1;
const MCL_FUTURE: i32 = 2;
const MCL_ONFAULT: i32 = 4;

fn make(testbed: &MountTestbed, name: &str, bytes: usize) {
    fs::write(testbed.mountpoint().join(name), vec![1; bytes]).expect("written");
}

/// Bytes that are pinned.
fn pinned(testbed: &MountTestbed) -> usize {
    usize::try_from(counted(testbed, "pinned_bytes")).expect("small")
}

/// A program that has a file mapped that is larger than the pool.
fn large(testbed: &MountTestbed) -> Mapper {
    make(testbed, "file", LARGE);
    Mapper::mapped(testbed, "file", LARGE)
}

/// Bytes that the kernel has locked of a program's memory, as it says.
fn locked_by_kernel(mapper: &Mapper) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", mapper.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("the kernel tells");
    line.trim().to_owned()
}

/// Bytes of the pool's file that the kernel has locked in a program's memory.
fn pool_locked_by_kernel(testbed: &MountTestbed, mapper: &Mapper) -> usize {
    let pool = testbed.pool().display().to_string();
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", mapper.pid())).expect("it runs");
    let (mut bytes, mut part) = (0, None);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("VmFlags:") if words.any(|flag| flag == "lo") => bytes += part.take().unwrap_or(0),
            Some(range) if !range.ends_with(':') => {
                let (start, end) = range.split_once('-').expect("a range");
                let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).expect("a number"));
                part = line.ends_with(&pool).then_some(end - start);
            }
            _ => {}
        }
    }
    bytes
}

#[test]
fn pinned_pages_stay_whatever_else_comes_and_without_a_service() {
    let mut testbed = MountTestbed::with_small_pool();
    let mut mapper = large(&testbed);
    mapper.does(&["lock 1048576 1048576", "locktouched 40000000 8192"]);
    assert_eq!(pinned(&testbed), MIB + EXTENT, "whole extents of those that are touched, too");
    assert_eq!(locked_by_kernel(&mapper), "0 kB");
    mapper.does(&["store 1048576 7 1048576", "store 40000000 8 10", "msync 1048576 1048576", "random 1 400"]);
    assert_eq!(mapper.says("drop 1048576 4096"), "EINVAL");
    assert_eq!(mapper.says("drop 786432 1048576"), "EINVAL", "some of it is pinned");
    let requests = counted(&testbed, "requests");
    let touch = |mapper: &mut Mapper| {
        for at in (MIB..2 * MIB).step_by(PAGE).chain([40_000_000]) {
            mapper.does(&[&format!("store {} 9 1", at + 100)]);
            assert_eq!(mapper.says(&format!("load {}", at + 100)), "9");
        }
    };
    touch(&mut mapper);
    let requests = counted(&testbed, "requests") - requests;
    assert!(requests < 10, "an extent that comes takes two, and here are five: {requests}");
    testbed.kill();
    touch(&mut mapper);
    testbed.mount_again();
    assert_eq!(pinned(&testbed), MIB + EXTENT, "the next service knows of it");
    mapper.does(&["unlock 1048576 1048576", "drop 786432 1048576"]);
    assert_eq!(pinned(&testbed), EXTENT);
    drop(mapper);
    until("the killed program to be gone", || pinned(&testbed) == 0);
    until("the mapping to end", || counted(&testbed, "mapped_bytes") == 0);
    let ended = testbed.end();
    assert!(ended.is_written_back() && ended.read("file")[MIB + 100] == 9);
}

#[test]
fn all_programs_together_pin_no_more_than_they_may() {
    let mut testbed = MountTestbed::with_small_pool();
    let mut one = large(&testbed);
    assert_eq!(counted(&testbed, "pinned_bytes_max"), MOST as u64);
    one.does(&["lock 0 1572864"]);
    assert_eq!(one.says("lock 0 2101248"), "ENOMEM");
    assert_eq!(pinned(&testbed), 1_572_864, "nothing more is pinned, and nothing less");
    assert_eq!(one.says("drop 1310720 4096"), "EINVAL", "what was pinned before still is");
    assert_eq!(one.says("lock 4194304 786432"), "ENOMEM");
    one.does(&["drop 4194304 786432"]);
    let mut two = Mapper::mapped(&testbed, "file", LARGE);
    assert_eq!(two.says("lock 0 524289"), "ENOMEM", "each is charged, and be it for the same pages");
    two.does(&["lock 0 524288", "lock 100000 5"]);
    assert_eq!(pinned(&testbed), MOST);
    testbed.kill_server();
    until("the next server to know", || pinned(&testbed) == MOST);
    assert_eq!(two.says("lock 1048576 4096"), "ENOMEM");
    drop(one);
    until("the killed program to be gone", || pinned(&testbed) == 524_288);
    two.does(&["lock 1048576 1048576", "random 5 100"]);
    assert_eq!(pinned(&testbed), 1_572_864);
}

#[test]
fn what_cannot_come_is_not_pinned_and_nothing_else_of_the_call() {
    let testbed = MountTestbed::with_options(&["--pool-size", "16M", "--pin-max", "1G"]);
    let mut mapper = large(&testbed);
    mapper.does(&["lock 0 262144"]);
    assert_eq!(mapper.says("lock 0 67108864"), "ENOMEM", "the pool has no room");
    assert_eq!(pinned(&testbed), EXTENT);
    assert_eq!(mapper.says("drop 0 4096"), "EINVAL");
    mapper.does(&["random 1 100", "drop 262144 66846720", "cut 33000000"]);
    assert_eq!(mapper.says("lock 32768000 524288"), "ENOMEM", "the file ends before it");
    assert_eq!(pinned(&testbed), EXTENT);
    // What comes when it is touched may be more than there is room for.
    mapper.does(&["unlockall", "locktouched 0 33554432"]);
    assert_eq!(pinned(&testbed), 32 * MIB);
    mapper.does(&["store 0 3 1048576", "unlock 0 33554432", "store 5000000 4 262144"]);
    assert_eq!(pinned(&testbed), 0);
}

#[test]
fn a_pin_ends_with_its_pages_and_its_process_and_no_child_has_it() {
    let testbed = MountTestbed::with_small_pool();
    let mut mapper = large(&testbed);
    mapper.does(&["lock 8192 4096", "lock 0 4096"]);
    assert_eq!(pinned(&testbed), EXTENT, "both are in one");
    mapper.does(&["lock 0 1048576", "unlock 262144 4096"]);
    assert_eq!(pinned(&testbed), MIB, "other pages of the extent are pinned");
    mapper.does(&["unlock 266240 258048"]);
    assert_eq!(pinned(&testbed), MIB - EXTENT);
    mapper.does(&["unmap 0 262144"]);
    assert_eq!(pinned(&testbed), MIB - 2 * EXTENT);
    mapper.does(&["other 524288 262144"]);
    assert_eq!(pinned(&testbed), EXTENT);
    mapper.does(&["unlockall"]);
    assert_eq!(pinned(&testbed), 0);
    mapper.does(&["lock 1048576 1048576", "child 1048576 5 10"]);
    assert_eq!(pinned(&testbed), MIB, "after the end of a child");
    mapper.does(&["fork"]);
    assert_eq!(pinned(&testbed), MIB, "what its parent has pinned");
    mapper.does(&["lock 1048576 262144"]);
    assert_eq!(pinned(&testbed), MIB + EXTENT, "and what it pins itself");
    mapper.does(&["unlock 1048576 1048576", "drop 1048576 1048576", "lock 1048576 262144", "exec"]);
    until("the other program", || pinned(&testbed) == MIB);
    mapper.exits();
    until("the parent to end", || pinned(&testbed) == 0);
    let mut mapper = Mapper::mapped(&testbed, "file", LARGE);
    mapper.does(&["lock 0 262144", "fork"]);
    mapper.kill();
    until("the killed parent to be gone", || pinned(&testbed) == 0);
    assert_eq!(mapper.says("load 2097152"), "1", "and the child goes on");
    drop(mapper);
    let mut mapper = Mapper::mapped(&testbed, "file", LARGE);
    mapper.does(&["lock 0 262144", "exec"]);
    until("the other program", || pinned(&testbed) == 0);
    mapper.does(&["open file rw"]);
}

#[test]
fn pages_that_are_always_present_are_pinned_too_and_other_memory_not_with_them() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", 64 * PAGE);
    let mut mapper = Mapper::mapped(&testbed, "file", 64 * PAGE);
    mapper.does(&["lock 100 8192", "store 0 2 8192", "protect 0 4096 none", "msync 0 262144"]);
    assert_eq!(pinned(&testbed), 3 * PAGE, "each page that the bytes lie in");
    mapper.does(&["unlock 4096 4096", "other 131072 4096"]);
    assert_eq!(pinned(&testbed), 2 * PAGE);
    assert_eq!(mapper.says("lock 0 262144"), "EINVAL", "some of it is not the pool's");
    assert_eq!((pinned(&testbed), locked_by_kernel(&mapper)), (2 * PAGE, "0 kB".to_owned()));
    mapper.does(&["lock 131072 4096"]);
    assert_eq!((pinned(&testbed), locked_by_kernel(&mapper)), (2 * PAGE, "4 kB".to_owned()));
    mapper.does(&["unlock 0 262144"]);
    assert_eq!((pinned(&testbed), locked_by_kernel(&mapper)), (0, "0 kB".to_owned()));
    // A child has the mapping, and what its parent has pinned is not its own.
    mapper.does(&["lock 0 131072", "fork"]);
    assert_eq!(pinned(&testbed), 32 * PAGE);
    mapper.does(&["lock 8192 4096", "unlock 0 131072", "unmap 0 131072"]);
    assert_eq!(pinned(&testbed), 32 * PAGE);
    drop(mapper);
    until("all of them to end", || pinned(&testbed) == 0);
}

#[test]
fn mlockall_pins_what_is_mapped_and_what_will_be() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "small", MIB);
    make(&testbed, "other", MIB);
    let mut mapper = large(&testbed);
    assert_eq!(mapper.says(&format!("lockall {MCL_CURRENT}")), "ENOMEM", "there is too much of it");
    assert_eq!((pinned(&testbed), locked_by_kernel(&mapper)), (0, "0 kB".to_owned()));
    mapper.does(&["unmap 0 67108864", "close", "open small rw", "map paged 0 1048576"]);
    mapper.does(&[&format!("lockall {MCL_CURRENT}")]);
    let locked = pool_locked_by_kernel(&testbed, &mapper);
    assert!(locked < EXTENT, "{locked} bytes are counted twice");
    mapper.does(&[&format!("lockall {}", MCL_CURRENT | MCL_FUTURE)]);
    assert_eq!(pinned(&testbed), MIB);
    assert_eq!(mapper.says("drop 0 4096"), "EINVAL");
    mapper.does(&["close", "open other rw", "map direct 0 262144"]);
    assert_eq!(pinned(&testbed), MIB + EXTENT);
    mapper.does(&["map paged 262144 262144"]);
    assert_eq!((pinned(&testbed), mapper.says("drop 0 4096")), (MIB + 2 * EXTENT, "EINVAL".into()));
    mapper.does(&["close", "open file rw"]);
    assert_eq!(mapper.says("map direct 0 67108864"), "EAGAIN");
    assert_eq!(mapper.says("map paged 0 1048576"), "EAGAIN");
    assert_eq!(pinned(&testbed), MIB + 2 * EXTENT);
    mapper.does(&["unlockall", "map paged 0 262144", &format!("lockall {}", MCL_CURRENT | MCL_ONFAULT)]);
    assert_eq!((pinned(&testbed), locked_by_kernel(&mapper) == "0 kB"), (MIB + 3 * EXTENT, false));
}
