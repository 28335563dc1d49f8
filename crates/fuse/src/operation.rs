//! What a request asks for: one variant for each operation of the protocol.
//!
//! Names and data are slices of the message. A name has no slash and is not `.` or `..`; it ends
//! with a zero byte, so that it can be handed on to the kernel as it is. Numbers that Linux defines
//! elsewhere (`O_`, `S_IF`, `FALLOC_FL_`, `RENAME_`, `SEEK_`) are handed on unchecked.

use crate::attributes::Time;
use crate::features::Features;
use crate::ids::{Handle, NodeId, Unique};
use crate::parse::{Fields, Rule};
use crate::wire::{self, fattr, opcode};
use std::ffi::CStr;
use zerocopy::FromBytes;

/// What a request asks for. Each variant says which [`Reply`](crate::Reply) answers it; an error
/// answers each that has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields named as everywhere in the protocol")]
pub enum Operation<'a> {
    /// Agrees on version and features. [`Session::agree`](crate::Session::agree) has the reply.
    Init(Init),
    /// Ends the session: the file system is unmounted. Reply: [`empty`](crate::Reply::empty).
    Destroy,
    /// Finds a name. Reply: [`entry`](crate::Reply::entry) or [`no_entry`](crate::Reply::no_entry).
    Lookup { name: &'a CStr },
    /// Takes back as many lookups of the node. No reply.
    Forget { lookups: u64 },
    /// Takes back lookups of several nodes. No reply.
    BatchForget(Forgets<'a>),
    /// Asks for attributes. Reply: [`attributes`](crate::Reply::attributes).
    GetAttr { handle: Option<Handle> },
    /// Asks for all attributes. Reply: [`statx`](crate::Reply::statx); after `ENOSYS` the kernel
    /// asks no more.
    Statx { handle: Option<Handle>, flags: u32, mask: u32 },
    /// Changes attributes. Reply: [`attributes`](crate::Reply::attributes).
    SetAttr(SetAttributes),
    /// Asks for the target of a symbolic link. Reply: [`data`](crate::Reply::data).
    ReadLink,
    /// Makes a symbolic link. Reply: [`entry`](crate::Reply::entry).
    Symlink { name: &'a CStr, target: &'a CStr },
    /// Makes a file, device, pipe or socket. Reply: [`entry`](crate::Reply::entry).
    MkNod { name: &'a CStr, mode: u32, device: u32, umask: u32 },
    /// Makes a directory. Reply: [`entry`](crate::Reply::entry).
    MkDir { name: &'a CStr, mode: u32, umask: u32 },
    /// Removes a name. Reply: [`empty`](crate::Reply::empty).
    Unlink { name: &'a CStr },
    /// Removes a directory. Reply: [`empty`](crate::Reply::empty).
    RmDir { name: &'a CStr },
    /// Renames; `flags` are those of `renameat2`. Reply: [`empty`](crate::Reply::empty).
    Rename { name: &'a CStr, new_parent: NodeId, new_name: &'a CStr, flags: u32 },
    /// Gives `target` one more name, in the header's node. Reply: [`entry`](crate::Reply::entry).
    Link { target: NodeId, name: &'a CStr },
    /// Opens a file; `flags` are those of `open`. Reply: [`opened`](crate::Reply::opened).
    Open { flags: u32, kill_privileges: bool },
    /// Makes a file, or finds it, and opens it. Reply: [`created`](crate::Reply::created).
    Create { name: &'a CStr, flags: u32, mode: u32, umask: u32, kill_privileges: bool },
    /// Makes and opens a file without a name. Reply: [`created`](crate::Reply::created).
    TmpFile { flags: u32, mode: u32, umask: u32 },
    /// Reads; `flags` are those of the open file. Reply: [`data`](crate::Reply::data), shorter than
    /// asked only at the end of the file.
    Read { handle: Handle, offset: u64, len: u32, flags: u32 },
    /// Writes. Reply: [`written`](crate::Reply::written).
    Write(Write<'a>),
    /// Copies between files. Reply: [`written`](crate::Reply::written).
    CopyFileRange(CopyFileRange),
    /// A file descriptor is closed; others of the open file may stay. Reply:
    /// [`empty`](crate::Reply::empty); after `ENOSYS` the kernel asks no more.
    Flush { handle: Handle, lock_owner: u64 },
    /// The open file is closed. Reply: [`empty`](crate::Reply::empty), for which no program waits.
    Release { handle: Handle, flags: u32, lock_owner: u64, unlock: bool },
    /// Makes a file durable. Reply: [`empty`](crate::Reply::empty).
    FSync { handle: Handle, data_only: bool },
    /// Makes the file system durable. Reply: [`empty`](crate::Reply::empty).
    SyncFs,
    /// Allocates, punches or zeroes a range. Reply: [`empty`](crate::Reply::empty).
    Fallocate { handle: Handle, offset: u64, len: u64, mode: u32 },
    /// Finds data or a hole. Reply: [`offset`](crate::Reply::offset).
    LSeek { handle: Handle, offset: u64, whence: u32 },
    /// Asks for the room left. Reply: [`statistics`](crate::Reply::statistics).
    StatFs,
    /// Sets an extended attribute. Reply: [`empty`](crate::Reply::empty).
    SetXattr(SetXattr<'a>),
    /// Asks for an extended attribute. Reply: [`data`](crate::Reply::data), or where `len` is 0
    /// [`value_bytes`](crate::Reply::value_bytes).
    GetXattr { name: &'a CStr, len: u32 },
    /// Asks for the names of all extended attributes. Replies as to
    /// [`GetXattr`](Operation::GetXattr).
    ListXattr { len: u32 },
    /// Removes an extended attribute. Reply: [`empty`](crate::Reply::empty).
    RemoveXattr { name: &'a CStr },
    /// Opens a directory. Reply: [`opened`](crate::Reply::opened).
    OpenDir { flags: u32 },
    /// Lists a directory from the entry after `offset`, 0 at first; `lookup` asks for entries that
    /// are looked up. Reply: [`Directory::reply`](crate::Directory::reply).
    ReadDir { handle: Handle, offset: u64, len: u32, lookup: bool },
    /// A directory is closed. Reply: [`empty`](crate::Reply::empty).
    ReleaseDir { handle: Handle, flags: u32 },
    /// Makes a directory durable. Reply: [`empty`](crate::Reply::empty).
    FSyncDir { handle: Handle, data_only: bool },
    /// Checks permissions, unless the mount leaves them to the kernel. Reply:
    /// [`empty`](crate::Reply::empty).
    Access { mask: u32 },
    /// A program no longer waits for this request. No reply; that request still gets its own.
    Interrupt { unique: Unique },
    /// Carries out an `ioctl` with arguments of fixed size. Reply: [`ioctl`](crate::Reply::ioctl).
    Ioctl(Ioctl<'a>),
    /// Asks for readiness. Reply: [`ready`](crate::Reply::ready); after `ENOSYS` the kernel asks no
    /// more and takes every file for ready.
    Poll { handle: Handle, events: u32 },
    /// Asks who holds a lock. Reply: [`lock`](crate::Reply::lock).
    GetLock(LockRequest),
    /// Takes or gives up a lock. Reply: [`empty`](crate::Reply::empty).
    SetLock { request: LockRequest, wait: bool },
    /// An operation that this crate does not know. Reply `ENOSYS`.
    Unknown { opcode: u32 },
}

/// The kernel's first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// Major version of the kernel's protocol.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
    /// Longest readahead of the kernel.
    pub readahead_bytes_max: u32,
    /// Features that the kernel has.
    pub offered: Features,
}

/// A change of attributes; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// The open file through which the change was asked for.
    pub handle: Option<Handle>,
    /// New permissions.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length.
    pub size: Option<u64>,
    /// New time of the last access.
    pub accessed: Option<SetTime>,
    /// New time of the last change of the contents.
    pub modified: Option<SetTime>,
    /// New time of the last change of attributes.
    pub changed: Option<Time>,
    /// The server clears set-user-ID and set-group-ID.
    pub kill_privileges: bool,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// This time.
    At(Time),
}

/// Data for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file. With `from_page_cache` it may be any that is open for writing.
    pub handle: Handle,
    /// Where the data go.
    pub offset: u64,
    /// The data.
    pub data: &'a [u8],
    /// Flags of the open file, `O_SYNC` and `O_DIRECT` among them.
    pub flags: u32,
    /// The data come from a shared mapping, later than a program stored them.
    pub from_page_cache: bool,
    /// The data go past the page cache, whose pages of the range the kernel drops before and after.
    pub past_page_cache: bool,
    /// The server clears set-user-ID and set-group-ID.
    pub kill_privileges: bool,
}

/// A copy from the header's node to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// Open file to copy from.
    pub handle: Handle,
    /// Where the bytes are.
    pub offset: u64,
    /// Node to copy to.
    pub to_node: NodeId,
    /// Open file to copy to.
    pub to_handle: Handle,
    /// Where the bytes go.
    pub to_offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Flags of `copy_file_range`.
    pub flags: u64,
}

/// A new value of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// Its name, with the namespace.
    pub name: &'a CStr,
    /// Its value.
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// The server clears set-group-ID.
    pub kill_set_group_id: bool,
}

/// An `ioctl` with arguments of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// The open file or directory.
    pub handle: Handle,
    /// Number of the command.
    pub command: u32,
    /// The third argument itself.
    pub argument: u64,
    /// The bytes that the third argument points to, if the command passes any.
    pub input: &'a [u8],
    /// Bytes that the reply may have.
    pub output_bytes: u32,
    /// The node is a directory.
    pub directory: bool,
    /// The program has 32 bits.
    pub compat: bool,
}

/// A lock of a range of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeLock {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: u32,
    /// The process that has the lock.
    pub pid: u32,
}

/// A lock that a program asks for, or about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: Handle,
    /// Who wants the lock.
    pub owner: u64,
    /// The lock.
    pub lock: RangeLock,
    /// A lock of `flock`, not of `fcntl`.
    pub whole_file: bool,
}

/// Nodes of which lookups are taken back, with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgets<'a>(&'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = (NodeId, u64);

    fn next(&mut self) -> Option<(NodeId, u64)> {
        let (item, rest) = wire::ForgetOne::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some((NodeId(item.nodeid), item.nlookup))
    }
}

impl<'a> Operation<'a> {
    /// Takes the part after the header apart.
    pub(crate) fn parse(number: u32, mut fields: Fields<'a>, agreed: Features) -> Result<Operation<'a>, Rule> {
        let fields = &mut fields;
        let operation = match number {
            opcode::INIT => return init(fields).map(Operation::Init),
            opcode::LOOKUP..=opcode::LINK | opcode::CREATE | opcode::RENAME2 | opcode::TMPFILE => names(number, fields),
            opcode::SETXATTR..=opcode::REMOVEXATTR => xattrs(number, fields, agreed),
            opcode::OPENDIR..=opcode::FSYNCDIR | opcode::READDIRPLUS => directories(number, fields),
            opcode::GETLK..=opcode::SETLKW => locks(number, fields),
            opcode::OPEN..=opcode::FLUSH | opcode::FALLOCATE | opcode::LSEEK | opcode::COPY_FILE_RANGE => {
                files(number, fields)
            }
            _ => others(number, fields),
        }?;
        match operation {
            Operation::Unknown { .. } => {}
            _ => fields.end()?,
        }
        Ok(operation)
    }
}

/// INIT, to which kernels add fields at the end.
fn init(fields: &mut Fields<'_>) -> Result<Init, Rule> {
    let first: wire::InitIn = fields.record()?;
    let extended = Features::from_bits(u64::from(first.flags)).contains(Features::INIT_EXT);
    let second = if extended { fields.record()? } else { wire::InitInExtension::default() };
    Ok(Init {
        major: first.major,
        minor: first.minor,
        readahead_bytes_max: first.max_readahead,
        offered: Features::from_bits(u64::from(second.flags2) << 32 | u64::from(first.flags)),
    })
}

/// Operations on names and attributes of nodes.
fn names<'a>(number: u32, fields: &mut Fields<'a>) -> Result<Operation<'a>, Rule> {
    Ok(match number {
        opcode::LOOKUP => Operation::Lookup { name: fields.name()? },
        opcode::FORGET => Operation::Forget { lookups: fields.record::<wire::ForgetIn>()?.nlookup },
        opcode::GETATTR => {
            let wire::GetattrIn { getattr_flags, fh, .. } = fields.record()?;
            Operation::GetAttr { handle: handle_if(getattr_flags & wire::GETATTR_FH != 0, fh) }
        }
        opcode::SETATTR => Operation::SetAttr(SetAttributes::of(&fields.record()?)),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => Operation::Symlink { name: fields.name()?, target: fields.string()? },
        opcode::MKNOD => {
            let wire::MknodIn { mode, rdev: device, umask, .. } = fields.record()?;
            Operation::MkNod { name: fields.name()?, mode, device, umask }
        }
        opcode::MKDIR => {
            let wire::MkdirIn { mode, umask } = fields.record()?;
            Operation::MkDir { name: fields.name()?, mode, umask }
        }
        opcode::UNLINK => Operation::Unlink { name: fields.name()? },
        opcode::RMDIR => Operation::RmDir { name: fields.name()? },
        opcode::RENAME => {
            let wire::RenameIn { newdir } = fields.record()?;
            rename(fields, newdir, 0)?
        }
        opcode::RENAME2 => {
            let wire::Rename2In { newdir, flags, .. } = fields.record()?;
            rename(fields, newdir, flags)?
        }
        opcode::LINK => {
            let wire::LinkIn { oldnodeid } = fields.record()?;
            Operation::Link { target: NodeId(oldnodeid), name: fields.name()? }
        }
        opcode::CREATE => {
            let wire::CreateIn { flags, mode, umask, open_flags } = fields.record()?;
            let kill_privileges = open_flags & wire::OPEN_KILL_SUIDGID != 0;
            Operation::Create { name: fields.name()?, flags, mode, umask, kill_privileges }
        }
        opcode::TMPFILE => {
            let wire::CreateIn { flags, mode, umask, .. } = fields.record()?;
            // The kernel's own name for such files; it may have a slash.
            fields.string()?;
            Operation::TmpFile { flags, mode, umask }
        }
        opcode => Operation::Unknown { opcode },
    })
}

fn rename<'a>(fields: &mut Fields<'a>, new_parent: u64, flags: u32) -> Result<Operation<'a>, Rule> {
    Ok(Operation::Rename { name: fields.name()?, new_parent: NodeId(new_parent), new_name: fields.name()?, flags })
}

