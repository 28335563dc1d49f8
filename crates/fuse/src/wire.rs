//! The records of the FUSE protocol, and its numbers. All fields have the byte order of the host.
//!
//! Source: `include/uapi/linux/fuse.h` of Linux 6.18, version 7.45. Names follow it, without their
//! prefixes. A record is copied out of a message and into it, so messages need no alignment.

/// The major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that this crate speaks.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that this crate speaks (Linux 5.4).
pub(crate) const MINOR_MIN: u32 = 31;
/// The bit of `unique` that marks a request which the kernel sends again.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// Defines a record with its size, which the compiler checks together with the absence of padding.
macro_rules! record {
    ($(#[doc = $text:literal])* $name:ident [$size:literal] { $($field:ident: $type:ty,)* }) => {
        $(#[doc = $text])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
        )]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);
    };
}

record! {
    /// First part of every request.
    InHeader [40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
}
record! {
    /// First part of every reply and every notification.
    OutHeader [16] { len: u32, error: i32, unique: u64, }
}
record! {
    /// INIT as kernels before 7.36 send it.
    InitIn [16] { major: u32, minor: u32, max_readahead: u32, flags: u32, }
}
record! {
    /// What INIT has besides, with the flag INIT_EXT.
    InitInExtension [48] { flags2: u32, unused: [u32; 11], }
}
record! {
    /// Reply to INIT.
    InitOut [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
}
record! {
    /// Attributes of a node.
    Attr [88] {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
}
record! {
    /// Reply to requests that look a name up or make one.
    EntryOut [128] {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
}
record! {
    /// Reply to GETATTR and SETATTR.
    AttrOut [104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
}
record! {
    /// A point of time in the reply to STATX.
    SxTime [16] { tv_sec: i64, tv_nsec: u32, reserved: i32, }
}
record! {
    /// Attributes of a node in the reply to STATX.
    StatxAttr [256] {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
}
record! {
    /// Reply to STATX.
    StatxOut [288] { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: StatxAttr, }
}
record! {
    /// Reply to OPEN and OPENDIR.
    OpenOut [16] { fh: u64, open_flags: u32, backing_id: i32, }
}
record! {
    /// Reply to CREATE and TMPFILE.
    CreateOut [144] { entry: EntryOut, open: OpenOut, }
}
record! {
    /// Reply to WRITE and COPY_FILE_RANGE.
    WriteOut [8] { size: u32, padding: u32, }
}
record! {
    /// Reply to STATFS.
    StatfsOut [80] {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
}
record! {
    /// Reply to GETXATTR and LISTXATTR that ask for a size.
    GetxattrOut [8] { size: u32, padding: u32, }
}
record! {
    /// A lock, in GETLK, SETLK, SETLKW and the reply to the first.
    FileLock [24] { start: u64, end: u64, kind: u32, pid: u32, }
}
record! {
    /// Reply to LSEEK.
    LseekOut [8] { offset: u64, }
}
record! {
    /// Reply to IOCTL.
    IoctlOut [16] { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
}
record! {
    /// Reply to POLL.
    PollOut [8] { revents: u32, padding: u32, }
}
record! {
    /// An entry of a directory, before its name.
    Dirent [24] { ino: u64, off: u64, namelen: u32, kind: u32, }
}

record! {
    /// FORGET.
    ForgetIn [8] { nlookup: u64, }
}
record! {
    /// BATCH_FORGET, before its items.
    BatchForgetIn [8] { count: u32, dummy: u32, }
}
record! {
    /// An item of BATCH_FORGET.
    ForgetOne [16] { nodeid: u64, nlookup: u64, }
}
record! {
    /// GETATTR.
    GetattrIn [16] { getattr_flags: u32, dummy: u32, fh: u64, }
}
record! {
    /// STATX.
    StatxIn [24] { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
}
record! {
    /// SETATTR.
    SetattrIn [88] {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
}
record! {
    /// MKNOD, before its name.
    MknodIn [16] { mode: u32, rdev: u32, umask: u32, padding: u32, }
}
record! {
    /// MKDIR, before its name.
    MkdirIn [8] { mode: u32, umask: u32, }
}
record! {
    /// RENAME, before its names.
    RenameIn [8] { newdir: u64, }
}
record! {
    /// RENAME2, before its names.
    Rename2In [16] { newdir: u64, flags: u32, padding: u32, }
}
record! {
    /// LINK, before its name.
    LinkIn [8] { oldnodeid: u64, }
}
record! {
    /// OPEN and OPENDIR.
    OpenIn [8] { flags: u32, open_flags: u32, }
}
record! {
    /// CREATE and TMPFILE, before their name.
    CreateIn [16] { flags: u32, mode: u32, umask: u32, open_flags: u32, }
}
record! {
    /// RELEASE and RELEASEDIR.
    ReleaseIn [24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
}
record! {
    /// FLUSH.
    FlushIn [24] { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
}
record! {
    /// READ, READDIR and READDIRPLUS.
    ReadIn [40] {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
}
record! {
    /// WRITE, before its data.
    WriteIn [40] {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
}
record! {
    /// FSYNC and FSYNCDIR.
    FsyncIn [16] { fh: u64, fsync_flags: u32, padding: u32, }
}
record! {
    /// SETXATTR without SETXATTR_EXT, before its name.
    SetxattrIn [8] { size: u32, flags: u32, }
}
record! {
    /// What SETXATTR has besides, with SETXATTR_EXT.
    SetxattrInExtension [8] { setxattr_flags: u32, padding: u32, }
}
record! {
    /// GETXATTR, before its name, and LISTXATTR.
    GetxattrIn [8] { size: u32, padding: u32, }
}
record! {
    /// GETLK, SETLK and SETLKW.
    LkIn [48] { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32, }
}
record! {
    /// ACCESS.
    AccessIn [8] { mask: u32, padding: u32, }
}
record! {
    /// INTERRUPT.
    InterruptIn [8] { unique: u64, }
}
record! {
    /// IOCTL, before its data.
    IoctlIn [32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
}
record! {
    /// POLL.
    PollIn [24] { fh: u64, kh: u64, flags: u32, events: u32, }
}
record! {
    /// FALLOCATE.
    FallocateIn [32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
}
record! {
    /// LSEEK.
    LseekIn [24] { fh: u64, offset: u64, whence: u32, padding: u32, }
}
record! {
    /// COPY_FILE_RANGE.
    CopyFileRangeIn [56] {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
}
record! {
    /// SYNCFS.
    SyncfsIn [8] { padding: u64, }
}

record! {
    /// Notification INVAL_INODE.
    InvalInodeOut [24] { ino: u64, off: i64, len: i64, }
}
record! {
    /// Notification INVAL_ENTRY, before its name.
    InvalEntryOut [16] { parent: u64, namelen: u32, flags: u32, }
}

/// Longest reply in a [`ReplyRecordBytes`], after its header: that to CREATE.
pub(crate) const RECORD_REPLY_BYTES_MAX: usize = size_of::<CreateOut>();
/// State of a record: the request was begun.
pub(crate) const RECORD_BEGUN: u32 = 1;
/// State of a record: the request was carried out.
pub(crate) const RECORD_ANSWERED: u32 = 2;

record! {
    /// A request and its reply, as a server leaves them for the next one; no message of the
    /// protocol. State and error are one word.
    ReplyRecordBytes [256] {
        unique: u64, witness: u64, state: u32, error: i32, reply_bytes: u32, padding: u32,
        reply: [u64; 18], spare: [u64; 10],
    }
}
const _: () = assert!(RECORD_REPLY_BYTES_MAX == 18 * 8);

/// Numbers of requests.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const POLL: u32 = 40;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// Numbers of notifications.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const RESEND: i32 = 7;
}

/// Which fields of SETATTR count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// GETATTR and STATX: the handle counts.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// OPEN, CREATE: the server clears set-user-ID and set-group-ID.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// WRITE: the data come from the page cache, later than the program wrote them.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: `lock_owner` counts.
pub(crate) const WRITE_LOCK_OWNER: u32 = 1 << 1;
/// WRITE: the server clears set-user-ID and set-group-ID.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// RELEASE: the server ends the owner's `flock` locks.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// FSYNC: contents only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// SETXATTR: the server clears set-group-ID.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// GETLK, SETLK, SETLKW: a lock of `flock`.
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// IOCTL: the node is a directory.
pub(crate) const IOCTL_DIR: u32 = 1 << 4;
/// IOCTL: the program has 32 bits.
pub(crate) const IOCTL_32BIT: u32 = 1 << 3;
