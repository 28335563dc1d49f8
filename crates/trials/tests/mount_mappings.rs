//! Programs that map pages of the pool: what they made durable is there, whoever is killed, and
//! everybody sees what they stored.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_trials::direct::counted;
use tidegate_trials::mapper::{Mapper, store_random};
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::served::until;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn make(testbed: &MountTestbed, name: &str, bytes: usize) {
    fs::write(testbed.mountpoint().join(name), vec![1; bytes]).expect("written");
}

fn read(testbed: &MountTestbed, name: &str) -> Vec<u8> {
    fs::read(testbed.mountpoint().join(name)).expect("readable")
}

/// Waits until no program has anything mapped, and all is written back.
fn until_below(testbed: &MountTestbed) {
    until("the mapping to end", || counted(testbed, "mapped_bytes") == 0);
    until("write-back", || counted(testbed, "out_of_sync_bytes") == 0);
}

/// The bytes of a file of four pages, of which some were stored to.
fn expected(bytes: usize, stored: &[(usize, u8, usize)]) -> Vec<u8> {
    let mut all = vec![1; bytes];
    stored.iter().for_each(|(at, byte, len)| all[*at..*at + *len].fill(*byte));
    all
}

#[test]
fn what_is_mapped_is_seen_by_all_and_is_below_in_the_end() {
    let testbed = MountTestbed::new();
    make(&testbed, "file", 3 * MIB + 100);
    let mut mapper = Mapper::mapped(&testbed, "file", 3 * MIB);
    assert_eq!(counted(&testbed, "mapped_bytes"), 3 * MIB as u64);
    mapper.does(&["store 5000 7 3000", "msync 4096 4096", "store 2000000 8 9"]);
    let stored = [(5000, 7, 3000), (2_000_000, 8, 9)];
    assert!(read(&testbed, "file") == expected(3 * MIB + 100, &stored));
    let mut other = Mapper::start(&testbed);
    other.does(&["open file rw", "write 9000 6 10"]);
    assert_eq!((mapper.says("load 9009"), mapper.says("load 9010")), ("6".into(), "1".into()));
    assert_eq!(other.says("map shared 0 4096"), "ENODEV", "the kernel keeps none of its pages");
    other.does(&["map direct 4096 8192", "store 0 5 1", "fsync"]);
    assert_eq!(mapper.says("load 4096"), "5", "both have one page");
    mapper.does(&["store 100 9 1"]);
    assert_eq!((mapper.says("read 100"), mapper.says("read 4096")), ("9".into(), "5".into()));
    mapper.does(&["store 100 4 1", "child 200 3 5", "fsync", "close"]);
    drop(other);
    assert_eq!(mapper.says("load 200"), "3", "its child has the pages too");
    drop(mapper);
    until_below(&testbed);
    let ended = testbed.end();
    let stored = [(5000, 7, 3000), (2_000_000, 8, 9), (9000, 6, 10), (4096, 5, 1), (100, 4, 1), (200, 3, 5)];
    assert!(ended.is_written_back() && ended.read("file") == expected(3 * MIB + 100, &stored));
}

/// The kernel keeps pages for the descriptor by which the file was mapped.
#[test]
fn a_write_over_mapped_pages_hides_no_store_from_its_descriptor() {
    let testbed = MountTestbed::new();
    make(&testbed, "file", 8 * PAGE);
    let mut mapper = Mapper::mapped(&testbed, "file", 4 * PAGE);
    for (turn, line) in [(2, "write 0 5 32768"), (3, "write 100 6 16384"), (4, "write 4096 8 4096")] {
        mapper.does(&[line, &format!("store 5000 {turn} 1"), "msync 4096 4096"]);
        until("the store to be read", || mapper.says("read 5000") == turn.to_string());
    }
}

