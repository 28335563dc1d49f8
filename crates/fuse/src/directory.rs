//! A part of a directory's listing, written into the caller's buffer.

use crate::attributes::Entry;
use crate::reply::Reply;
use crate::wire::{Dirent, EntryOut};
use zerocopy::IntoBytes;

/// Entries start at multiples of this.
const ALIGN: usize = 8;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Inode number that programs see.
    pub inode: u64,
    /// Where the listing goes on after this entry. It stays the same while other entries come and
    /// go, also over a restart of the server.
    pub next_offset: u64,
    /// Type of the node, `DT_REG` and so on.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

/// Entries of a directory, as many as the kernel has room for.
#[derive(Debug)]
pub struct Directory<'b> {
    buffer: &'b mut [u8],
    used: usize,
    room: usize,
}

impl<'b> Directory<'b> {
    /// Starts with no entry. The kernel has room for `len` bytes, as its request says.
    pub fn new(buffer: &'b mut [u8], len: u32) -> Directory<'b> {
        let room = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
        Directory { buffer, used: 0, room }
    }

    /// Adds an entry. Returns whether there was room; if not, the listing goes on with this entry
    /// next time.
    pub fn push(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        self.put(&[], entry)
    }

    /// Adds an entry that is looked up: the kernel counts a lookup of `found`, except for `.` and
    /// `..` and for `None`, which leaves the lookup to a later request. Returns whether there was
    /// room.
    pub fn push_looked_up(&mut self, entry: &DirectoryEntry<'_>, found: Option<&Entry>) -> bool {
        let record = found.map_or_else(EntryOut::default, Entry::record);
        self.put(record.as_bytes(), entry)
    }

    /// Returns whether [`push_looked_up`](Directory::push_looked_up) has room for this name.
    pub fn has_room(&self, name_bytes: usize) -> bool {
        self.room - self.used >= padded(size_of::<EntryOut>() + size_of::<Dirent>() + name_bytes)
    }

    /// Returns whether no entry was added, as at the end of the directory.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the reply with all entries.
    pub fn reply(self) -> Reply<'b> {
        Reply::data(&self.buffer[..self.used])
    }

    fn put(&mut self, prefix: &[u8], entry: &DirectoryEntry<'_>) -> bool {
        let bytes = padded(prefix.len() + size_of::<Dirent>() + entry.name.len());
        let Ok(namelen) = u32::try_from(entry.name.len()) else { return false };
        if bytes > self.room - self.used {
            return false;
        }
        let dirent = Dirent { ino: entry.inode, off: entry.next_offset, namelen, kind: u32::from(entry.kind) };
        let mut place = &mut self.buffer[self.used..self.used + bytes];
        for part in [prefix, dirent.as_bytes(), entry.name] {
            let (here, rest) = place.split_at_mut(part.len());
            here.copy_from_slice(part);
            place = rest;
        }
        place.fill(0);
        self.used += bytes;
        true
    }
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}
