//! The answer to a request, as bytes for one `writev`.
//!
//! A reply is a head of fixed records inside [`Reply`] and data in the caller's buffer, so that no
//! data are copied. [`Reply::frame`] completes the head with the number of the request.

use crate::attributes::{Attributes, Entry, ExtendedAttributes, Statistics};
use crate::ids::{Handle, NodeId, Unique};
use crate::operation::RangeLock;
use crate::wire;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Bytes of the header.
const HEADER_BYTES: usize = size_of::<wire::OutHeader>();
/// Bytes of the longest head: that of the reply to STATX.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + size_of::<wire::StatxOut>();
/// What stands for an error that is none of Linux's.
const EIO: i32 = 5;
/// The numbers of Linux's errors end before this one.
const ERRNO_END: i32 = 512;

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The header, with the error alone, and the records.
    head: [u8; HEAD_BYTES_MAX],
    /// Bytes of the head; 0: no reply.
    head_bytes: usize,
    error: i32,
    data: &'a [u8],
    /// What the kernel is told before the reply.
    stale: Option<NodeId>,
}

/// How the kernel treats an open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(u32);

impl OpenFlags {
    /// Drops what the page cache has of the file; none of the rules below.
    pub const NONE: OpenFlags = OpenFlags(0);
    /// Bypasses the page cache.
    pub const DIRECT_IO: OpenFlags = OpenFlags(1 << 0);
    /// Keeps what the page cache has of the file.
    pub const KEEP_CACHE: OpenFlags = OpenFlags(1 << 1);
    /// Caches the listing of a directory.
    pub const CACHE_DIR: OpenFlags = OpenFlags(1 << 3);
    /// Sends no [`Operation::Flush`](crate::Operation::Flush).
    pub const NO_FLUSH: OpenFlags = OpenFlags(1 << 5);
    /// Sends several direct writes of the file at once.
    pub const PARALLEL_DIRECT_WRITES: OpenFlags = OpenFlags(1 << 6);

    /// Returns the flags of this set and those of `other`.
    pub const fn with(self, other: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | other.0)
    }
}