#[test]
fn a_file_can_be_cut_as_soon_as_it_is_unmapped() {
    let testbed = MountTestbed::new();
    make(&testbed, "file", 8 * PAGE);
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw"]);
    for _ in 0..20 {
        mapper.does(&["cut 32768", "map direct 0 32768", "unmap 8192 8192", "unmap 0 32768", "cut 100"]);
    }
    mapper.does(&["cut 32768", "map direct 0 32768", "unmap 0 16384"]);
    assert_eq!(mapper.says("cut 20000"), "ETXTBSY", "some of it is mapped still");
    assert_eq!(mapper.says("read 30000"), "0");
}

#[test]
fn an_msync_needs_no_request() {
    let testbed = MountTestbed::new();
    make(&testbed, "file", 2 * MIB);
    let mut mapper = Mapper::mapped(&testbed, "file", 2 * MIB);
    let before = counted(&testbed, "requests");
    mapper.does(&["count 70000 2097152 5000"]);
    let requests = counted(&testbed, "requests") - before;
    assert!(requests < 100, "{requests} requests");
}

#[test]
fn what_was_synced_is_there_after_a_kill_of_program_server_and_service() {
    let mut testbed = MountTestbed::on_own_disk();
    make(&testbed, "file", 4 * PAGE);
    make(&testbed, "other", 4 * MIB);
    let mut mapper = Mapper::mapped(&testbed, "file", 4 * PAGE);
    mapper.does(&["store 10 2 5", "msync 0 16384"]);
    testbed.kill_server();
    // What the next server gives to others is not what the program has mapped.
    make(&testbed, "more", 40 * MIB);
    mapper.does(&["store 5000 3 5", "msync 0 16384"]);
    assert!(read(&testbed, "file") == expected(4 * PAGE, &[(10, 2, 5), (5000, 3, 5)]));
    assert!(read(&testbed, "more") == vec![1; 40 * MIB]);
    until("the next server to know the mapping", || counted(&testbed, "mapped_bytes") == 4 * PAGE as u64);
    drop(mapper);
    until_below(&testbed);
    let mut mapper = Mapper::mapped(&testbed, "file", 4 * PAGE);
    mapper.does(&["store 9000 4 5", "msync 8192 4096"]);
    testbed.kill();
    drop(mapper);
    testbed.mount_again();
    let stored = [(10, 2, 5), (5000, 3, 5), (9000, 4, 5)];
    assert!(read(&testbed, "file") == expected(4 * PAGE, &stored));
    let mut mapper = Mapper::mapped(&testbed, "file", 4 * PAGE);
    mapper.does(&["store 13000 5 5", "msync 12288 4096"]);
    drop(mapper);
    testbed.lose_power();
    testbed.mount_again();
    let stored = [(10, 2, 5), (5000, 3, 5), (9000, 4, 5), (13_000, 5, 5)];
    assert!(read(&testbed, "file") == expected(4 * PAGE, &stored));
    let ended = testbed.end();
    assert!(ended.is_written_back() && ended.read("file") == expected(4 * PAGE, &stored));
}

/// A program that writes by a lease has memory of the pool mapped, too, and owns it.
#[test]
fn memory_of_a_lease_is_not_taken_for_mapped_pages_by_the_next_server() {
    let mut testbed = MountTestbed::new();
    make(&testbed, "file", PAGE);
    let mut writer = Mapper::start(&testbed);
    writer.does(&["open file rw"]);
    for page in 0..16 {
        writer.does(&[&format!("write {} 7 4096", page * PAGE), "fsync"]);
    }
    assert!(counted(&testbed, "leases_granted") > 0);
    testbed.kill_server();
    assert_eq!(counted(&testbed, "mapped_bytes"), 0);
    writer.does(&["cut 10000", "write 4096 8 100", "fsync", "cut 4100"]);
    drop(writer);
    let ended = testbed.end();
    assert!(ended.is_written_back() && ended.read("file") == [vec![7; PAGE], vec![8; 4]].concat());
}

