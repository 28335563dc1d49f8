//! Listing directories.

use crate::service::FileService;
use crate::service::nodes::handles::{OpenedAs, Opening};
use crate::source::directory::{Entry as Listed, for_each_entry, is_dots};
use crate::source::{about, about_at};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, fsync};
use rustix::io::{Errno, Result};
use std::sync::PoisonError;
use std::time::Instant;
use tidegate_fuse::{Directory, DirectoryEntry, Handle, Header, NodeId, OpenFlags, Reply};

impl FileService {
    pub(crate) fn open_directory<'b>(&self, header: &Header) -> Result<Reply<'b>> {
        let directory = self.open_directory_node(header.node)?;
        let opening = Opening { node: header.node, kind: OpenedAs::Directory, request: header.unique };
        // The kernel's copy of a listing stays: it drops the copy with each change that passes it.
        let flags = OpenFlags::CACHE_DIR.with(OpenFlags::KEEP_CACHE);
        Ok(Reply::opened(self.handles.add_directory(directory, opening), flags))
    }

    /// Opens the directory of a node below.
    pub(crate) fn open_directory_node(&self, node: NodeId) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Ok(self.found(node, |route| self.source.open_at(route, flags))?.0)
    }

    pub(crate) fn release_directory<'b>(&self, handle: Handle) -> Result<Reply<'b>> {
        self.handles.remove(handle);
        Ok(Reply::empty())
    }

    pub(crate) fn sync_directory<'b>(&self, handle: Handle) -> Result<Reply<'b>> {
        let directory = self.handles.directory(handle)?;
        let directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
        self.names.commit()?;
        // A directory on another file system has no names in the log.
        if !self.names.is_kept() || self.source.identity(&about(&*directory)?).device != 0 {
            let began = Instant::now();
            fsync(&*directory)?;
            self.source.syncs.count(began);
        }
        Ok(Reply::empty())
    }

    /// Lists from `offset` on, as many entries as there is room for in `len` bytes.
    pub(crate) fn read_directory<'b>(
        &self,
        (node, handle): (NodeId, Handle),
        offset: u64,
        (len, lookup): (u32, bool),
        buffer: &'b mut [u8],
    ) -> Result<Reply<'b>> {
        let directory = self.handles.directory(handle)?;
        let directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listing = Directory::new(buffer, len);
        for_each_entry(&*directory, offset, |entry| match lookup {
            true => self.list_looked_up((node, &directory), &entry, &mut listing),
            false => Ok(listing.push(&shown(&entry))),
        })?;
        Ok(listing.reply())
    }

    /// Lists an entry with its node, which the kernel counts as a lookup.
    fn list_looked_up(
        &self,
        (node, directory): (NodeId, &OwnedFd),
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
