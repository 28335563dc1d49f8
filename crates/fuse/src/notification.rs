//! Messages that the server sends unasked. Each is the bytes for one `writev`.
//!
//! The kernel carries a notification out before `writev` returns. It may wait for locks of the node
//! or directory meanwhile, and a request under way may own them: a thread that answers a request
//! does not send a notification about the same node first.

use crate::ids::NodeId;
use crate::wire::{self, notify};
use std::ffi::CStr;
use zerocopy::{Immutable, IntoBytes};

/// Bytes of the longest head: header and record.
const HEAD_BYTES_MAX: usize = size_of::<wire::OutHeader>() + size_of::<wire::InvalInodeOut>();
/// The flag of INVAL_ENTRY that lets the entry expire.
const EXPIRE_ONLY: u32 = 1 << 0;

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Notification<'a> {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    data: &'a [u8],
}

impl<'a> Notification<'a> {
    /// Drops the kernel's copy of the node's attributes, and nothing else. `ENOENT`: the kernel
    /// does not know the node.
    pub fn attributes_changed(node: NodeId) -> Notification<'a> {
        let record = wire::InvalInodeOut { ino: node.0, off: -1, len: 0 };
        Notification::new(notify::INVAL_INODE, &record, &[])
    }

    /// Drops the kernel's copy of the node's attributes and of its pages in this range; `len` 0
    /// means up to the end. `ENOENT`: the kernel does not know the node.
    pub fn contents_changed(node: NodeId, offset: u64, len: u64) -> Notification<'a> {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let record = wire::InvalInodeOut { ino: node.0, off: signed(offset), len: signed(len) };
        Notification::new(notify::INVAL_INODE, &record, &[])
    }

    /// Drops the kernel's copy of a name. `name` ends with a zero byte, as the protocol wants it.
    pub fn entry_changed(parent: NodeId, name: &'a CStr) -> Notification<'a> {
        Notification::entry(parent, name, 0)
    }

    /// Has the kernel ask for a name again before it next uses it. Wants
    /// [`Features::EXPIRE_ONLY`](crate::Features::EXPIRE_ONLY).
    pub fn entry_expired(parent: NodeId, name: &'a CStr) -> Notification<'a> {
        Notification::entry(parent, name, EXPIRE_ONLY)
    }

    /// Has the kernel send all requests again that were read and not answered. Wants
    /// [`Features::RESEND`](crate::Features::RESEND).
    pub fn resend() -> Notification<'a> {
        Notification::new(notify::RESEND, &(), &[])
    }

    /// Returns the two parts to be sent with one `writev`.
    pub fn frame(&self) -> [&[u8]; 2] {
        [&self.head[..self.head_bytes], self.data]
    }

    fn entry(parent: NodeId, name: &'a CStr, flags: u32) -> Notification<'a> {
        let namelen = u32::try_from(name.count_bytes()).unwrap_or(u32::MAX);
        let record = wire::InvalEntryOut { parent: parent.0, namelen, flags };
        Notification::new(notify::INVAL_ENTRY, &record, name.to_bytes_with_nul())
    }

    fn new<T: IntoBytes + Immutable>(code: i32, record: &T, data: &'a [u8]) -> Notification<'a> {
        let (header_bytes, record) = (size_of::<wire::OutHeader>(), record.as_bytes());
        let head_bytes = header_bytes + record.len();
        let len = u32::try_from(head_bytes + data.len()).unwrap_or(u32::MAX);
        let header = wire::OutHeader { len, error: code, unique: 0 };
        let mut head = [0; HEAD_BYTES_MAX];
        head[..header_bytes].copy_from_slice(header.as_bytes());
        head[header_bytes..head_bytes].copy_from_slice(record);
        Notification { head, head_bytes, data }
    }
}
