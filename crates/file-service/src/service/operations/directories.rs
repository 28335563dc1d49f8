//! Listing directories. They are not opened: the kernel is told once that there is no need to, and
//! then opens, closes and lists from its cache without a request.

use crate::service::FileService;
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, fsync};
use rustix::io::{Errno, Result};
use std::time::Instant;
use tidegate_fuse::{Directory, DirectoryEntry, NodeId, Reply};
use tidegate_host::files::directory::{Entry as Listed, is_dots};
use tidegate_source_files::about_at;

impl FileService {
    pub(crate) fn sync_directory<'b>(&self, node: NodeId) -> Result<Reply<'b>> {
        self.names.commit()?;
        let identity = self.inodes().identity(node).ok_or(Errno::STALE)?;
        // A directory on another file system has no names in the log.
        if !self.names.is_kept() || identity.device != 0 {
            let began = Instant::now();
            self.folder(node)?.with_open(|opened| fsync(opened))?;
            self.source.syncs.count(began);
        }
        Ok(Reply::empty())
    }

    /// Lists from `offset` on, as many entries as there is room for in `len` bytes.
    pub(crate) fn read_directory<'b>(
        &self,
        node: NodeId,
        offset: u64,
        (len, lookup): (u32, bool),
        buffer: &'b mut [u8],
    ) -> Result<Reply<'b>> {
        let mut listing = Directory::new(buffer, len);
        self.folder(node)?.list(offset, |directory, entry| match lookup {
            true => self.list_looked_up((node, directory), &entry, &mut listing),
            false => Ok(listing.push(&shown(&entry))),
        })?;
        Ok(listing.reply())
    }

    /// Lists an entry with its node, which the kernel counts as a lookup.
    fn list_looked_up(
        &self,
        (node, directory): (NodeId, BorrowedFd<'_>),
        entry: &Listed,
        listing: &mut Directory<'_>,
    ) -> Result<bool> {
        if !listing.has_room(entry.name.len()) {
            return Ok(false);
        }
        let found = match is_dots(&entry.name) {
            true => None,
            false => match self.enter_found((node, &entry.name), || about_at(directory, &entry.name)) {
                Ok(found) => Some(found),
                // It went meanwhile, or cannot be looked at: the kernel asks again by name.
                Err(Errno::NOENT | Errno::ACCESS) => None,
                // What is listed already counts, so its reply may not become an error.
                Err(_) if !listing.is_empty() => return Ok(false),
                Err(errno) => return Err(errno),
            },
        };
        Ok(listing.push_looked_up(&shown(entry), found.as_ref()))
    }
}

fn shown(entry: &Listed) -> DirectoryEntry<'_> {
    DirectoryEntry { inode: entry.inode, next_offset: entry.next, kind: kind_of(entry.kind), name: &entry.name }
}

/// The kernel's number for a kind of file (`DT_REG` and so on).
fn kind_of(kind: FileType) -> u8 {
    match kind {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        FileType::Unknown => 0,
    }
}