/// Operations on the contents of files.
fn files<'a>(number: u32, fields: &mut Fields<'a>) -> Result<Operation<'a>, Rule> {
    Ok(match number {
        opcode::OPEN => {
            let wire::OpenIn { flags, open_flags } = fields.record()?;
            Operation::Open { flags, kill_privileges: open_flags & wire::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::READ => {
            let wire::ReadIn { fh, offset, size: len, flags, .. } = fields.record()?;
            Operation::Read { handle: Handle(fh), offset, len, flags }
        }
        opcode::WRITE => Operation::Write(write(fields)?),
        opcode::STATFS => Operation::StatFs,
        opcode::RELEASE => {
            let wire::ReleaseIn { fh, flags, release_flags, lock_owner } = fields.record()?;
            let unlock = release_flags & wire::RELEASE_FLOCK_UNLOCK != 0;
            Operation::Release { handle: Handle(fh), flags, lock_owner, unlock }
        }
        opcode::FSYNC => {
            let wire::FsyncIn { fh, fsync_flags, .. } = fields.record()?;
            Operation::FSync { handle: Handle(fh), data_only: fsync_flags & wire::FSYNC_FDATASYNC != 0 }
        }
        opcode::FLUSH => {
            let wire::FlushIn { fh, lock_owner, .. } = fields.record()?;
            Operation::Flush { handle: Handle(fh), lock_owner }
        }
        opcode::FALLOCATE => {
            let wire::FallocateIn { fh, offset, length: len, mode, .. } = fields.record()?;
            Operation::Fallocate { handle: Handle(fh), offset, len, mode }
        }
        opcode::LSEEK => {
            let wire::LseekIn { fh, offset, whence, .. } = fields.record()?;
            Operation::LSeek { handle: Handle(fh), offset, whence }
        }
        opcode::COPY_FILE_RANGE => Operation::CopyFileRange(CopyFileRange::of(&fields.record()?)),
        opcode => Operation::Unknown { opcode },
    })
}

fn write<'a>(fields: &mut Fields<'a>) -> Result<Write<'a>, Rule> {
    let wire::WriteIn { fh, offset, size, write_flags, flags, .. } = fields.record()?;
    Ok(Write {
        handle: Handle(fh),
        offset,
        data: fields.data(length(size))?,
        flags,
        from_page_cache: write_flags & wire::WRITE_CACHE != 0,
        // Linux names an owner of locks in these writes alone: `fuse_send_write`, fs/fuse/file.c.
        past_page_cache: write_flags & wire::WRITE_LOCK_OWNER != 0,
        kill_privileges: write_flags & wire::WRITE_KILL_SUIDGID != 0,
    })
}