/// The service ends, and the program has its pages still: whoever has the pool next leaves them.
#[test]
fn a_program_that_outlives_the_service_keeps_its_pages() {
    let mut testbed = MountTestbed::new();
    make(&testbed, "file", 4 * PAGE);
    let mut mapper = Mapper::mapped(&testbed, "file", 4 * PAGE);
    mapper.does(&["store 10 2 5", "msync 0 16384"]);
    testbed.kill();
    testbed.mount_again();
    assert_eq!(counted(&testbed, "mapped_bytes"), 4 * PAGE as u64);
    make(&testbed, "more", 40 * MIB);
    mapper.does(&["store 5000 3 5", "msync 0 16384"]);
    assert!(read(&testbed, "file") == expected(4 * PAGE, &[(10, 2, 5), (5000, 3, 5)]));
    assert!(read(&testbed, "more") == vec![1; 40 * MIB]);
    drop(mapper);
    until_below(&testbed);
    assert!(testbed.end().is_written_back());
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", 8 * PAGE + 100);
    make(&testbed, "long", 20 * MIB);
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw"]);
    for (line, errno) in [
        ("map direct 100 4096", "EINVAL"),
        ("map direct 0 0", "EINVAL"),
        ("map direct 32768 4096", "EINVAL"),
        ("map direct 0 40960", "EINVAL"),
        ("map direct 409600 4096", "EINVAL"),
        ("map private 0 4096", "EINVAL"),
    ] {
        assert_eq!(mapper.says(line), errno, "{line}");
    }
    assert_eq!(counted(&testbed, "mapped_bytes"), 0);
    // The flag means nothing without the demand to understand it.
    mapper.does(&["map plain 0 4096", "unmap 0 4096", "map direct 0 4095", "map direct 4096 16384"]);
    assert_eq!((mapper.says("move"), mapper.says("punch")), ("EINVAL".into(), "EOPNOTSUPP".into()));
    assert_eq!(mapper.says("cut 5000"), "ETXTBSY");
    mapper.does(&["cut 50000", "protect 0 4096 r", "protect 0 4096 rw", "unmap 4096 4096", "store 0 2 4096"]);
    mapper.does(&["msync 0 4096", "map fixed 0 8192", "store 4096 3 1", "msync 0 8192", "close"]);
    mapper.does(&["open long rw"]);
    assert_eq!(mapper.says("map whole 0 20971520"), "ENOMEM", "all of it is to be present");
    mapper.does(&["close", "open long ro"]);
    assert_eq!(mapper.says("map direct 0 4096"), "EACCES");
    let mut plain = Mapper::plain(&testbed);
    plain.does(&["open file rw"]);
    assert_eq!(plain.says("map direct 0 4096"), "EOPNOTSUPP", "the kernel knows no such flag");
    drop((mapper, plain));
    until_below(&testbed);
    let bytes = read(&testbed, "file");
    assert_eq!((bytes.len(), bytes[4096], bytes[4097], bytes[8191]), (50_000, 3, 2, 2));
    assert!(testbed.end().is_written_back());
}

/// Somebody else has the file open, and the kernel keeps pages for him.
#[test]
fn a_file_that_others_had_open_before_is_not_mapped() {
    let testbed = MountTestbed::new();
    make(&testbed, "file", 4 * PAGE);
    let other = fs::File::open(testbed.mountpoint().join("file")).expect("it is there");
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw"]);
    assert_eq!(mapper.says("map direct 0 4096"), "EBUSY");
    drop(other);
    until("the file to be closed", || mapper.says("map direct 0 4096") == "ok");
}

#[test]
fn a_file_that_was_mapped_by_the_kernel_is_mapped_once_no_program_has_it_open() {
    let testbed = MountTestbed::new();
    make(&testbed, "file", 4 * PAGE);
    let mut other = Mapper::start(&testbed);
    other.does(&["open file rw", "map shared 0 4096", "store 0 7 100", "msync 0 4096"]);
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw"]);
    assert_eq!(mapper.says("map direct 0 4096"), "EBUSY");
    mapper.does(&["close"]);
    other.exits();
    // The kernel tells the service of closed files later.
    until("the file to be closed", || counted(&testbed, "open") == 0);
    mapper.does(&["open file rw", "map direct 0 4096"]);
    mapper.exits();
    until_below(&testbed);
    assert_eq!(read(&testbed, "file")[..101], expected(101, &[(0, 7, 100)]));
    assert!(testbed.end().is_written_back());
}

