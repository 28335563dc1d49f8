//! The service: one answer for each request of the kernel.
//!
//! Operations on names are done in SOURCE at once; those on contents go through the file cache.
//! Any number of threads answer requests at a time. The order of locks is: the log of names, one
//! open file, inodes; none is taken while a later one is held. The lock of the table of open files
//! is the last of all, and nobody waits for a file below with it.

pub(crate) mod explained;
pub(crate) mod lending;
pub(crate) mod nodes;
mod operations;

use crate::pool::hidden::Hidden;
use crate::service::lending::Lending;
use crate::service::nodes::folders::{Folder, Folders};
use crate::service::nodes::handles::Handles;
use crate::service::nodes::inodes::Inodes;
use crate::service::nodes::open_files::OpenFiles;
use crate::service::operations::permissions::Permissions;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Gid, Statx, Uid};
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tidegate_file_cache::FileIdentity;
use tidegate_fuse::{Attempt, Header, NodeId, Operation, Reply, Request, Unique};
use tidegate_mount_transport::{Answers, DescriptorStore};
use tidegate_source_files::Route;
use tidegate_source_files::backing::OpenedFile;
use tidegate_source_files::name_log::NameLog;
use tidegate_source_files::nameless::KeptFile;
use tidegate_source_files::{SourceDirectory, about, about_at};

/// Threads that answer requests: one that waits for a disk does not keep the others waiting. Most
/// of them stand by.
pub(crate) const REQUEST_THREADS: NonZeroUsize = NonZeroUsize::new(32).expect("not 0");

/// How long the kernel may rely on names and attributes. Every change comes through the mount, so
/// nothing but a change of the kernel's own makes them out of date.
pub(crate) const VALID: Duration = Duration::from_secs(24 * 3600);

/// The owner of SOURCE's files.
pub(crate) struct FileService {
    pub(crate) source: Arc<SourceDirectory>,
    pub(crate) names: Arc<NameLog>,
    pub(crate) inodes: RwLock<Inodes>,
    pub(crate) open_files: Arc<OpenFiles>,
    /// SOURCE's permissions, which it does not have while it is mounted.
    pub(crate) hidden: Hidden,
    pub(crate) handles: Handles,
    pub(crate) folders: Folders,
    pub(crate) survival: Survival,
    /// What files are lent with; without it, no file is.
    pub(crate) lending: OnceLock<Lending>,
    /// Whether files can be given to other users.
    pub(crate) is_root: bool,
}

impl Answers for FileService {
    fn answer<'b>(&self, request: &Request<'_>, attempt: Attempt, buffer: &'b mut [u8]) -> Reply<'b> {
        self.open_files.count_request();
        let answered = match request.operation {
            Operation::Forget { lookups } => return self.forget([(request.header.node, lookups)]),
            Operation::BatchForget(forgets) => return self.forget(forgets),
            Operation::Interrupt { .. } => return Reply::none(),
            ref operation => self.answer_once(&request.header, operation, attempt, buffer),
        };
        answered.unwrap_or_else(|errno| Reply::error(errno.raw_os_error()))
    }

    /// The inode that has the request's name, if the request takes the name away.
    fn witness(&self, request: &Request<'_>) -> u64 {
        let (Operation::Unlink { name } | Operation::RmDir { name } | Operation::Rename { name, .. }) =
            request.operation
        else {
            return 0;
        };
        let found = self.folder(request.header.node).and_then(|folder| about_at(&folder, name.to_bytes()));
        found.map_or(0, |about| about.stx_ino)
    }

    fn begin_fresh(&self) {
        self.survival.let_go();
    }

    fn answered(&self) {
        self.tell_kernel();
    }
}

/// What survives the server, and what survived the last one.
pub(crate) struct Survival {
    /// Where descriptors survive.
    pub(crate) store: DescriptorStore,
    /// Descriptors of which no node knows: of files that this server may not open, and of files
    /// whose name the last server changed when it was killed, before its record.
    pub(crate) spare: Mutex<HashMap<FileIdentity, Arc<KeptFile>>>,
}

