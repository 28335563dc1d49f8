//! Directories that operations reach again and again, by descriptors.
//!
//! A descriptor leads to the node's own inode, whatever names are on the way by now. So it stays
//! right when directories are renamed, and the way to it is walked once. A directory that loses its
//! name is let go of, as its room below is free with its last descriptor.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, getxattr_query};
use rustix::io::{Errno, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tidegate_fuse::NodeId;
use tidegate_host::files::directory::{Entry, for_each_entry};
use tidegate_source_files::{acls, by_descriptor, reopen};

/// Most directories.
const FOLDERS_MAX: usize = 64;

/// A directory of SOURCE.
#[derive(Debug)]
pub(crate) struct Folder {
    /// `O_PATH`: to reach names in it.
    descriptor: OwnedFd,
    /// To list it, once that was asked for. The lock is for the position.
    listing: Mutex<Option<Listing>>,
    /// Whether it has a default ACL, once that was asked for. Who changes that lets go of this
    /// value.
    has_default_acl: OnceLock<bool>,
}

/// A descriptor that is open for reading.
#[derive(Debug)]
struct Listing {
    descriptor: OwnedFd,
    /// Whether entries were read from it.
    has_listed: bool,
}

impl Folder {
    /// The directory that `descriptor` (`O_PATH`) leads to.
    pub(crate) fn new(descriptor: OwnedFd) -> Folder {
        Folder { descriptor, listing: Mutex::new(None), has_default_acl: OnceLock::new() }
    }

    /// Calls `act` with a descriptor that is open for reading. One thread at a time does.
    pub(crate) fn with_open<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        let mut listing = self.listing();
        let opened = self.opened(listing.take())?;
        act(listing.insert(opened).descriptor.as_fd())
    }

    /// Calls `each` with the directory and its entries from `offset` on, until it answers false or
    /// there are no more. One thread at a time does.
    ///
    /// A descriptor stays only if entries were read from it. ext4 takes the place of the first read
    /// for the beginning: if that was at the end, the directory seems to be empty from then on.
    pub(crate) fn list(&self, offset: u64, mut each: impl FnMut(BorrowedFd<'_>, Entry) -> Result<bool>) -> Result<()> {
        let mut listing = self.listing();
        let Listing { descriptor, mut has_listed } = self.opened(listing.take())?;
        for_each_entry(&descriptor, offset, |entry| {
            has_listed = true;
            each(descriptor.as_fd(), entry)
        })?;
        *listing = has_listed.then_some(Listing { descriptor, has_listed });
        Ok(())
    }

    fn opened(&self, listing: Option<Listing>) -> Result<Listing> {
        if let Some(listing) = listing {
            return Ok(listing);
        }
        let descriptor = reopen(&self.descriptor, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Listing { descriptor, has_listed: false })
    }

    fn listing(&self) -> MutexGuard<'_, Option<Listing>> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what is made in it gets its permissions by a default ACL, and not by the umask.
    pub(crate) fn has_default_acl(&self) -> Result<bool> {
        if let Some(known) = self.has_default_acl.get() {
            return Ok(*known);
        }
        let found = match getxattr_query(by_descriptor(&self.descriptor), acls::DEFAULT) {
            Ok(_) => true,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
            Err(errno) => return Err(errno),
        };
        Ok(*self.has_default_acl.get_or_init(|| found))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The directories that were reached last.
#[derive(Debug, Default)]
pub(crate) struct Folders(Mutex<VecDeque<(NodeId, Arc<Folder>)>>);

impl Folders {
    /// The directory of a node, if it is one of them.
    pub(crate) fn get(&self, node: NodeId) -> Option<Arc<Folder>> {
        let mut folders = self.folders();
        let at = folders.iter().position(|(known, _)| *known == node)?;
        folders.swap(0, at);
        Some(Arc::clone(&folders[0].1))
    }

    /// Takes a directory in, in place of one that was not reached for long. Two threads may do this
    /// at once for one node, and both descriptors are right.
    pub(crate) fn add(&self, node: NodeId, folder: Folder) -> Arc<Folder> {
        let (mut folders, folder) = (self.folders(), Arc::new(folder));
        folders.truncate(FOLDERS_MAX - 1);
        folders.push_front((node, Arc::clone(&folder)));
        folder
    }

    /// Lets go of a directory that lost its name, or whose default ACL is another now.
    pub(crate) fn let_go(&self, node: NodeId) {
        self.folders().retain(|(known, _)| *known != node);
    }

    fn folders(&self) -> MutexGuard<'_, VecDeque<(NodeId, Arc<Folder>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, openat};
    use tidegate_host::files::directory::for_each_name;

    fn folder(path: &std::path::Path) -> Folder {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Folder::new(openat(CWD, path, flags, Mode::empty()).expect("it is there"))
    }

    #[test]
    fn the_directories_reached_last_stay_and_those_without_a_name_go() {
        let (above, folders) = (tempfile::tempdir().expect("a folder"), Folders::default());
        folders.add(NodeId(1), folder(above.path()));
        for number in 2..2 * FOLDERS_MAX as u64 {
            folders.add(NodeId(number), folder(above.path()));
            assert!(folders.get(NodeId(1)).is_some(), "{number}");
        }
        assert!(folders.get(NodeId(2)).is_none());
        folders.let_go(NodeId(1));
        assert!(folders.get(NodeId(1)).is_none());
    }

    #[test]
    fn a_directory_is_listed_whole_after_a_first_read_at_its_end() {
        let path = tempfile::tempdir().expect("a folder");
        std::fs::write(path.path().join("file"), b"").expect("made");
        let listed = |folder: &Folder, offset| {
            let mut nexts = Vec::new();
            let all = folder.list(offset, |_, entry| {
                nexts.push(entry.next);
                Ok(true)
            });
            all.expect("readable");
            nexts
        };
        let nexts = listed(&folder(path.path()), 0);
        assert_eq!(nexts.len(), 3);
        let fresh = folder(path.path());
        for round in 0..3 {
            assert!(listed(&fresh, nexts[2]).is_empty(), "{round}");
            assert_eq!(listed(&fresh, 0), nexts, "{round}");
        }
    }

    #[test]
    fn a_directory_is_listed_whatever_its_name_is() {
        let above = tempfile::tempdir().expect("a folder");
        let path = above.path().join("before");
        std::fs::create_dir(&path).expect("made");
        let folder = folder(&path);
        std::fs::rename(&path, above.path().join("after")).expect("renamed");
        std::fs::write(above.path().join("after/file"), b"").expect("made");
        for _ in 0..2 {
            let mut names = Vec::new();
            let listed = folder.with_open(|opened| for_each_name(opened, |name, _, _| names.push(name.to_vec())));
            listed.expect("readable");
            assert_eq!(names, [b"file".to_vec()]);
        }
    }
}