/// Operations on extended attributes.
fn xattrs<'a>(number: u32, fields: &mut Fields<'a>, agreed: Features) -> Result<Operation<'a>, Rule> {
    Ok(match number {
        opcode::SETXATTR => {
            let wire::SetxattrIn { size, flags } = fields.record()?;
            let extended = agreed.contains(Features::SETXATTR_EXT);
            let extension = if extended { fields.record()? } else { wire::SetxattrInExtension::default() };
            let kill_set_group_id = extension.setxattr_flags & wire::SETXATTR_ACL_KILL_SGID != 0;
            Operation::SetXattr(SetXattr {
                name: fields.string()?,
                value: fields.data(length(size))?,
                flags,
                kill_set_group_id,
            })
        }
        opcode::GETXATTR => {
            let wire::GetxattrIn { size: len, .. } = fields.record()?;
            Operation::GetXattr { name: fields.string()?, len }
        }
        opcode::LISTXATTR => Operation::ListXattr { len: fields.record::<wire::GetxattrIn>()?.size },
        opcode::REMOVEXATTR => Operation::RemoveXattr { name: fields.string()? },
        opcode => Operation::Unknown { opcode },
    })
}

/// Operations on open directories.
fn directories<'a>(number: u32, fields: &mut Fields<'a>) -> Result<Operation<'a>, Rule> {
    Ok(match number {
        opcode::OPENDIR => Operation::OpenDir { flags: fields.record::<wire::OpenIn>()?.flags },
        opcode::READDIR | opcode::READDIRPLUS => {
            let wire::ReadIn { fh, offset, size: len, .. } = fields.record()?;
            Operation::ReadDir { handle: Handle(fh), offset, len, lookup: number == opcode::READDIRPLUS }
        }
        opcode::RELEASEDIR => {
            let wire::ReleaseIn { fh, flags, .. } = fields.record()?;
            Operation::ReleaseDir { handle: Handle(fh), flags }
        }
        opcode::FSYNCDIR => {
            let wire::FsyncIn { fh, fsync_flags, .. } = fields.record()?;
            Operation::FSyncDir { handle: Handle(fh), data_only: fsync_flags & wire::FSYNC_FDATASYNC != 0 }
        }
        opcode => Operation::Unknown { opcode },
    })
}

