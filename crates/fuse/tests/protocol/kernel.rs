//! The kernel's side of the protocol: messages written field by field, not with the crate's
//! records, so that a mistake in those does not cancel out.

/// A message under construction.
pub(crate) struct Message(Vec<u8>);

/// Number of the requests made here.
pub(crate) const UNIQUE: u64 = 0x1122_3344_5566_7788;
/// Node of the requests made here.
pub(crate) const NODE: u64 = 9;

impl Message {
    /// A header whose length is still 0.
    pub(crate) fn new(opcode: u32) -> Message {
        let header = Message(Vec::new()).u32(0).u32(opcode).u64(UNIQUE).u64(NODE);
        header.u32(1000).u32(100).u32(4711).u16(0).u16(0)
    }

    pub(crate) fn u16(self, number: u16) -> Message {
        self.bytes(&number.to_ne_bytes())
    }

    pub(crate) fn u32(self, number: u32) -> Message {
        self.bytes(&number.to_ne_bytes())
    }

    pub(crate) fn u64(self, number: u64) -> Message {
        self.bytes(&number.to_ne_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Message {
        self.0.extend(bytes);
        self
    }

    /// A name and the zero byte after it.
    pub(crate) fn name(self, name: &str) -> Message {
        self.bytes(name.as_bytes()).bytes(&[0])
    }

    /// The message with its length.
    pub(crate) fn end(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).unwrap();
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// One request of every kind, with a name for reports. The numbers in them are all different.
pub(crate) fn every_request() -> Vec<(&'static str, Vec<u8>)> {
    let messages = about_names().into_iter().chain(about_contents());
    messages.map(|(name, message)| (name, message.end())).collect()
}

/// Requests about names, attributes and directories.
fn about_names() -> Vec<(&'static str, Message)> {
    let new = Message::new;
    let read = |opcode| new(opcode).u64(7).u64(4096).u32(512).u32(0).u64(1).u32(2).u32(0);
    let release = |opcode| new(opcode).u64(7).u32(2).u32(2).u64(3);
    let fsync = |opcode| new(opcode).u64(7).u32(1).u32(0);
    let times = |message: Message| message.u64(11).u64(12).u64(13).u32(21).u32(22).u32(23);
    vec![
        ("LOOKUP", new(1).name("a")),
        ("FORGET", new(2).u64(5)),
        ("GETATTR", new(3).u32(1).u32(0).u64(7)),
        (
            "SETATTR",
            times(new(4).u32(0b1100_0010_1111).u32(0).u64(7).u64(64).u64(1))
                .u32(0o100_644)
                .u32(0)
                .u32(31)
                .u32(32)
                .u32(0),
        ),
        ("READLINK", new(5)),
        ("SYMLINK", new(6).name("a").name("../b")),
        ("MKNOD", new(8).u32(0o010_600).u32(0x103).u32(0o22).u32(0).name("a")),
        ("MKDIR", new(9).u32(0o755).u32(0o22).name("a")),
        ("UNLINK", new(10).name("a")),
        ("RMDIR", new(11).name("a")),
        ("RENAME", new(12).u64(40).name("a").name("b")),
        ("LINK", new(13).u64(41).name("a")),
        ("SETXATTR", new(21).u32(3).u32(1).name("user.a").bytes(b"xyz")),
        ("GETXATTR", new(22).u32(99).u32(0).name("user.a")),
        ("LISTXATTR", new(23).u32(99).u32(0)),
        ("REMOVEXATTR", new(24).name("user.a")),
        ("OPENDIR", new(27).u32(0o200_000).u32(0)),
        ("READDIR", read(28)),
        ("RELEASEDIR", release(29)),
        ("FSYNCDIR", fsync(30)),
        ("ACCESS", new(34).u32(6).u32(0)),
        ("CREATE", new(35).u32(0o102).u32(0o100_666).u32(0o22).u32(1).name("a")),
        ("BATCH_FORGET", new(42).u32(2).u32(0).u64(60).u64(1).u64(61).u64(2)),
        ("READDIRPLUS", read(44)),
        ("RENAME2", new(45).u64(40).u32(2).u32(0).name("a").name("b")),
        ("TMPFILE", new(51).u32(2).u32(0o100_600).u32(0o22).u32(0).name("/")),
        ("STATX", new(52).u32(1).u32(0).u64(7).u32(0x100).u32(0xfff)),
    ]
}

/// Requests about open files and the session.
fn about_contents() -> Vec<(&'static str, Message)> {
    let new = Message::new;
    let read = |opcode| new(opcode).u64(7).u64(4096).u32(512).u32(0).u64(1).u32(2).u32(0);
    let release = |opcode| new(opcode).u64(7).u32(2).u32(2).u64(3);
    let fsync = |opcode| new(opcode).u64(7).u32(1).u32(0);
    let lock = |opcode| new(opcode).u64(7).u64(8).u64(10).u64(20).u32(1).u32(30).u32(1).u32(0);
    vec![
        ("OPEN", new(14).u32(2).u32(1)),
        ("READ", read(15)),
        ("WRITE", new(16).u64(7).u64(4096).u32(3).u32(0b101).u64(1).u32(0o4_010_001).u32(0).bytes(b"xyz")),
        ("STATFS", new(17)),
        ("RELEASE", release(18)),
        ("FSYNC", fsync(20)),
        ("FLUSH", new(25).u64(7).u32(0).u32(0).u64(3)),
        ("INIT", new(26).u32(7).u32(31).u32(131_072).u32(0x0040_0001)),
        ("GETLK", lock(31)),
        ("SETLK", lock(32)),
        ("SETLKW", lock(33)),
        ("INTERRUPT", new(36).u64(77)),
        ("DESTROY", new(38)),
        ("IOCTL", new(39).u64(7).u32(0b11000).u32(0xf501).u64(0xfeed).u32(2).u32(4).bytes(b"in")),
        ("POLL", new(40).u64(7).u64(50).u32(1).u32(5)),
        ("FALLOCATE", new(43).u64(7).u64(4096).u64(512).u32(3).u32(0)),
        ("LSEEK", new(46).u64(7).u64(4096).u32(4).u32(0)),
        ("COPY_FILE_RANGE", new(47).u64(7).u64(70).u64(71).u64(72).u64(73).u64(74).u64(0)),
        ("SYNCFS", new(50).u64(0)),
    ]
}

/// The request called `name` of [`every_request`].
pub(crate) fn request(name: &str) -> Vec<u8> {
    every_request().into_iter().find(|(known, _)| *known == name).map(|(_, message)| message).unwrap()
}
