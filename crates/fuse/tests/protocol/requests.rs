//! Each operation is read as the kernel wrote it.

use crate::kernel::{Message, NODE, UNIQUE, every_request, request};
use std::collections::BTreeMap;
use tidegate_fuse::{
    CopyFileRange, Features, Handle, Header, Init, Ioctl, LockRequest, NodeId, Operation, RangeLock, Request,
    SetAttributes, SetTime, SetXattr, Time, Unique, Write,
};

const HANDLE: Handle = Handle(7);

/// What each request of [`every_request`] means; the nodes of a BATCH_FORGET are tested below.
fn meanings() -> BTreeMap<&'static str, Operation<'static>> {
    about_names().into_iter().chain(about_contents()).collect()
}

/// Requests about names, attributes and directories.
fn about_names() -> Vec<(&'static str, Operation<'static>)> {
    let rename = |flags| Operation::Rename { name: c"a", new_parent: NodeId(40), new_name: c"b", flags };
    let read_dir = |lookup| Operation::ReadDir { handle: HANDLE, offset: 4096, len: 512, lookup };
    vec![
        ("LOOKUP", Operation::Lookup { name: c"a" }),
        ("FORGET", Operation::Forget { lookups: 5 }),
        ("GETATTR", Operation::GetAttr { handle: Some(HANDLE) }),
        ("SETATTR", Operation::SetAttr(set_attributes())),
        ("READLINK", Operation::ReadLink),
        ("SYMLINK", Operation::Symlink { name: c"a", target: c"../b" }),
        ("MKNOD", Operation::MkNod { name: c"a", mode: 0o010_600, device: 0x103, umask: 0o22 }),
        ("MKDIR", Operation::MkDir { name: c"a", mode: 0o755, umask: 0o22 }),
        ("UNLINK", Operation::Unlink { name: c"a" }),
        ("RMDIR", Operation::RmDir { name: c"a" }),
        ("RENAME", rename(0)),
        ("RENAME2", rename(2)),
        ("LINK", Operation::Link { target: NodeId(41), name: c"a" }),
        (
            "SETXATTR",
            Operation::SetXattr(SetXattr { name: c"user.a", value: b"xyz", flags: 1, kill_set_group_id: false }),
        ),
        ("GETXATTR", Operation::GetXattr { name: c"user.a", len: 99 }),
        ("LISTXATTR", Operation::ListXattr { len: 99 }),
        ("REMOVEXATTR", Operation::RemoveXattr { name: c"user.a" }),
        ("OPENDIR", Operation::OpenDir { flags: 0o200_000 }),
        ("READDIR", read_dir(false)),
        ("READDIRPLUS", read_dir(true)),
        ("RELEASEDIR", Operation::ReleaseDir { handle: HANDLE, flags: 2 }),
        ("FSYNCDIR", Operation::FSyncDir { handle: HANDLE, data_only: true }),
        ("ACCESS", Operation::Access { mask: 6 }),
        ("CREATE", Operation::Create { name: c"a", flags: 0o102, mode: 0o100_666, umask: 0o22, kill_privileges: true }),
        ("TMPFILE", Operation::TmpFile { flags: 2, mode: 0o100_600, umask: 0o22 }),
        ("STATX", Operation::Statx { handle: Some(HANDLE), flags: 0x100, mask: 0xfff }),
    ]
}

/// Requests about open files and the session.
fn about_contents() -> Vec<(&'static str, Operation<'static>)> {
    let lock = LockRequest {
        handle: HANDLE,
        owner: 8,
        lock: RangeLock { start: 10, end: 20, kind: 1, pid: 30 },
        whole_file: true,
    };
    let init = Init { major: 7, minor: 31, readahead_bytes_max: 131_072, offered: Features::from_bits(0x0040_0001) };
    vec![
        ("OPEN", Operation::Open { flags: 2, kill_privileges: true }),
        ("READ", Operation::Read { handle: HANDLE, offset: 4096, len: 512, flags: 2 }),
        ("WRITE", Operation::Write(write())),
        ("STATFS", Operation::StatFs),
        ("RELEASE", Operation::Release { handle: HANDLE, flags: 2, lock_owner: 3, unlock: true }),
        ("FSYNC", Operation::FSync { handle: HANDLE, data_only: true }),
        ("FLUSH", Operation::Flush { handle: HANDLE, lock_owner: 3 }),
        ("INIT", Operation::Init(init)),
        ("GETLK", Operation::GetLock(lock)),
        ("SETLK", Operation::SetLock { request: lock, wait: false }),
        ("SETLKW", Operation::SetLock { request: lock, wait: true }),
        ("INTERRUPT", Operation::Interrupt { unique: Unique(77) }),
        ("DESTROY", Operation::Destroy),
        ("IOCTL", Operation::Ioctl(ioctl())),
        ("POLL", Operation::Poll { handle: HANDLE, events: 5 }),
        ("FALLOCATE", Operation::Fallocate { handle: HANDLE, offset: 4096, len: 512, mode: 3 }),
        ("LSEEK", Operation::LSeek { handle: HANDLE, offset: 4096, whence: 4 }),
        ("COPY_FILE_RANGE", Operation::CopyFileRange(copy())),
        ("SYNCFS", Operation::SyncFs),
    ]
}