/// When a file was changed last, as programs see it. The clock's next tick comes before this
/// returns, so what is changed from now on has another time.
fn changed(testbed: &MountTestbed, name: &str) -> SystemTime {
    let seen = fs::metadata(testbed.mountpoint().join(name)).expect("it is there").modified().expect("a time");
    let now = || clock_gettime(ClockId::RealtimeCoarse);
    let before = now();
    until("the next tick of the clock", || now() != before);
    seen
}

#[test]
fn a_store_changes_the_time_of_the_file_when_it_is_synced_or_unmapped() {
    let testbed = MountTestbed::new();
    let bytes = 64 * PAGE;
    make(&testbed, "file", bytes);
    let mut mapper = Mapper::mapped(&testbed, "file", bytes);
    let mut last = changed(&testbed, "file");
    let mut does = |lines: &[&str]| {
        mapper.does(lines);
        let (before, now) = (last, changed(&testbed, "file"));
        last = now;
        now > before
    };
    assert!(!does(&["msync 0 262144"]), "nothing was stored");
    assert!(does(&["store 5000 7 1", "msync 0 262144"]), "a page");
    assert!(does(&["store 9000 7 100000", "msync 0 262144"]), "many pages");
    assert!(!does(&["msync 131072 131072"]), "nothing was stored there");
    assert!(does(&["store 200000 7 1", "fsync"]), "a sync of the file");
    assert!(does(&["store 200000 8 1", "unmap 196608 4096"]), "unmapped");
    assert!(!does(&["unmap 204800 4096"]), "nothing was stored there");
    assert!(does(&["child 100000 9 5"]), "its child");
    let told = UNIX_EPOCH + Duration::new(981_173_106, 123_456_789);
    let file = fs::File::options().write(true).open(testbed.mountpoint().join("file")).expect("it is there");
    file.set_modified(told).expect("set");
    assert_eq!(changed(&testbed, "file"), told, "a time that is set counts from then on");
    mapper.does(&["store 70000 8 1", "msync 0 131072"]);
    assert!(changed(&testbed, "file") > told, "until the next store");
    file.set_modified(told).expect("set");
    drop((mapper, file));
    until_below(&testbed);
    let source = testbed.source().join("file");
    let ended = testbed.end();
    assert!(ended.is_written_back());
    assert!(fs::metadata(source).expect("it is there").modified().expect("a time") >= told);
}

/// As fio's jobs do. That nothing was stored only the kernel can tell.
#[test]
fn pages_that_a_child_mapped_itself_are_watched() {
    let testbed = MountTestbed::new();
    let bytes = 64 * PAGE;
    make(&testbed, "file", bytes);
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["fork", "open file rw", "map direct 0 262144"]);
    let mapped = changed(&testbed, "file");
    mapper.does(&["msync 0 262144"]);
    assert_eq!(changed(&testbed, "file"), mapped, "nothing was stored");
    mapper.does(&["store 5000 7 1", "msync 0 262144"]);
    let stored = changed(&testbed, "file");
    assert!(stored > mapped, "a page");
    mapper.does(&["fork", "msync 0 262144"]);
    assert!(changed(&testbed, "file") > stored, "what it inherits counts as stored to");
}

#[test]
fn the_time_of_the_last_store_is_known_however_its_program_ends() {
    let testbed = MountTestbed::new();
    let bytes = 64 * PAGE;
    make(&testbed, "file", bytes);
    let mut mapper = Mapper::mapped(&testbed, "file", bytes);
    let mapped = changed(&testbed, "file");
    mapper.does(&["store 5000 7 1"]);
    mapper.exits();
    until_below(&testbed);
    let ended = changed(&testbed, "file");
    assert!(ended > mapped, "it ended by itself");
    let mut mapper = Mapper::mapped(&testbed, "file", bytes);
    let mapped = changed(&testbed, "file");
    assert_eq!(mapper.says("load 5000"), "7");
    mapper.exits();
    until_below(&testbed);
    assert_eq!(changed(&testbed, "file"), mapped, "it stored nothing");
    let mut mapper = Mapper::mapped(&testbed, "file", bytes);
    let mapped = changed(&testbed, "file");
    mapper.does(&["store 5000 8 1"]);
    drop(mapper);
    until_below(&testbed);
    assert!(changed(&testbed, "file") > mapped, "it was killed");
    assert!(testbed.end().is_written_back());
}