impl<'a> Reply<'a> {
    /// Sends nothing, as for the requests that have no reply.
    pub fn none() -> Reply<'a> {
        Reply { head: [0; HEAD_BYTES_MAX], head_bytes: 0, error: 0, data: &[], stale: None }
    }

    /// Says that the request was carried out.
    pub fn empty() -> Reply<'a> {
        Reply { head_bytes: HEADER_BYTES, ..Reply::none() }
    }

    /// Says that the request failed. `errno` is a number of Linux's, such as 2 for `ENOENT`; any
    /// other becomes `EIO`.
    pub fn error(errno: i32) -> Reply<'a> {
        let known = errno > 0 && errno < ERRNO_END;
        Reply { error: if known { -errno } else { -EIO }, ..Reply::empty() }
    }

    /// Gives data.
    pub fn data(data: &'a [u8]) -> Reply<'a> {
        Reply { data, ..Reply::empty() }
    }

    /// Gives the node of a name.
    pub fn entry(entry: &Entry) -> Reply<'a> {
        Reply::record(&entry.record())
    }

    /// Says that there is no such name, and for how long the kernel may rely on that.
    pub fn no_entry(valid: Duration) -> Reply<'a> {
        Reply::record(&wire::EntryOut {
            entry_valid: valid.as_secs(),
            entry_valid_nsec: valid.subsec_nanos(),
            ..wire::EntryOut::default()
        })
    }

    /// Gives attributes, and for how long the kernel may rely on them.
    pub fn attributes(attributes: &Attributes, valid: Duration) -> Reply<'a> {
        Reply::record(&wire::AttrOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: 0,
            attr: attributes.record(),
        })
    }

    /// Gives all attributes, and for how long the kernel may rely on them.
    pub fn statx(attributes: &ExtendedAttributes, valid: Duration) -> Reply<'a> {
        Reply::record(&wire::StatxOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            stat: attributes.record(),
            ..wire::StatxOut::default()
        })
    }

    /// Gives the handle of an open file or directory.
    pub fn opened(handle: Handle, flags: OpenFlags) -> Reply<'a> {
        Reply::record(&wire::OpenOut { fh: handle.0, open_flags: flags.0, backing_id: 0 })
    }

    /// Gives the node and the handle of a new file.
    pub fn created(entry: &Entry, handle: Handle, flags: OpenFlags) -> Reply<'a> {
        let open = wire::OpenOut { fh: handle.0, open_flags: flags.0, backing_id: 0 };
        Reply::record(&wire::CreateOut { entry: entry.record(), open })
    }

    /// Says how many bytes were written.
    pub fn written(bytes: u32) -> Reply<'a> {
        Reply::record(&wire::WriteOut { size: bytes, padding: 0 })
    }

    /// Gives the room of the file system.
    pub fn statistics(statistics: &Statistics) -> Reply<'a> {
        Reply::record(&statistics.record())
    }

    /// Says how long the value of an extended attribute is, or the list of all names.
    /// Linux has no longer one than 64 KiB.
    pub fn value_bytes(bytes: usize) -> Reply<'a> {
        Reply::record(&wire::GetxattrOut { size: u32::try_from(bytes).unwrap_or(u32::MAX), padding: 0 })
    }

    /// Gives an offset in a file.
    pub fn offset(offset: u64) -> Reply<'a> {
        Reply::record(&wire::LseekOut { offset })
    }

    /// Gives the lock that is in the way, or one of the kind `F_UNLCK`.
    pub fn lock(lock: &RangeLock) -> Reply<'a> {
        Reply::record(&wire::FileLock { start: lock.start, end: lock.end, kind: lock.kind, pid: lock.pid })
    }

    /// Gives the result of an `ioctl`, and the bytes for the memory its argument points to.
    pub fn ioctl(result: i32, output: &'a [u8]) -> Reply<'a> {
        let head = Reply::record(&wire::IoctlOut { result, ..wire::IoctlOut::default() });
        Reply { data: output, ..head }
    }

    /// Says which events (`POLLIN`, …) are there.
    pub fn ready(events: u32) -> Reply<'a> {
        Reply::record(&wire::PollOut { revents: events, padding: 0 })
    }

    /// Says too of which node, if any, the operation changed attributes on which the kernel relies:
    /// after a write it only asks for times and length again. See [`Reply::stale_attributes`].
    #[must_use]
    pub fn with_stale_attributes(self, node: Option<NodeId>) -> Reply<'a> {
        Reply { stale: node, ..self }
    }

    /// Returns the node whose attributes the kernel has to ask for again. Whoever sends the reply
    /// sends [`Notification::attributes_changed`](crate::Notification::attributes_changed) before.
    pub fn stale_attributes(&self) -> Option<NodeId> {
        self.stale
    }

    /// Gives one record of the protocol.
    pub(crate) fn record<T: IntoBytes + Immutable>(record: &T) -> Reply<'a> {
        let mut reply = Reply::empty();
        let bytes = record.as_bytes();
        reply.head_bytes = HEADER_BYTES + bytes.len();
        reply.head[HEADER_BYTES..HEADER_BYTES + bytes.len()].copy_from_slice(bytes);
        reply
    }

    /// The error and the records of a reply without data.
    pub(crate) fn parts(&self) -> Option<(i32, &[u8])> {
        let body = self.head.get(HEADER_BYTES..self.head_bytes)?;
        self.data.is_empty().then_some((self.error, body))
    }

    /// A reply of these [parts](Reply::parts).
    pub(crate) fn of_parts(error: i32, body: &[u8]) -> Reply<'a> {
        let mut reply = Reply { error, ..Reply::empty() };
        if let Some(place) = reply.head.get_mut(HEADER_BYTES..HEADER_BYTES + body.len()) {
            place.copy_from_slice(body);
            reply.head_bytes += body.len();
        }
        reply
    }

    /// Returns whether the request failed, and with which number of Linux's.
    pub fn errno(&self) -> Option<i32> {
        (self.error != 0).then_some(-self.error)
    }

    /// Completes the head for the request `unique`. Returns the two parts to be sent with one
    /// `writev`, or `None` if nothing is to be sent.
    pub fn frame(&mut self, unique: Unique) -> Option<[&[u8]; 2]> {
        if self.head_bytes == 0 {
            return None;
        }
        // A message is not longer than its buffer, which is a little more than 1 MiB.
        let len = u32::try_from(self.head_bytes + self.data.len()).unwrap_or(u32::MAX);
        let header = wire::OutHeader { len, error: self.error, unique: unique.0 };
        self.head[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        Some([&self.head[..self.head_bytes], self.data])
    }
}