fn locks<'a>(number: u32, fields: &mut Fields<'a>) -> Result<Operation<'a>, Rule> {
    let wire::LkIn { fh, owner, lk, lk_flags, .. } = fields.record()?;
    let lock = RangeLock { start: lk.start, end: lk.end, kind: lk.kind, pid: lk.pid };
    let request = LockRequest { handle: Handle(fh), owner, lock, whole_file: lk_flags & wire::LK_FLOCK != 0 };
    Ok(match number {
        opcode::GETLK => Operation::GetLock(request),
        opcode::SETLK => Operation::SetLock { request, wait: false },
        _ => Operation::SetLock { request, wait: true },
    })
}

/// Operations on the file system, and those that fit nowhere else.
fn others<'a>(number: u32, fields: &mut Fields<'a>) -> Result<Operation<'a>, Rule> {
    Ok(match number {
        opcode::DESTROY => Operation::Destroy,
        opcode::BATCH_FORGET => {
            let wire::BatchForgetIn { count, .. } = fields.record()?;
            let bytes = length(count).saturating_mul(size_of::<wire::ForgetOne>());
            Operation::BatchForget(Forgets(fields.data(bytes)?))
        }
        opcode::STATX => {
            let wire::StatxIn { getattr_flags, fh, sx_flags: flags, sx_mask: mask, .. } = fields.record()?;
            Operation::Statx { handle: handle_if(getattr_flags & wire::GETATTR_FH != 0, fh), flags, mask }
        }
        opcode::ACCESS => Operation::Access { mask: fields.record::<wire::AccessIn>()?.mask },
        opcode::INTERRUPT => Operation::Interrupt { unique: Unique(fields.record::<wire::InterruptIn>()?.unique) },
        opcode::IOCTL => Operation::Ioctl(ioctl(fields)?),
        opcode::POLL => {
            let wire::PollIn { fh, events, .. } = fields.record()?;
            Operation::Poll { handle: Handle(fh), events }
        }
        opcode::SYNCFS => {
            fields.record::<wire::SyncfsIn>()?;
            Operation::SyncFs
        }
        opcode => Operation::Unknown { opcode },
    })
}