#[test]
fn the_time_of_a_synced_store_survives_kills_and_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    let bytes = 64 * PAGE;
    make(&testbed, "file", bytes);
    let mut mapper = Mapper::mapped(&testbed, "file", bytes);
    let mapped = changed(&testbed, "file");
    mapper.does(&["store 10 2 5", "msync 0 262144"]);
    testbed.kill_server();
    let stored = changed(&testbed, "file");
    assert!(stored > mapped, "the server that could have asked was killed");
    testbed.kill();
    mapper.does(&["store 10 3 5", "msync 0 262144"]);
    testbed.mount_again();
    let stored_again = changed(&testbed, "file");
    assert!(stored_again > stored, "there was no service");
    mapper.does(&["store 10 4 5", "msync 0 262144"]);
    drop(mapper);
    testbed.lose_power();
    testbed.mount_again();
    let after = changed(&testbed, "file");
    assert!(after > stored_again, "the power was lost");
    let source = testbed.source().join("file");
    let ended = testbed.end();
    assert!(ended.is_written_back());
    assert_eq!(fs::metadata(source).expect("it is there").modified().expect("a time"), after, "in SOURCE");
}

/// The library flushes pages by their lines, which takes loads.
#[test]
fn pages_that_a_program_may_not_read_are_synced_and_the_others_with_them() {
    let mut testbed = MountTestbed::on_own_disk();
    let bytes = 64 * PAGE;
    make(&testbed, "file", bytes);
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw", "map barred 0 262144", "msync 0 262144", "msync 0 4096", "fsync"]);
    mapper.does(&["protect 0 262144 rw", "store 8190 7 4100", "store 81920 7 1", "protect 8192 4096 none"]);
    mapper.does(&["msync 0 262144", "msync 8192 4096", "msync 4096 12288", "fsync"]);
    assert_eq!(mapper.says("read 8192"), "7", "whoever reads the file has them");
    mapper.does(&["protect 0 262144 none", "msync 0 262144", "protect 4096 4096 r", "protect 8192 8192 rw"]);
    assert_eq!((mapper.says("load 8190"), mapper.says("load 12289")), ("7".into(), "7".into()));
    mapper.does(&["store 8192 8 1", "protect 8192 4096 none", "unmap 131072 131072"]);
    drop(mapper);
    testbed.lose_power();
    testbed.mount_again();
    let stored = [(8190, 7, 4100), (81_920, 7, 1), (8192, 8, 1)];
    assert!(read(&testbed, "file") == expected(bytes, &stored), "what was stored before counts as synced");
    assert!(testbed.end().is_written_back());
}

/// More than the pool has.
const LARGE: usize = 64 * MIB;

#[test]
fn a_mapping_larger_than_the_pool_keeps_all_that_was_synced_whoever_is_killed() {
    let mut testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    let mut expected = vec![1; LARGE];
    let mut mapper = Mapper::mapped(&testbed, "file", LARGE);
    mapper.does(&["close", "random 1 400"]);
    store_random(&mut expected, 1, 400, 1);
    assert!(read(&testbed, "file") == expected, "others see it");
    assert!(counted(&testbed, "mapped_bytes") < 16 * MIB as u64, "the pool has room for no more");
    testbed.kill_server();
    mapper.does(&["closeall", "threads 2 100"]);
    store_random(&mut expected, 2, 100, 4);
    assert!(read(&testbed, "file") == expected, "with another server, and without descriptors");
    drop(mapper);
    assert!(read(&testbed, "file") == expected, "the program was killed");
    until_below(&testbed);
    let mut mapper = Mapper::mapped(&testbed, "file", LARGE);
    mapper.does(&["random 3 200"]);
    store_random(&mut expected, 3, 200, 1);
    drop(mapper);
    testbed.lose_power();
    testbed.mount_again();
    assert!(read(&testbed, "file") == expected, "the power was lost");
    let ended = testbed.end();
    assert!(ended.is_written_back() && ended.read("file") == expected);
}

