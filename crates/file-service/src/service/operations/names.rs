//! Operations on names: each is done in SOURCE, and then the nodes follow.
//!
//! A change of a name is made under the lock of the inodes, so that no route is read between the
//! change below and the one here. A lookup takes the lock at its end only, and is made again if a
//! name went meanwhile.

use crate::service::nodes::dentry::Dentry;
use crate::service::nodes::inodes::Route;
use crate::service::nodes::nameless::KeptFile;
use crate::service::nodes::open_files::OpenFile;
use crate::service::{FileService, Privileges, SET_GROUP_ID, SET_USER_ID, VALID};
use crate::source::{about, about_at, by_descriptor, reopen};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Statx};
use rustix::fs::{chmod, linkat, mkdirat, mknodat, openat, readlinkat_raw, renameat_with, symlinkat, unlinkat};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::sync::Arc;
use tidegate_fuse::{Attributes, Entry, Header, NodeId, Reply, Unique};

impl FileService {
    pub(crate) fn lookup<'b>(&self, parent: NodeId, name: &CStr) -> Result<Reply<'b>> {
        match self.enter(parent, name.to_bytes()) {
            Ok(entry) => Ok(Reply::entry(&entry)),
            Err(Errno::NOENT) => Ok(Reply::no_entry(VALID)),
            Err(errno) => Err(errno),
        }
    }

    /// Looks a name up: the kernel counts it.
    fn enter(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        self.enter_found((parent, name), || {
            let route = self.inodes().route(parent).ok_or(Errno::STALE)?;
            about_at(&self.source.locate_directory(&route)?, name)
        })
    }

    /// Looks a name up that `find` finds below: the kernel counts it.
    pub(crate) fn enter_found(
        &self,
        (parent, name): (NodeId, &[u8]),
        find: impl Fn() -> Result<Statx>,
    ) -> Result<Entry> {
        loop {
            let moves = self.inodes().moves();
            let found = find();
            let mut inodes = self.inodes_mut();
            if inodes.moves() != moves {
                continue;
            }
            let about = found?;
            let identity = self.source.identity(&about);
            let node = inodes.enter(Dentry::new(parent, name), identity).ok_or(Errno::STALE)?;
            drop(inodes);
            return self.counted(node, self.entry(node, &about));
        }
    }

    /// The answer about a node that was just looked up. The kernel counts no lookup that fails.
    pub(crate) fn counted<T>(&self, node: NodeId, answer: Result<T>) -> Result<T> {
        answer.inspect_err(|_| self.inodes_mut().forget(node, 1))
    }