fn ioctl<'a>(fields: &mut Fields<'a>) -> Result<Ioctl<'a>, Rule> {
    let wire::IoctlIn { fh, flags, cmd: command, arg: argument, in_size, out_size } = fields.record()?;
    Ok(Ioctl {
        handle: Handle(fh),
        command,
        argument,
        input: fields.data(length(in_size))?,
        output_bytes: out_size,
        directory: flags & wire::IOCTL_DIR != 0,
        compat: flags & wire::IOCTL_32BIT != 0,
    })
}

/// A length as the protocol has it; one that memory cannot have is longer than every message.
fn length(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn handle_if(valid: bool, handle: u64) -> Option<Handle> {
    valid.then_some(Handle(handle))
}

impl SetAttributes {
    fn of(record: &wire::SetattrIn) -> SetAttributes {
        let is = |bit| record.valid & bit != 0;
        let time = |bit, now_bit, seconds: u64, nanoseconds| match (is(bit), is(now_bit)) {
            (false, false) => None,
            (_, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::At(Time { seconds: seconds.cast_signed(), nanoseconds })),
        };
        SetAttributes {
            handle: handle_if(is(fattr::FH), record.fh),
            mode: is(fattr::MODE).then_some(record.mode),
            uid: is(fattr::UID).then_some(record.uid),
            gid: is(fattr::GID).then_some(record.gid),
            size: is(fattr::SIZE).then_some(record.size),
            accessed: time(fattr::ATIME, fattr::ATIME_NOW, record.atime, record.atimensec),
            modified: time(fattr::MTIME, fattr::MTIME_NOW, record.mtime, record.mtimensec),
            changed: is(fattr::CTIME)
                .then_some(Time { seconds: record.ctime.cast_signed(), nanoseconds: record.ctimensec }),
            kill_privileges: is(fattr::KILL_SUIDGID),
        }
    }
}

impl CopyFileRange {
    fn of(record: &wire::CopyFileRangeIn) -> CopyFileRange {
        CopyFileRange {
            handle: Handle(record.fh_in),
            offset: record.off_in,
            to_node: NodeId(record.nodeid_out),
            to_handle: Handle(record.fh_out),
            to_offset: record.off_out,
            len: record.len,
            flags: record.flags,
        }
    }
}