#[test]
fn a_program_uses_absent_pages_like_any_memory() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    let mut expected = vec![1; LARGE];
    let mut mapper = Mapper::mapped(&testbed, "file", LARGE);
    // The kernel reads from pages that are absent, and writes to them.
    mapper.does(&["store 50000000 7 300000", "writefrom 49999000 0 400000", "readto 20000000 100000 300000"]);
    expected[50_000_000..50_300_000].fill(7);
    expected.copy_within(49_999_000..50_399_000, 0);
    expected.copy_within(100_000..400_000, 20_000_000);
    assert!(read(&testbed, "file") == expected);
    // A child has the mapping, of which nothing is present, and brings what it touches.
    mapper.does(&["child 20000000 5 1000000", "child 60000000 6 10"]);
    expected[20_000_000..21_000_000].fill(5);
    expected[60_000_000..60_000_010].fill(6);
    assert_eq!((mapper.says("load 20999999"), mapper.says("probe 60000009")), ("5".into(), "ok".into()));
    mapper.does(&["protect 4096 4096 none", "unmap 270336 8192", "store 262144 8 4096"]);
    expected[262_144..266_240].fill(8);
    assert_eq!((mapper.says("probe 4100"), mapper.says("probe 274000")), ("SEGV".into(), "SEGV".into()));
    mapper.does(&["protect 4096 4096 rw", "store 4096 9 1", "protect 524288 9437184 r", "protect 524288 9437184 rw"]);
    expected[4096] = 9;
    mapper.does(&["msync 0 262144", "fsync"]);
    assert!(read(&testbed, "file") == expected);
    drop(mapper);
    until_below(&testbed);
    assert!(testbed.end().read("file") == expected);
}

/// A handler touches absent pages while the program syncs others.
#[test]
fn a_signal_handler_may_touch_absent_pages() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    Mapper::mapped(&testbed, "file", LARGE).does(&["alarmed 300"]);
    until_below(&testbed);
    assert!(testbed.end().is_written_back());
}

/// Libc's `fork` waits for a stream that waits for an absent page.
#[test]
fn streams_may_be_written_from_absent_pages_while_the_program_forks() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    Mapper::mapped(&testbed, "file", LARGE).does(&["streams 200"]);
    assert!(testbed.end().is_written_back());
}

/// A child has none of its parent's pages, and the extent that it touches is of two pieces.
#[test]
fn a_page_comes_alone_where_its_extent_has_no_room() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw", "map paged 33554432 16777216", "protect 5242880 61440 r", "fill 20"]);
    assert_eq!(mapper.says("probe 5324800"), "ok");
    mapper.does(&["store 0 5 1", "msync 0 4096"]);
    drop(mapper);
    assert!(read(&testbed, "file") == expected(LARGE, &[(33_554_432, 5, 1)]));
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_mapping_is_not_cut_into_more_pieces_than_are_known() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    let mut mapper = Mapper::mapped(&testbed, "file", LARGE);
    let cut: usize = mapper.says("holes 4096 3000").parse().expect("a number");
    assert!((500..3000).contains(&cut), "{cut}");
    let last = (cut + 1) * 8192;
    assert_eq!(mapper.says(&format!("unmap {last} 4096")), "ENOMEM");
    mapper.does(&[&format!("store {last} 9 100"), &format!("msync {last} 4096"), "unmap 0 4096"]);
    assert_eq!((mapper.says("load 8192"), mapper.says("load 16384000")), ("1".into(), "1".into()));
    mapper.does(&["unmap 0 67108864", "map direct 0 67108864"]);
    assert!(read(&testbed, "file") == expected(LARGE, &[(last, 9, 100)]));
    drop(mapper);
    assert!(testbed.end().is_written_back());
}

