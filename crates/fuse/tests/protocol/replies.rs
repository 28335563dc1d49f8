//! Replies and notifications, byte by byte.

use std::time::Duration;
use tidegate_fuse::{
    Attributes, Directory, DirectoryEntry, Entry, ExtendedAttributes, Handle, NodeId, Notification, OpenFlags,
    RangeLock, Reply, Statistics, Time, Unique,
};

/// A reply as it is sent, without its header.
fn body(mut reply: Reply<'_>) -> Vec<u8> {
    let sent = reply.frame(Unique(5)).unwrap().concat();
    assert_eq!(sent[..4], u32::try_from(sent.len()).unwrap().to_ne_bytes());
    assert_eq!(sent[4..16], [[0; 4].as_slice(), &5_u64.to_ne_bytes()].concat());
    sent[16..].to_vec()
}

/// Fields of 8 and of 4 bytes, one after the other.
macro_rules! fields {
    ($($field:expr),* $(,)?) => { [$($field.to_ne_bytes().as_slice()),*].concat() };
}

fn attributes() -> Attributes {
    Attributes {
        inode: 1,
        size: 2,
        blocks: 3,
        accessed: Time { seconds: 4, nanoseconds: 14 },
        modified: Time { seconds: -5, nanoseconds: 15 },
        changed: Time { seconds: 6, nanoseconds: 16 },
        mode: 0o100_644,
        links: 7,
        uid: 8,
        gid: 9,
        device: 10,
        block_bytes: 4096,
    }
}

fn attributes_as_sent() -> Vec<u8> {
    let times = fields![4_u64, -5_i64, 6_u64, 14_u32, 15_u32, 16_u32];
    let rest = fields![0o100_644_u32, 7_u32, 8_u32, 9_u32, 10_u32, 4096_u32, 0_u32];
    [fields![1_u64, 2_u64, 3_u64], times, rest].concat()
}

fn entry() -> Entry {
    Entry {
        node: NodeId(20),
        generation: 21,
        attributes: attributes(),
        name_valid: Duration::new(22, 23),
        attributes_valid: Duration::new(24, 25),
    }
}

fn entry_as_sent() -> Vec<u8> {
    [fields![20_u64, 21_u64, 22_u64, 24_u64, 23_u32, 25_u32], attributes_as_sent()].concat()
}

#[test]
fn short_replies_have_the_kernels_bytes() {
    assert_eq!(body(Reply::empty()), []);
    assert_eq!(body(Reply::data(b"data")), b"data");
    assert_eq!(body(Reply::written(3)), fields![3_u32, 0_u32]);
    assert_eq!(body(Reply::value_bytes(4)), fields![4_u32, 0_u32]);
    assert_eq!(body(Reply::offset(5)), fields![5_u64]);
    assert_eq!(body(Reply::ready(1)), fields![1_u32, 0_u32]);
    assert_eq!(body(Reply::ioctl(-1, b"out")), [fields![-1_i32, 0_u32, 0_u32, 0_u32], b"out".to_vec()].concat());
    let lock = RangeLock { start: 1, end: 2, kind: 3, pid: 4 };
    assert_eq!(body(Reply::lock(&lock)), fields![1_u64, 2_u64, 3_u32, 4_u32]);
    let flags = OpenFlags::KEEP_CACHE.with(OpenFlags::NO_FLUSH);
    assert_eq!(body(Reply::opened(Handle(7), flags)), fields![7_u64, 0b100010_u32, 0_u32]);
}

#[test]
fn replies_with_attributes_have_the_kernels_bytes() {
    assert_eq!(body(Reply::entry(&entry())), entry_as_sent());
    let valid = Duration::new(30, 31);
    let as_sent = [fields![30_u64, 31_u32, 0_u32], attributes_as_sent()].concat();
    assert_eq!(body(Reply::attributes(&attributes(), valid)), as_sent);
    let as_sent = [entry_as_sent(), fields![7_u64, 2_u32, 0_u32]].concat();
    assert_eq!(body(Reply::created(&entry(), Handle(7), OpenFlags::KEEP_CACHE)), as_sent);
    let missing = body(Reply::no_entry(valid));
    assert_eq!((missing.len(), &missing[..8], &missing[16..24]), (128, &[0; 8][..], &fields![30_u64][..]));
}

#[test]
fn statx_has_the_kernels_bytes() {
    let time = |seconds: i64, nanoseconds: u32| fields![seconds, nanoseconds, 0_u32];
    let extended = ExtendedAttributes {
        attributes: Attributes { device: Attributes::device_number(8, 0x1_0001), ..attributes() },
        born: Some(Time { seconds: 40, nanoseconds: 41 }),
        flags: 42,
        flags_known: 43,
    };
    let as_sent = [
        fields![30_u64, 31_u32, 0_u32, 0_u64, 0_u64],
        fields![0xfff_u32, 4096_u32, 42_u64, 7_u32, 8_u32, 9_u32, 0o100_644_u16, 0_u16],
        fields![1_u64, 2_u64, 3_u64, 43_u64],
        [time(4, 14), time(40, 41), time(6, 16), time(-5, 15)].concat(),
        fields![8_u32, 0x1_0001_u32, 0_u32, 0_u32],
        vec![0; 112],
    ];
    assert_eq!(body(Reply::statx(&extended, Duration::new(30, 31))), as_sent.concat());
}

