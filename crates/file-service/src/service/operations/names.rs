//! Operations on names: each is done in SOURCE, and then the nodes follow.
//!
//! A change of a name is made under the lock of the inodes, so that no route is read between the
//! change below and the one here. A lookup takes the lock at its end only, and is made again if a
//! name went meanwhile. Each change is recorded in the log of names before its reply.

use crate::service::nodes::dentry::Dentry;
use crate::service::nodes::folders::Folder;
use crate::service::nodes::inodes::Inodes;
use crate::service::nodes::open_files::OpenFile;
use crate::service::operations::permissions::Permissions;
use crate::service::{FileService, Privileges, SET_GROUP_ID, SET_USER_ID, VALID};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Statx};
use rustix::fs::{chmod, linkat, mkdirat, mknodat, openat, readlinkat_raw, renameat_with, symlinkat, unlinkat};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_fuse::{Attributes, Entry, Header, NodeId, Reply, Unique};
use tidegate_layout::file_cache::{LostName, NameChange, NodeIdentity};
use tidegate_source_files::Route;
use tidegate_source_files::name_log::{Naming, Subject};
use tidegate_source_files::nameless::KeptFile;
use tidegate_source_files::{about, about_at, by_descriptor, reopen};

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
        self.enter_found((parent, name), || about_at(self.folder(parent)?, name))
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
        answer.inspect_err(|_| {
            self.inodes_mut().forget(node, 1);
        })
    }

    /// Opens a file, and says what it is. `made` is the file, open for reading and writing, if it
    /// was just made and recorded.
    pub(crate) fn opened_entry<'b>(
        &self,
        (node, request): (NodeId, Unique),
        made: Option<OwnedFd>,
        flags: u32,
        about: &Statx,
    ) -> Result<Reply<'b>> {
        let (handle, open_flags) = match made {
            Some(made) => self.open_made((node, request), (made, about))?,
            None => {
                let opened = self.open_handle((node, request), flags, Privileges::Keep)?.0;
                // The kernel takes this answer whatever came meanwhile, also if the file was lent.
                let entry = Entry { attributes_valid: Duration::ZERO, ..self.entry(node, about)? };
                return Ok(Reply::created(&entry, opened.0, opened.1));
            }
        };
        Ok(Reply::created(&self.entry(node, about)?, handle, open_flags))
    }

    pub(crate) fn entry(&self, node: NodeId, about: &Statx) -> Result<Entry> {
        let attributes_valid = self.valid_of(about);
        let attributes = self.attributes_of(about)?;
        // The kernel asks for generations that tell nodes of one number apart; none are.
        Ok(Entry { node, generation: 0, attributes, name_valid: VALID, attributes_valid })
    }

    pub(crate) fn read_link<'b>(&self, node: NodeId, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        let (located, _) = self.locate(node)?;
        let len = readlinkat_raw(&located, c"", &mut *buffer)?;
        Ok(Reply::data(&buffer[..len]))
    }

    pub(crate) fn make_symlink<'b>(&self, header: &Header, name: &CStr, target: &CStr) -> Result<Reply<'b>> {
        self.make(header, (name, target), None, |folder| symlinkat(target, folder, name))
    }

    pub(crate) fn make_directory<'b>(&self, header: &Header, name: &CStr, asked: Permissions) -> Result<Reply<'b>> {
        self.make(header, (name, c""), Some(asked.mode), |folder| mkdirat(folder, name, asked.in_folder(folder)?))
    }

    pub(crate) fn make_node<'b>(
        &self,
        header: &Header,
        name: &CStr,
        asked: Permissions,
        device: u32,
    ) -> Result<Reply<'b>> {
        let (major, minor) = Attributes::device_parts(device);
        let device = rustix::fs::makedev(major, minor);
        let kind = FileType::from_raw_mode(asked.mode);
        self.make(header, (name, c""), Some(asked.mode), |folder| {
            mknodat(folder, name, kind, asked.in_folder(folder)?, device)
        })
    }

    /// Makes something with a name, gives it to the caller, and looks it up.
    fn make<'b>(
        &self,
        header: &Header,
        (name, target): (&CStr, &CStr),
        mode: Option<u32>,
        make: impl FnOnce(&Folder) -> Result<()>,
    ) -> Result<Reply<'b>> {
        let mut naming = self.names.begin()?;
        let folder = self.folder(header.node)?;
        let mut inodes = self.inodes_mut();
        let route = inodes.route(header.node).ok_or(Errno::STALE)?;
        make(&folder)?;
        let open = || openat(&folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let about = naming.completed(open().and_then(|made| self.complete(header, &folder, &made, mode)))?;
        self.record_made(&mut naming, route.path_of(name.to_bytes()), &about, target.to_bytes())?;
        let dentry = Dentry::new(header.node, name.to_bytes());
        let node = inodes.enter(dentry, self.source.identity(&about)).ok_or(Errno::STALE)?;
        drop(inodes);
        Ok(Reply::entry(&self.counted(node, self.entry(node, &about))?))
    }

    /// Gives what was just made in `folder` to the caller, and says what it is.
    fn complete(&self, header: &Header, folder: &Folder, made: &OwnedFd, mode: Option<u32>) -> Result<Statx> {
        self.give_to_caller(header, folder, made)?;
        mode.map_or(Ok(()), |mode| keep_mode(made, mode))?;
        about(made)
    }

    fn record_made(&self, naming: &mut Naming<'_>, path: Option<Vec<u8>>, about: &Statx, target: &[u8]) -> Result<()> {
        let Some(Subject { path, node }) = self.names.subject(path, about) else { return Ok(()) };
        let (mode, owner, group) = (about.stx_mode.into(), about.stx_uid, about.stx_gid);
        let special = rustix::fs::makedev(about.stx_rdev_major, about.stx_rdev_minor);
        naming.record(&NameChange::Made { path: &path, node, mode, owner, group, special, target })
    }

    pub(crate) fn create<'b>(
        &self,
        header: &Header,
        name: &CStr,
        flags: u32,
        permissions: Permissions,
    ) -> Result<Reply<'b>> {
        let asked = OFlags::from_bits_retain(flags);
        let mut naming = self.names.begin()?;
        let folder = self.folder(header.node)?;
        let mut inodes = self.inodes_mut();
        let route = inodes.route(header.node).ok_or(Errno::STALE)?;
        let makes = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (made, about) = match openat(&folder, name, makes, permissions.in_folder(&folder)?) {
            Ok(made) => {
                let about = naming.completed(self.complete(header, &folder, &made, Some(permissions.mode)))?;
                self.record_made(&mut naming, route.path_of(name.to_bytes()), &about, b"")?;
                (Some(made), about)
            }
            Err(Errno::EXIST) if !asked.contains(OFlags::EXCL) => (None, about_at(&folder, name.to_bytes())?),
            Err(errno) => return Err(errno),
        };
        let dentry = Dentry::new(header.node, name.to_bytes());
        let node = inodes.enter(dentry, self.source.identity(&about)).ok_or(Errno::STALE)?;
        drop((inodes, naming));
        self.counted(node, self.opened_entry((node, header.unique), made, flags, &about))
    }

    pub(crate) fn make_unnamed<'b>(&self, header: &Header, flags: u32, asked: Permissions) -> Result<Reply<'b>> {
        let folder = self.folder(header.node)?;
        let makes = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = openat(&folder, ".", makes, asked.in_folder(&folder)?)?;
        self.give_to_caller(header, &folder, &made)?;
        keep_mode(&made, asked.mode)?;
        let about = about(&made)?;
        let kept = Arc::new(KeptFile::passing(reopen(&made, OFlags::PATH)?));
        let node = self.inodes_mut().enter_unnamed(self.source.identity(&about), kept).ok_or(Errno::STALE)?;
        self.counted(node, self.opened_entry((node, header.unique), None, flags, &about))
    }

    pub(crate) fn unlink<'b>(&self, parent: NodeId, name: &CStr) -> Result<Reply<'b>> {
        self.remove(parent, name, AtFlags::empty())
    }

    pub(crate) fn remove_directory<'b>(&self, parent: NodeId, name: &CStr) -> Result<Reply<'b>> {
        self.remove(parent, name, AtFlags::REMOVEDIR)
    }

    fn remove<'b>(&self, parent: NodeId, name: &CStr, flags: AtFlags) -> Result<Reply<'b>> {
        let mut naming = self.names.begin()?;
        let folder = self.folder(parent)?;
        let (about, kept) = self.keep(&folder, name)?;
        let mut inodes = self.inodes_mut();
        let dentry = Dentry::new(parent, name.to_bytes());
        let route = inodes.route(parent).ok_or(Errno::STALE)?;
        self.note_last_name(&about)?;
        unlinkat(&folder, name, flags).inspect_err(|_| self.hidden.forget_under_way())?;
        self.let_go_of_folder(&inodes, &dentry);
        let removed = inodes.at(&dentry);
        inodes.unlink(&dentry, kept);
        if let Some(Subject { path, node }) = self.names.subject(route.path_of(name.to_bytes()), &about) {
            naming.record(&NameChange::Removed { path: &path, lost: lost(node, &about) })?;
        }
        drop(inodes);
        // Behind the change: the next sync of the file is a request, which makes that durable too.
        self.end_lease_of(&about)?;
        self.keep_if_open(removed, &about);
        Ok(Reply::empty())
    }

    /// Notes that a file of the pool is about to lose its last name. A log of names has the
    /// operation once it is done: until then, after a kill, the note alone tells that the file is
    /// not missing.
    fn note_last_name(&self, about: &Statx) -> Result<()> {
        let identity = self.source.identity(about);
        let is_pooled = || self.open_files.get(identity).is_some_and(|file| self.open_files.is_pooled(&file));
        if about.stx_nlink != 1 || !is_pooled() {
            return Ok(());
        }
        if self.names.is_kept() { self.hidden.note_under_way(identity) } else { self.hidden.note_gone(identity) }
    }

    pub(crate) fn rename<'b>(
        &self,
        (parent, name): (NodeId, &CStr),
        (new_parent, new_name): (NodeId, &CStr),
        flags: u32,
    ) -> Result<Reply<'b>> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let (old, new) = (Dentry::new(parent, name.to_bytes()), Dentry::new(new_parent, new_name.to_bytes()));
        self.sync_replacement(&old, &new)?;
        let mut naming = self.names.begin()?;
        let (from, to) = (self.folder(parent)?, self.folder(new_parent)?);
        let (target, replaced) = self.keep(&to, new_name).ok().unzip();
        let mut inodes = self.inodes_mut();
        let route = |node| inodes.route(node).ok_or(Errno::STALE);
        let (old_route, new_route) = (route(parent)?, route(new_parent)?);
        let moved = about_at(&from, name.to_bytes())?;
        // Two names of one file: the kernel leaves both as they are.
        let is_same =
            target.as_ref().is_some_and(|target| self.source.identity(target) == self.source.identity(&moved));
        if let Some(target) = target.as_ref().filter(|_| !is_same && !flags.contains(RenameFlags::EXCHANGE)) {
            self.note_last_name(target)?;
        }
        renameat_with(&from, name, &to, new_name, flags).inspect_err(|_| self.hidden.forget_under_way())?;
        if is_same {
            return Ok(Reply::empty());
        }
        let mut displaced = None;
        if flags.contains(RenameFlags::EXCHANGE) {
            inodes.exchange(&old, &new);
        } else {
            self.let_go_of_folder(&inodes, &new);
            displaced = inodes.at(&new);
            inodes.unlink(&new, replaced.flatten());
            inodes.rename(&old, new);
        }
        let (path, to) = (old_route.path_of(name.to_bytes()), new_route.path_of(new_name.to_bytes()));
        if let (Some(moved), Some(to)) = (self.names.subject(path, &moved), to) {
            self.record_renamed(&mut naming, (&moved, &to), target.as_ref(), flags)?;
        }
        drop(inodes);
        target.iter().chain([&moved]).try_for_each(|about| self.end_lease_of(about))?;
        target.inspect(|target| self.keep_if_open(displaced, target));
        Ok(Reply::empty())
    }

    fn record_renamed(
        &self,
        naming: &mut Naming<'_>,
        (moved, to): (&Subject, &[u8]),
        target: Option<&Statx>,
        flags: RenameFlags,
    ) -> Result<()> {
        let Subject { path, node } = moved;
        let target = target.and_then(|about| Some((self.names.subject(Some(to.to_vec()), about)?.node, about)));
        match target {
            // The whiteout that is left has no record.
            _ if flags.contains(RenameFlags::WHITEOUT) => naming.without_record(),
            Some((other, _)) if flags.contains(RenameFlags::EXCHANGE) => {
                naming.record(&NameChange::Exchanged { path, to, node: *node, other })
            }
            target => {
                let replaced = target.map(|(node, about)| lost(node, about));
                naming.record(&NameChange::Renamed { path, to, node: *node, replaced })
            }
        }
    }

    /// Syncs a file that is about to take the place of another one: the name of both is durable
    /// soon, and contents go with it, as in other file systems.
    fn sync_replacement(&self, old: &Dentry, new: &Dentry) -> Result<()> {
        let moved = {
            let inodes = self.inodes();
            let replaces = self.names.is_kept() && inodes.at(new).is_some();
            inodes.at(old).filter(|_| replaces).and_then(|node| inodes.identity(node))
        };
        match moved.and_then(|identity| self.open_files.get(identity)) {
            Some(file) if self.open_files.is_pooled(&file) => self.open_files.sync(&file),
            _ => Ok(()),
        }
    }

    pub(crate) fn link<'b>(&self, target: NodeId, parent: NodeId, name: &CStr) -> Result<Reply<'b>> {
        let mut naming = self.names.begin()?;
        let (folder, (file, _)) = (self.folder(parent)?, self.locate(target)?);
        let mut inodes = self.inodes_mut();
        let route = |node| inodes.route(node).ok_or(Errno::STALE);
        let (file_route, folder_route) = (route(target)?, route(parent)?);
        linkat(CWD, by_descriptor(&file), &folder, name, AtFlags::SYMLINK_FOLLOW)?;
        let about = naming.completed(about(&file))?;
        match (self.names.subject(file_route.path(), &about), folder_route.path_of(name.to_bytes())) {
            (Some(Subject { path, node }), Some(to)) => {
                naming.record(&NameChange::Linked { path: &path, to: &to, node })?;
            }
            // A file without a name has none yet that a record could say.
            _ => naming.without_record()?,
        }
        let dentry = Dentry::new(parent, name.to_bytes());
        let node = inodes.enter(dentry, self.source.identity(&about)).ok_or(Errno::STALE)?;
        drop(inodes);
        self.end_lease_of(&about)?;
        // The kernel takes this answer whatever came meanwhile, also if the file was lent.
        let entry = Entry { attributes_valid: Duration::ZERO, ..self.counted(node, self.entry(node, &about))? };
        Ok(Reply::entry(&entry))
    }

    /// What has a name, and a descriptor to reach it when the name is gone, if there can be one.
    /// The kernel lets nobody change the name meanwhile. Called without the lock of the inodes.
    fn keep(&self, folder: &Folder, name: &CStr) -> Result<(Statx, Option<Arc<KeptFile>>)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(descriptor) = openat(folder, name, flags, Mode::empty()) else {
            return Ok((about_at(folder, name.to_bytes())?, None));
        };
        let about = about(&descriptor)?;
        let identity = self.source.identity(&about);
        let is_directory = FileType::from_raw_mode(about.stx_mode.into()) == FileType::Directory;
        let kept = Arc::new(match is_directory || self.open_files.is_open(identity) {
            true => KeptFile::surviving(descriptor, &self.survival.store),
            false => KeptFile::passing(descriptor),
        });
        self.open_files.get(identity).inspect(|file| file.keep(Arc::clone(&kept)));
        Ok((about, Some(kept)))
    }

    /// Has the descriptor of a node that lost a name survive this server, if a program opened the
    /// file after [`FileService::keep`].
    fn keep_if_open(&self, node: Option<NodeId>, about: &Statx) {
        let identity = self.source.identity(about);
        if let (Some(node), Some(file)) = (node, self.open_files.get(identity))
            && self.open_files.is_open(identity)
        {
            self.keep_open(node, &file);
        }
    }

    /// Lets go of a directory that is about to lose its name.
    fn let_go_of_folder(&self, inodes: &Inodes, dentry: &Dentry) {
        inodes.at(dentry).inspect(|node| self.folders.let_go(*node));
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

/// What a name that is about to go takes from the inode of `about`.
fn lost(node: NodeIdentity, about: &Statx) -> LostName {
    let is_directory = FileType::from_raw_mode(about.stx_mode.into()) == FileType::Directory;
    LostName { node, last: is_directory || about.stx_nlink <= 1 }
}

/// Sets again what a change of the owner takes away.
pub(super) fn keep_mode(made: &OwnedFd, mode: u32) -> Result<()> {
    match mode & (SET_USER_ID | SET_GROUP_ID) {
        0 => Ok(()),
        // Without those bits it got what the umask or a default ACL leaves.
        taken => chmod(by_descriptor(made), Mode::from_raw_mode(u32::from(about(made)?.stx_mode) & 0o7777 | taken)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::opening::fresh_record;
    use crate::pool::hidden::{Cover, Hidden};
    use crate::service::Survival;
    use crate::service::nodes::handles::Handles;
    use crate::service::nodes::inodes::{Inodes, KeptFiles};
    use crate::service::nodes::open_files::OpenFiles;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use tidegate_file_cache::{FilePool, Persistence, PoolSpec, dram_bytes, format};
    use tidegate_fuse::{Handle, Unique};
    use tidegate_media::{MappedRegion, Region};
    use tidegate_mount_transport::{DescriptorStore, MemoryLog};
    use tidegate_source_files::SourceDirectory;
    use tidegate_source_files::name_log::NameLog;

    /// A service without threads.
    struct Testbed {
        _folder: tempfile::TempDir,
        /// Takes descriptors, and answers nothing.
        _supervisor: UnixStream,
        service: FileService,
    }

    const CALLER: Header = Header { unique: Unique(1), node: NodeId::ROOT, uid: 0, gid: 0, pid: 1 };

    impl Testbed {
        fn new() -> Testbed {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("source");
            std::fs::create_dir(&path).expect("made");
            let source = Arc::new(SourceDirectory::open(&path).expect("a directory"));
            let region = Arc::new(MappedRegion::anonymous(16 << 20).expect("memory"));
            format(&*region, &PoolSpec::usual([1; 16])).expect("there is room");
            let bytes = dram_bytes(&*region, 1 << 20).expect("there is a pool");
            let dram = |_| Ok(Arc::new(MappedRegion::anonymous(bytes).expect("memory")) as Arc<dyn Region>);
            let pool = FilePool::open(&region, dram).expect("a fresh pool");
            let names = Arc::new(NameLog::resumed(&region, &source).expect("a fresh log"));
            let files = Arc::new(OpenFiles::new(pool, names));
            let record = fresh_record(&path, &source, None).expect("readable");
            let hidden = Hidden::begin((folder.path().join("pool"), "1".to_owned()), record, &source, Cover::Mount);
            let memory = |name| MemoryLog::memory(name).expect("memory");
            let root = source.identity(&about(source.root()).expect("readable"));
            let inodes = Inodes::replay(root, memory("nodes"), &KeptFiles::new()).expect("a log");
            let (handles, _) = Handles::replay(memory("handles")).expect("a log");
            let (socket, supervisor) = UnixStream::pair().expect("sockets");
            let survival = Survival { store: DescriptorStore::new(socket.into(), 1), spare: Mutex::default() };
            let hidden = hidden.expect("covered");
            let service = FileService::new((source, hidden), (inodes, files), (handles, survival));
            Testbed { _folder: folder, _supervisor: supervisor, service }
        }

        fn make(&self, name: &CStr) -> Arc<OpenFile> {
            self.service
                .create(&CALLER, name, OFlags::RDWR.bits(), Permissions { mode: 0o644, umask: 0 })
                .expect("made");
            let inodes = self.service.inodes();
            let node = inodes.at(&Dentry::new(NodeId::ROOT, name.to_bytes())).expect("it was just made");
            self.service.open_files.get(inodes.identity(node).expect("a node")).expect("it is open")
        }

        fn syncs_below(&self) -> u64 {
            self.service.source.syncs.read().0 + self.service.names.counters().0.syncs_below
        }
    }

    #[test]
    fn new_files_their_names_and_directories_are_durable_without_a_sync_below() {
        let bed = Testbed::new();
        let before = bed.syncs_below();
        let (empty, file) = (bed.make(c"empty"), bed.make(c"file"));
        let files = &bed.service.open_files;
        files.sync(&empty).expect("synced");
        files.write(&file, 0, b"new", Persistence::Asynchronous).expect("written");
        files.sync(&file).expect("synced");
        files.write(&bed.make(c"o_sync"), 0, b"new", Persistence::Synchronous).expect("written");
        bed.service.rename((NodeId::ROOT, c"file"), (NodeId::ROOT, c"empty"), 0).expect("renamed");
        bed.service.sync_directory(NodeId::ROOT).expect("synced");
        assert_eq!((bed.syncs_below(), bed.service.names.counters().0.recorded), (before, 4));
    }

    #[test]
    fn what_nobody_can_reach_any_more_is_given_up_and_not_before() {
        let bed = Testbed::new();
        let files = &bed.service.open_files;
        let file = bed.make(c"file");
        files.write(&file, 0, b"new", Persistence::Synchronous).expect("written");
        bed.service.unlink(NodeId::ROOT, c"file").expect("removed");
        files.give_up_gone().expect("nothing to do");
        assert!(files.pool.fill().out_of_sync > 0, "a program has it open");
        bed.service.release(Handle(1)).expect("closed");
        files.give_up_gone().expect("nothing to do");
        assert!(files.pool.fill().out_of_sync > 0, "the kernel knows it");
        drop(file);
        bed.service.forget([(NodeId(2), 1)]);
        files.give_up_gone().expect("given up");
        files.let_go().expect("let go");
        assert_eq!((files.pool.fill().out_of_sync, files.pool.files().len(), files.len()), (0, 0, 0));
    }

    /// Only the log tells a recovery that the file was removed.
    #[test]
    fn the_log_keeps_a_removal_until_the_pool_has_nothing_of_the_file() {
        let bed = Testbed::new();
        let files = &bed.service.open_files;
        let recorded = || bed.service.names.counters().1;
        let file = bed.make(c"file");
        files.write(&file, 0, b"new", Persistence::Synchronous).expect("written");
        bed.service.unlink(NodeId::ROOT, c"file").expect("removed");
        files.sync_source(|_| Ok(())).expect("synced");
        assert!(recorded() > 0, "a program has it open");
        bed.service.release(Handle(1)).expect("closed");
        files.sync_source(|_| Ok(())).expect("synced");
        assert!(recorded() > 0, "the kernel knows it");
        bed.service.forget([(NodeId(2), 1)]);
        files.sync_source(|_| Ok(())).expect("synced");
        assert_eq!((recorded(), files.pool.fill().out_of_sync), (0, 0));
    }

    #[test]
    fn a_file_with_another_name_than_the_kernel_knows_is_not_given_up() {
        let bed = Testbed::new();
        let files = &bed.service.open_files;
        let file = bed.make(c"file");
        files.write(&file, 0, b"new", Persistence::Synchronous).expect("written");
        let root = bed.service.source.root();
        linkat(root, "file", root, "unknown", AtFlags::empty()).expect("linked");
        bed.service.unlink(NodeId::ROOT, c"file").expect("removed");
        bed.service.release(Handle(1)).expect("closed");
        bed.service.forget([(NodeId(2), 1)]);
        files.give_up_gone().expect("nothing to do");
        assert!(files.pool.fill().out_of_sync > 0);
    }
}