#[test]
fn pages_go_from_the_pool_when_the_program_says_so() {
    let mut testbed = MountTestbed::on_own_disk();
    let bytes = 4 * MIB;
    make(&testbed, "file", bytes);
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw", &format!("map paged 0 {bytes}")]);
    let present = |testbed: &MountTestbed, bytes: usize| {
        until("pages to come and go", || counted(testbed, "mapped_bytes") == bytes as u64);
    };
    present(&testbed, 256 << 10);
    mapper.does(&["store 0 2 4194304", "msync 0 2097152"]);
    present(&testbed, bytes);
    mapper.does(&["drop 0 1048576", "drop 2097152 1048576"]);
    present(&testbed, 2 * MIB);
    mapper.does(&["drop 0 4194304"]);
    present(&testbed, 0);
    assert_eq!((mapper.says("load 5"), mapper.says("load 2100000")), ("2".into(), "2".into()));
    mapper.does(&["store 4096 3 4096", "drop 4096 4096", "protect 0 4096 r"]);
    assert_eq!((mapper.says("load 5000"), mapper.says("drop 0 4096")), ("3".into(), "EINVAL".into()));
    mapper.does(&["map direct 0 4194304"]);
    assert_eq!(mapper.says("drop 0 4096"), "EOPNOTSUPP", "all of it is present");
    drop(mapper);
    testbed.lose_power();
    testbed.mount_again();
    assert!(read(&testbed, "file") == expected(bytes, &[(0, 2, bytes), (4096, 3, 4096)]));
    assert!(testbed.end().is_written_back());
}

/// A pipe has pages that are mapped no more, as a device may.
#[test]
fn what_the_kernel_refers_to_never_becomes_another_file() {
    let mut testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    // In each lane of the pool.
    let others = |testbed: &MountTestbed, byte: u8| {
        for name in 0..16 {
            let file = fs::File::create(testbed.mountpoint().join(format!("other-{name}"))).unwrap();
            (0..4).for_each(|part| file.write_all_at(&vec![byte; MIB], part * MIB as u64).unwrap());
            file.sync_all().unwrap();
        }
    };
    let mut mapper = Mapper::start(&testbed);
    mapper.does(&["open file rw", "map paged 0 67108864", "store 0 5 1048576", "msync 0 1048576"]);
    mapper.does(&["splice 0 524288", "drop 0 1048576"]);
    others(&testbed, 3);
    assert_eq!(mapper.says("spliced 5"), "0");
    // The next server does not know what was mapped before it.
    mapper.does(&["store 0 6 1048576", "msync 0 1048576", "splice 0 524288", "unmap 0 67108864"]);
    testbed.kill_server();
    others(&testbed, 4);
    assert_eq!(mapper.says("spliced 6"), "0");
    drop(mapper);
    assert!(read(&testbed, "file")[..MIB].iter().all(|byte| *byte == 6));
    assert!(testbed.end().is_written_back());
}

#[test]
fn an_absent_page_that_cannot_come_is_told_to_whoever_touches_it() {
    let mut testbed = MountTestbed::with_small_pool();
    make(&testbed, "file", LARGE);
    let mut mapper = Mapper::mapped(&testbed, "file", LARGE);
    mapper.does(&["cut 33000000"]);
    assert_eq!((mapper.says("probe 32995000"), mapper.says("probe 33000000")), ("ok".into(), "BUS".into()));
    assert_eq!(mapper.says("writefrom 40000000 0 4096"), "EFAULT", "by a system call");
    testbed.kill();
    assert_eq!(mapper.says("probe 20000000"), "BUS", "there is no service");
    drop(mapper);
    testbed.mount_again();
    assert_eq!(read(&testbed, "file").len(), 33_000_000);
    assert!(testbed.end().is_written_back());
}