fn set_attributes() -> SetAttributes {
    SetAttributes {
        handle: None,
        mode: Some(0o100_644),
        uid: Some(31),
        gid: Some(32),
        size: Some(64),
        accessed: None,
        modified: Some(SetTime::At(Time { seconds: 12, nanoseconds: 22 })),
        changed: Some(Time { seconds: 13, nanoseconds: 23 }),
        kill_privileges: true,
    }
}

fn copy() -> CopyFileRange {
    CopyFileRange {
        handle: HANDLE,
        offset: 70,
        to_node: NodeId(71),
        to_handle: Handle(72),
        to_offset: 73,
        len: 74,
        flags: 0,
    }
}

fn write() -> Write<'static> {
    Write {
        handle: HANDLE,
        offset: 4096,
        data: b"xyz",
        flags: 0o4_010_001,
        from_page_cache: true,
        past_page_cache: false,
        kill_privileges: true,
    }
}

fn ioctl() -> Ioctl<'static> {
    Ioctl {
        handle: HANDLE,
        command: 0xf501,
        argument: 0xfeed,
        input: b"in",
        output_bytes: 4,
        directory: true,
        compat: true,
    }
}

#[test]
fn every_operation_is_read_as_it_was_written() {
    let meanings = meanings();
    for (name, message) in every_request().iter().filter(|(name, _)| *name != "BATCH_FORGET") {
        let request = Request::parse(message, Features::NONE).unwrap();
        assert_eq!(request.operation, meanings[name], "{name}");
    }
}

#[test]
fn the_header_says_who_asks_about_what() {
    let message = request("READLINK");
    let header = Request::parse(&message, Features::NONE).unwrap().header;
    assert_eq!(header, Header { unique: Unique(UNIQUE), node: NodeId(NODE), uid: 1000, gid: 100, pid: 4711 });
}

#[test]
fn a_batch_names_each_node() {
    let message = request("BATCH_FORGET");
    let Operation::BatchForget(forgets) = Request::parse(&message, Features::NONE).unwrap().operation else {
        panic!("a batch");
    };
    assert_eq!(forgets.collect::<Vec<_>>(), [(NodeId(60), 1), (NodeId(61), 2)]);
}

#[test]
fn times_are_now_or_as_told_or_stay() {
    let times = |valid: u32| {
        let message = Message::new(4).u32(valid).u32(0).u64(0).u64(0).u64(0).u64(u64::MAX).u64(2).u64(3).u32(4);
        let message = message.u32(5).u32(6).u32(0).u32(0).u32(0).u32(0).u32(0).end();
        match Request::parse(&message, Features::NONE).unwrap().operation {
            Operation::SetAttr(set) => (set.accessed, set.modified),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(times(0), (None, None));
    assert_eq!(times(1 << 4 | 1 << 5 | 1 << 8).0, Some(SetTime::At(Time { seconds: -1, nanoseconds: 4 })));
    assert_eq!(times(1 << 4 | 1 << 7), (Some(SetTime::Now), None));
    assert_eq!(times(1 << 8), (None, Some(SetTime::Now)));
}

#[test]
fn a_longer_setxattr_is_read_where_it_was_agreed_on() {
    let message = Message::new(21).u32(3).u32(1).u32(1).u32(0).name("system.posix_acl_access").bytes(b"xyz").end();
    let Operation::SetXattr(set) = Request::parse(&message, Features::SETXATTR_EXT).unwrap().operation else {
        panic!("an attribute");
    };
    assert!(set.kill_set_group_id && set.name == c"system.posix_acl_access" && set.value == b"xyz");
    assert!(Request::parse(&message, Features::NONE).is_err());
}

#[test]
fn extensions_at_the_end_are_passed_over() {
    let mut message = Message::new(9).u32(0o755).u32(0o22).name("a").bytes(&[0xff; 16]).end();
    message[36..38].copy_from_slice(&2_u16.to_ne_bytes());
    let operation = Request::parse(&message, Features::NONE).unwrap().operation;
    assert_eq!(operation, Operation::MkDir { name: c"a", mode: 0o755, umask: 0o22 });
}

#[test]
fn a_request_that_is_sent_again_is_known_by_its_number() {
    let unique = Unique(1 << 63 | 6);
    assert!(unique.is_resent() && !unique.first_sent().is_resent());
    assert_eq!(unique.first_sent(), Unique(6));
}

#[test]
fn an_operation_of_a_later_protocol_is_told_by_its_number() {
    let message = Message::new(53).bytes(&[1; 56]).end();
    let operation = Request::parse(&message, Features::NONE).unwrap().operation;
    assert_eq!(operation, Operation::Unknown { opcode: 53 });
}