#[test]
fn statistics_have_the_kernels_bytes() {
    let statistics = Statistics {
        blocks: 1,
        blocks_free: 2,
        blocks_available: 3,
        files: 4,
        files_free: 5,
        block_bytes: 6,
        fragment_bytes: 7,
        name_bytes_max: 8,
    };
    let as_sent = [fields![1_u64, 2_u64, 3_u64, 4_u64, 5_u64, 6_u32, 8_u32, 7_u32], vec![0; 28]].concat();
    assert_eq!(body(Reply::statistics(&statistics)), as_sent);
}

#[test]
fn an_error_is_a_negative_number_and_no_data() {
    let sent = |errno| Reply::error(errno).frame(Unique(5)).unwrap().concat();
    assert_eq!(sent(2), fields![16_u32, -2_i32, 5_u64]);
    assert_eq!(Reply::error(2).errno(), Some(2));
    for outside in [0, -2, 512, i32::MIN, i32::MAX] {
        assert_eq!(sent(outside), fields![16_u32, -5_i32, 5_u64], "{outside}");
    }
    assert!(Reply::none().frame(Unique(5)).is_none());
}

#[test]
fn a_listing_ends_where_the_room_does() {
    let entry_of = |name| DirectoryEntry { inode: 1, next_offset: 2, kind: 8, name };
    let mut buffer = [0xff; 200];
    let mut directory = Directory::new(&mut buffer, 64);
    assert!(directory.is_empty());
    assert!(directory.push(&entry_of(b"abc")) && directory.push(&entry_of(b"12345678")));
    assert!(!directory.push(&entry_of(b"d")));
    let first = [fields![1_u64, 2_u64, 3_u32, 8_u32], b"abc\0\0\0\0\0".to_vec()].concat();
    let second = [fields![1_u64, 2_u64, 8_u32, 8_u32], b"12345678".to_vec()].concat();
    assert_eq!(body(directory.reply()), [first, second].concat());
}

#[test]
fn a_listing_with_lookups_has_an_entry_before_each_name() {
    let name = DirectoryEntry { inode: 1, next_offset: 2, kind: 4, name: b"abcdefgh" };
    let mut buffer = [0xff; 400];
    let mut directory = Directory::new(&mut buffer, 320);
    assert!(directory.has_room(8) && directory.push_looked_up(&name, Some(&entry())));
    assert!(directory.has_room(8) && !directory.has_room(9));
    assert!(directory.push_looked_up(&name, None) && !directory.has_room(0));
    let plain = [fields![1_u64, 2_u64, 8_u32, 4_u32], b"abcdefgh".to_vec()].concat();
    assert_eq!(body(directory.reply()), [entry_as_sent(), plain.clone(), vec![0; 128], plain].concat());
}

#[test]
fn the_kernels_room_may_be_larger_than_the_buffer() {
    let mut buffer = [0; 31];
    let mut directory = Directory::new(&mut buffer, u32::MAX);
    assert!(!directory.push(&DirectoryEntry { inode: 1, next_offset: 2, kind: 8, name: b"a" }));
    assert!(directory.is_empty());
}

#[test]
fn notifications_have_the_kernels_bytes() {
    let sent = |notification: Notification<'_>| notification.frame().concat();
    assert_eq!(sent(Notification::resend()), fields![16_u32, 7_i32, 0_u64]);
    let changed = Notification::contents_changed(NodeId(3), 4, 5);
    assert_eq!(sent(changed), fields![40_u32, 2_i32, 0_u64, 3_u64, 4_i64, 5_i64]);
    let changed = Notification::attributes_changed(NodeId(3));
    assert_eq!(sent(changed), fields![40_u32, 2_i32, 0_u64, 3_u64, -1_i64, 0_i64]);
    let entry = |flags: u32| [fields![35_u32, 3_i32, 0_u64, 3_u64, 2_u32, flags], b"ab\0".to_vec()].concat();
    assert_eq!(sent(Notification::entry_changed(NodeId(3), c"ab")), entry(0));
    assert_eq!(sent(Notification::entry_expired(NodeId(3), c"ab")), entry(1));
}

#[test]
fn device_numbers_come_back() {
    let number = Attributes::device_number(0x103, 0x0a_bc12);
    assert_eq!(number, 0xabc1_0312);
    assert_eq!(Attributes::device_parts(number), (0x103, 0x0a_bc12));
}