impl Survival {
    /// Takes the descriptor of a file of which no node knew.
    pub(crate) fn take_spare(&self, identity: FileIdentity) -> Option<Arc<KeptFile>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).remove(&identity)
    }

    /// The descriptor of a file of which no node knew, which stays.
    pub(crate) fn spare(&self, identity: FileIdentity) -> Option<Arc<KeptFile>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).get(&identity).cloned()
    }

    /// Lets go of the descriptors that no request asked for: all that were under way are answered.
    fn let_go(&self) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl FileService {
    /// A service for the files of `source`, which is `hidden`, with what earlier servers left.
    pub(crate) fn new(
        (source, hidden): (Arc<SourceDirectory>, Hidden),
        (inodes, open_files): (Inodes, Arc<OpenFiles>),
        (handles, survival): (Handles, Survival),
    ) -> FileService {
        FileService {
            source,
            names: Arc::clone(&open_files.names),
            inodes: RwLock::new(inodes),
            open_files,
            hidden,
            handles,
            folders: Folders::default(),
            survival,
            lending: OnceLock::new(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Carries a request out, unless an earlier server did.
    fn answer_once<'b>(
        &self,
        header: &Header,
        operation: &Operation<'_>,
        attempt: Attempt,
        buffer: &'b mut [u8],
    ) -> Result<Reply<'b>> {
        if header.unique.is_resent() {
            self.close_unheard(header.unique);
        }
        if let Attempt::InDoubt { witness } = attempt {
            // What was done has no record: SOURCE has to have it durably.
            self.names.settle()?;
            if let Some(reply) = self.answer_of_done(header, operation, witness)? {
                return Ok(reply);
            }
        }
        self.carry_out(header, operation, buffer)
    }

    /// Closes what a request opened whose answer the kernel never got.
    fn close_unheard(&self, request: Unique) {
        if let Some(handle) = self.handles.of_request(request) {
            self.close_handle(handle);
        }
    }

    fn carry_out<'b>(&self, header: &Header, operation: &Operation<'_>, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        let node = header.node;
        match *operation {
            Operation::Lookup { name } => self.lookup(node, name),
            Operation::GetAttr { handle: _ } => self.get_attributes(node),
            Operation::Statx { .. } => self.get_extended_attributes(node),
            Operation::SetAttr(ref change) => self.set_attributes(node, change),
            Operation::ReadLink => self.read_link(node, buffer),
            Operation::Symlink { name, target } => self.make_symlink(header, name, target),
            Operation::MkNod { name, mode, device, umask } => {
                self.make_node(header, name, Permissions { mode, umask }, device)
            }
            Operation::MkDir { name, mode, umask } => self.make_directory(header, name, Permissions { mode, umask }),
            Operation::Unlink { name } => self.unlink(node, name),
            Operation::RmDir { name } => self.remove_directory(node, name),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename((node, name), (new_parent, new_name), flags)
            }
            Operation::Link { target, name } => self.link(target, node, name),
            Operation::Open { flags, kill_privileges } => self.open(header, flags, Privileges::asked(kill_privileges)),
            Operation::Create { name, flags, mode, umask, .. } => {
                self.create(header, name, flags, Permissions { mode, umask })
            }
            Operation::TmpFile { flags, mode, umask } => self.make_unnamed(header, flags, Permissions { mode, umask }),
            Operation::Read { handle, offset, len, flags } => self.read(header, handle, (offset, len, flags), buffer),
            Operation::Write(ref write) => self.write(header, write),
            Operation::CopyFileRange(ref copy) => self.copy(header, copy, buffer),
            Operation::Release { handle, .. } => self.release(handle),
            Operation::FSync { handle, .. } => self.sync(handle),
            Operation::SyncFs => self.sync_all(),
            Operation::Fallocate { handle, offset, len, mode } => self.allocate(handle, offset, len, mode),
            Operation::LSeek { handle, offset, whence } => self.seek(handle, offset, whence),
            Operation::StatFs => self.statistics(),
            Operation::SetXattr(ref set) => self.set_xattr(node, set),
            Operation::GetXattr { name, len } => self.get_xattr(node, name, len, buffer),
            Operation::ListXattr { len } => self.list_xattrs(node, len, buffer),
            Operation::RemoveXattr { name } => self.remove_xattr(node, name),
            Operation::ReadDir { offset, len, lookup, .. } => self.read_directory(node, offset, (len, lookup), buffer),
            Operation::FSyncDir { .. } => self.sync_directory(node),
            Operation::Ioctl(ref ioctl) => self.control(header, ioctl, buffer),
            Operation::Destroy => Ok(Reply::empty()),
            // The kernel does without: it checks permissions and keeps locks by itself, directories
            // need not be opened, every file is ready, and a close has nothing to report that a
            // write had not.
            _ => Err(Errno::NOSYS),
        }
    }

    pub(crate) fn inodes(&self) -> RwLockReadGuard<'_, Inodes> {
        self.inodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn inodes_mut(&self) -> RwLockWriteGuard<'_, Inodes> {
        self.inodes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget<'b>(&self, forgets: impl IntoIterator<Item = (NodeId, u64)>) -> Reply<'b> {
        let mut inodes = self.inodes_mut();
        let forget = |(node, lookups)| inodes.forget(node, lookups);
        let nameless: Vec<_> = forgets.into_iter().filter_map(forget).collect();
        drop(inodes);
        self.open_files.nobody_reaches(&nameless);
        Reply::none()
    }

    /// A descriptor of a node, which may be no more than `O_PATH`, and what the kernel says of it.
    pub(crate) fn locate(&self, node: NodeId) -> Result<(Located, Statx)> {
        let identity = self.inodes().identity(node);
        // An open file needs no walk.
        if let Some(file) = identity.and_then(|identity| self.open_files.get(identity)) {
            let opened = file.backing();
            let about = about(opened.descriptor())?;
            return Ok((Located::Open(opened), about));
        }
        let (walked, about) = self.found(node, |route| self.source.locate(route))?;
        Ok((Located::Walked(walked), about))
    }

    /// The directory that a node is. One on a file system that is mounted in SOURCE is let go of
    /// with the operation, as that one could not be unmounted otherwise.
    pub(crate) fn folder(&self, node: NodeId) -> Result<Arc<Folder>> {
        if let Some(known) = self.folders.get(node) {
            return Ok(known);
        }
        let (opened, about) = self.found(node, |route| self.source.locate_directory(route))?;
        let (folder, stays) = (Folder::new(opened), about.stx_nlink > 0 && self.source.identity(&about).device == 0);
        Ok(if stays { self.folders.add(node, folder) } else { Arc::new(folder) })
    }

    /// What `open` opens by a node's route, if it is the node. A rename meanwhile may lead it to
    /// another file: then it is opened again.
    pub(crate) fn found(&self, node: NodeId, open: impl Fn(&Route) -> Result<OwnedFd>) -> Result<(OwnedFd, Statx)> {
        loop {
            let (moves, route, identity) = {
                let inodes = self.inodes();
                let route = inodes.route(node).ok_or(Errno::STALE)?;
                (inodes.moves(), route, inodes.identity(node).ok_or(Errno::STALE)?)
            };
            let errno = match open(&route).and_then(|opened| Ok((about(&opened)?, opened))) {
                Ok((about, opened)) if self.source.identity(&about) == identity => return Ok((opened, about)),
                Ok(_) => Errno::STALE,
                Err(errno) => errno,
            };
            if self.inodes().moves() == moves {
                return Err(errno);
            }
        }
    }

    /// Gives what was made in `folder` to the program that asked for it. In a directory with the
    /// set-group-ID bit, the group stays the directory's.
    pub(crate) fn give_to_caller(&self, header: &Header, folder: impl AsFd, made: &OwnedFd) -> Result<()> {
        if !self.is_root || (header.uid == 0 && header.gid == 0) {
            return Ok(());
        }
        let inherits_group = u32::from(about(folder)?.stx_mode) & SET_GROUP_ID != 0;
        let group = (!inherits_group).then(|| Gid::from_raw(header.gid));
        let flags = rustix::fs::AtFlags::EMPTY_PATH;
        rustix::fs::chownat(made, "", Some(Uid::from_raw(header.uid)), group, flags)
    }
}

/// A node that was reached below.
pub(crate) enum Located {
    /// It is an open file.
    Open(Arc<OpenedFile>),
    /// It was walked to.
    Walked(OwnedFd),
}

impl AsFd for Located {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Located::Open(opened) => opened.descriptor().as_fd(),
            Located::Walked(walked) => walked.as_fd(),
        }
    }
}

/// Whether set-user-ID and set-group-ID of a file go with a change of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileges {
    /// The caller may leave them.
    Keep,
    /// The kernel asks for it.
    Clear,
}

impl Privileges {
    /// As a request says.
    pub(crate) fn asked(clear: bool) -> Privileges {
        if clear { Privileges::Clear } else { Privileges::Keep }
    }
}

/// `S_ISGID`.
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
/// `S_ISUID`.
pub(crate) const SET_USER_ID: u32 = 0o4000;