    /// Opens a file that was just made, or that was there already, and says what it is. `made` is
    /// open for reading and writing.
    pub(crate) fn opened_entry<'b>(
        &self,
        (node, request): (NodeId, Unique),
        made: Option<OwnedFd>,
        flags: u32,
        about: &Statx,
    ) -> Result<Reply<'b>> {
        let (handle, open_flags) = match made {
            Some(made) => self.open_made((node, request), made)?,
            None => self.open_handle((node, request), flags, Privileges::Keep)?,
        };
        Ok(Reply::created(&self.entry(node, about)?, handle, open_flags))
    }

    pub(crate) fn entry(&self, node: NodeId, about: &Statx) -> Result<Entry> {
        let attributes = self.attributes_of(about)?;
        // The kernel asks for generations that tell nodes of one number apart; none are.
        Ok(Entry { node, generation: 0, attributes, name_valid: VALID, attributes_valid: VALID })
    }

    pub(crate) fn read_link<'b>(&self, node: NodeId, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        let (located, _) = self.locate(node)?;
        let len = readlinkat_raw(&located, c"", &mut *buffer)?;
        Ok(Reply::data(&buffer[..len]))
    }

    pub(crate) fn make_symlink<'b>(&self, header: &Header, name: &CStr, target: &CStr) -> Result<Reply<'b>> {
        self.make(header, name, None, |folder| symlinkat(target, folder, name))
    }

    pub(crate) fn make_directory<'b>(&self, header: &Header, name: &CStr, mode: u32) -> Result<Reply<'b>> {
        self.make(header, name, Some(mode), |folder| mkdirat(folder, name, Mode::from_raw_mode(mode & 0o7777)))
    }

    pub(crate) fn make_node<'b>(&self, header: &Header, name: &CStr, mode: u32, device: u32) -> Result<Reply<'b>> {
        let (major, minor) = Attributes::device_parts(device);
        let device = rustix::fs::makedev(major, minor);
        let kind = FileType::from_raw_mode(mode);
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        self.make(header, name, Some(mode), |folder| mknodat(folder, name, kind, permissions, device))
    }

    /// Makes something with a name, gives it to the caller, and looks it up.
    fn make<'b>(
        &self,
        header: &Header,
        name: &CStr,
        mode: Option<u32>,
        make: impl FnOnce(&OwnedFd) -> Result<()>,
    ) -> Result<Reply<'b>> {
        let mut inodes = self.inodes_mut();
        let folder = self.source.locate_directory(&inodes.route(header.node).ok_or(Errno::STALE)?)?;
        make(&folder)?;
        let made = openat(&folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        self.give_to_caller(header, &folder, &made)?;
        if let Some(mode) = mode {
            keep_mode(&made, mode)?;
        }
        let about = about(&made)?;
        let dentry = Dentry::new(header.node, name.to_bytes());
        let node = inodes.enter(dentry, self.source.identity(&about)).ok_or(Errno::STALE)?;
        drop(inodes);
        Ok(Reply::entry(&self.counted(node, self.entry(node, &about))?))
    }

    pub(crate) fn create<'b>(&self, header: &Header, name: &CStr, flags: u32, mode: u32) -> Result<Reply<'b>> {
        let asked = OFlags::from_bits_retain(flags);
        let mut inodes = self.inodes_mut();
        let folder = self.source.locate_directory(&inodes.route(header.node).ok_or(Errno::STALE)?)?;
        let makes = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (about, made) = match openat(&folder, name, makes, Mode::from_raw_mode(mode & 0o7777)) {
            Ok(made) => {
                self.give_to_caller(header, &folder, &made)?;
                keep_mode(&made, mode)?;
                (about(&made)?, Some(made))
            }
            Err(Errno::EXIST) if !asked.contains(OFlags::EXCL) => (about_at(&folder, name.to_bytes())?, None),
            Err(errno) => return Err(errno),
        };
        let dentry = Dentry::new(header.node, name.to_bytes());
        let node = inodes.enter(dentry, self.source.identity(&about)).ok_or(Errno::STALE)?;
        drop(inodes);
        self.counted(node, self.opened_entry((node, header.unique), made, flags, &about))
    }

    pub(crate) fn make_unnamed<'b>(&self, header: &Header, flags: u32, mode: u32) -> Result<Reply<'b>> {
        let folder = reopen(self.locate(header.node)?.0, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let makes = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = openat(&folder, ".", makes, Mode::from_raw_mode(mode & 0o7777))?;
        self.give_to_caller(header, &folder, &made)?;
        keep_mode(&made, mode)?;
        let about = about(&made)?;
        let kept = Arc::new(KeptFile::passing(reopen(&made, OFlags::PATH)?));
        let node = self.inodes_mut().enter_unnamed(self.source.identity(&about), kept).ok_or(Errno::STALE)?;
        self.counted(node, self.opened_entry((node, header.unique), Some(made), flags, &about))
    }

    pub(crate) fn unlink<'b>(&self, parent: NodeId, name: &CStr) -> Result<Reply<'b>> {
        self.remove(parent, name, AtFlags::empty())
    }

    pub(crate) fn remove_directory<'b>(&self, parent: NodeId, name: &CStr) -> Result<Reply<'b>> {
        self.remove(parent, name, AtFlags::REMOVEDIR)
    }

    fn remove<'b>(&self, parent: NodeId, name: &CStr, flags: AtFlags) -> Result<Reply<'b>> {
        let kept = self.keep(parent, name);
        let mut inodes = self.inodes_mut();
        let dentry = Dentry::new(parent, name.to_bytes());
        let folder = self.source.locate_directory(&inodes.route(parent).ok_or(Errno::STALE)?)?;
        unlinkat(&folder, name, flags)?;
        inodes.unlink(&dentry, kept);
        Ok(Reply::empty())
    }

    pub(crate) fn rename<'b>(
        &self,
        (parent, name): (NodeId, &CStr),
        (new_parent, new_name): (NodeId, &CStr),
        flags: u32,
    ) -> Result<Reply<'b>> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let replaced = self.keep(new_parent, new_name);
        let mut inodes = self.inodes_mut();
        let folder = |node| self.source.locate_directory(&inodes.route(node).ok_or(Errno::STALE)?);
        let (from, to) = (folder(parent)?, folder(new_parent)?);
        // Two names of one file: the kernel leaves both as they are.
        let identity = |folder, name: &CStr| Some(self.source.identity(&about_at(folder, name.to_bytes()).ok()?));
        let is_same = identity(&to, new_name).is_some_and(|target| identity(&from, name) == Some(target));
        renameat_with(&from, name, &to, new_name, flags)?;
        let (old, new) = (Dentry::new(parent, name.to_bytes()), Dentry::new(new_parent, new_name.to_bytes()));
        if is_same {
            return Ok(Reply::empty());
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            inodes.exchange(&old, &new);
        } else {
            inodes.unlink(&new, replaced);
            inodes.rename(&old, new);
        }
        Ok(Reply::empty())
    }

    pub(crate) fn link<'b>(&self, target: NodeId, parent: NodeId, name: &CStr) -> Result<Reply<'b>> {
        let mut inodes = self.inodes_mut();
        let locate = |node| self.source.locate(&inodes.route(node).ok_or(Errno::STALE)?);
        let (file, folder) = (locate(target)?, locate(parent)?);
        linkat(CWD, by_descriptor(&file), &folder, name, AtFlags::SYMLINK_FOLLOW)?;
        let about = about(&file)?;
        let dentry = Dentry::new(parent, name.to_bytes());
        let node = inodes.enter(dentry, self.source.identity(&about)).ok_or(Errno::STALE)?;
        drop(inodes);
        Ok(Reply::entry(&self.counted(node, self.entry(node, &about))?))
    }

    /// A descriptor of what has a name, to reach it when the name is gone. The kernel lets nobody
    /// change the name meanwhile. Called without the lock of the inodes.
    fn keep(&self, parent: NodeId, name: &CStr) -> Option<Arc<KeptFile>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = openat(self.locate(parent).ok()?.0, name, flags, Mode::empty()).ok()?;
        let about = about(&descriptor).ok()?;
        let file = self.open_files.get(self.source.identity(&about));
        let is_directory = FileType::from_raw_mode(about.stx_mode.into()) == FileType::Directory;
        if file.is_none() && !is_directory {
            return Some(Arc::new(KeptFile::passing(descriptor)));
        }
        let kept = Arc::new(KeptFile::surviving(descriptor, &self.survival.store));
        file.inspect(|file| file.keep(Arc::clone(&kept)));
        Some(kept)
    }

    /// Has the descriptor of an open file without a name survive this server.
    pub(crate) fn keep_open(&self, node: NodeId, file: &OpenFile) {
        let Some(kept) = self.inodes().kept(node) else { return };
        if kept.key() != 0 {
            return file.keep(kept);
        }
        let Ok(descriptor) = rustix::io::fcntl_dupfd_cloexec(&*kept, 0) else { return };
        let kept = Arc::new(KeptFile::surviving(descriptor, &self.survival.store));
        file.keep(Arc::clone(&kept));
        self.inodes_mut().keep(node, kept);
    }

    /// The route by which recovery finds a node's file first.
    pub(crate) fn hint_route(&self, node: NodeId) -> Route {
        self.inodes().route(node).unwrap_or(Route::Names(Vec::new()))
    }
}

/// Sets again what a change of the owner takes away.
pub(super) fn keep_mode(made: &OwnedFd, mode: u32) -> Result<()> {
    match mode & (SET_USER_ID | SET_GROUP_ID) {
        0 => Ok(()),
        _ => chmod(by_descriptor(made), Mode::from_raw_mode(mode & 0o7777)),
    }
}
