//! Attributes of nodes, and the room of the file system.
//!
//! They are those of the file below; but the length and the time of modification are the pool's
//! where the pool has what the file below lacks.

use crate::service::nodes::open_files::{Access, OpenFile};
use crate::service::{FileService, Located, Privileges, SET_GROUP_ID, SET_USER_ID, VALID};
use rustix::fs::{AtFlags, Gid, Mode, Statx, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::fs::{chmod, chownat, fstatvfs, utimensat};
use rustix::io::{Errno, Result};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_file_cache::BackingFile;
use tidegate_fuse::{Attributes, ExtendedAttributes, NodeId, Reply, SetAttributes, SetTime, Statistics, Time};
use tidegate_layout::file_cache::{LoggedTime, NameChange, NodeAttributes};
use tidegate_source_files::backing::OpenedFile;
use tidegate_source_files::name_log::{Naming, Subject};
use tidegate_source_files::{about, by_descriptor};

/// The attribute that a file's capabilities are in.
pub(super) const CAPABILITIES: &CStr = c"security.capability";

/// `S_IFMT` and `S_IFREG`.
const FILE_KIND: u16 = 0o170_000;
const REGULAR: u16 = 0o100_000;

/// Its owner may open a file for reading and writing.
const OWNER_WORKS: u32 = 0o600;

impl FileService {
    pub(crate) fn get_attributes<'b>(&self, node: NodeId) -> Result<Reply<'b>> {
        let valid = self.length_valid(node);
        Ok(Reply::attributes(&self.attributes(node)?, valid))
    }

    /// How long the kernel may rely on a file's length. Asked first: a group that ends meanwhile
    /// makes the length shorter.
    fn length_valid(&self, node: NodeId) -> Duration {
        let identity = self.inodes().identity(node);
        self.valid(identity.and_then(|identity| self.open_files.get(identity)).as_deref())
    }

    /// How long the kernel may rely on what it is told of a file: while it has an atomic group, or
    /// is lent or mapped, not at all.
    fn valid(&self, file: Option<&OpenFile>) -> Duration {
        let changes_unasked =
            |file: &OpenFile| file.groups.is_used() || file.lease.is_direct() || self.open_files.is_lent(file);
        if file.is_some_and(changes_unasked) { Duration::ZERO } else { VALID }
    }

    /// See [`FileService::valid`]: of the file that the kernel says this about below.
    pub(crate) fn valid_of(&self, about: &Statx) -> Duration {
        self.valid(self.open_file(about).as_deref())
    }

    pub(crate) fn get_extended_attributes<'b>(&self, node: NodeId) -> Result<Reply<'b>> {
        let valid = self.length_valid(node);
        let (_, about) = self.locate(node)?;
        let born = about.stx_mask & StatxFlags::BTIME.bits() != 0;
        let extended = ExtendedAttributes {
            attributes: self.attributes_of(&about)?,
            born: born.then_some(Time { seconds: about.stx_btime.tv_sec, nanoseconds: about.stx_btime.tv_nsec }),
            flags: 0,
            flags_known: 0,
        };
        Ok(Reply::statx(&extended, valid))
    }

    pub(crate) fn set_attributes<'b>(&self, node: NodeId, change: &SetAttributes) -> Result<Reply<'b>> {
        let (located, about) = self.locate(node)?;
        if change.uid.is_some() || change.gid.is_some() {
            self.set_owner(node, (&located, &about), change)?;
        }
        if let Some(size) = change.size {
            self.set_size(node, size, Privileges::asked(change.kill_privileges))?;
        }
        if let Some(mode) = change.mode {
            self.set_mode(node, (&located, &about), mode)?;
        }
        self.set_times(node, (&located, &about), change)?;
        self.end_lease_of(&about)?;
        // The kernel takes this answer whatever came meanwhile, also if the file was lent.
        let valid = if about.stx_mode & FILE_KIND == REGULAR { Duration::ZERO } else { VALID };
        Ok(Reply::attributes(&self.attributes_of(&tidegate_source_files::about(&located)?)?, valid))
    }

    fn set_owner(&self, node: NodeId, (located, was): (&Located, &Statx), change: &SetAttributes) -> Result<()> {
        let (owner, group) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
        let stays = change.uid.is_none_or(|uid| uid == was.stx_uid) && change.gid.is_none_or(|gid| gid == was.stx_gid);
        let has_set_ids = u32::from(was.stx_mode) & (SET_USER_ID | SET_GROUP_ID) != 0;
        if stays && !has_set_ids && self.has_no_capabilities(node) {
            // SQLite gives its journals to the owner of the database. Nothing that a record could
            // repeat is changed.
            return chownat(located, "", owner, group, AtFlags::EMPTY_PATH);
        }
        let mut naming = self.names.begin()?;
        chownat(located, "", owner, group, AtFlags::EMPTY_PATH)?;
        // The mode too, of which the kernel takes privileges away.
        let about = naming.completed(about(located))?;
        let mode = (node != NodeId::ROOT).then(|| about.stx_mode.into());
        let attributes = NodeAttributes { mode, owner: change.uid, group: change.gid, ..NodeAttributes::default() };
        self.record_attributes(&mut naming, node, &about, attributes)
    }

    /// Whether the node is an open file of which is known that it has no capabilities.
    pub(super) fn has_no_capabilities(&self, node: NodeId) -> bool {
        let identity = self.inodes().identity(node);
        let file = identity.and_then(|identity| self.open_files.get(identity));
        file.is_some_and(|file| !file.privileges.may_have_capabilities())
    }

    /// Records attributes of a node that were just set.
    fn record_attributes(
        &self,
        naming: &mut Naming<'_>,
        node: NodeId,
        about: &Statx,
        attributes: NodeAttributes,
    ) -> Result<()> {
        let Some(Subject { path, node }) = self.subject(node, about) else { return Ok(()) };
        naming.record(&NameChange::AttributesSet { path: &path, node, attributes })
    }

    /// What a change is about of the node that this is said of. Names stay as they are meanwhile.
    pub(crate) fn subject(&self, node: NodeId, about: &Statx) -> Option<Subject> {
        self.names.subject(self.inodes().route(node)?.path(), about)
    }

    pub(super) fn set_mode(&self, node: NodeId, (located, about): (&Located, &Statx), mode: u32) -> Result<()> {
        if node == NodeId::ROOT {
            return self.hidden.set_mode(mode, &self.source).map_err(|_| Errno::IO);
        }
        let mut naming = self.names.begin()?;
        chmod(by_descriptor(located), Mode::from_raw_mode(mode & 0o7777))?;
        self.open_file(about).inspect(|file| file.privileges.suspect());
        if !self.is_root && mode & OWNER_WORKS != OWNER_WORKS {
            self.open_file(about).inspect(|file| self.keep_opened(file));
        }
        let attributes = NodeAttributes { mode: Some(mode & 0o7777), ..NodeAttributes::default() };
        self.record_attributes(&mut naming, node, about, attributes)
    }

    /// Cuts or lengthens a file, which need not be open.
    fn set_size(&self, node: NodeId, size: u64, privileges: Privileges) -> Result<()> {
        let file = self.open_node(node, Access::Write)?;
        let cut = self.truncate(&file, size);
        if cut.is_ok() {
            self.take_privileges(&file, privileges);
        }
        self.open_files.close(file);
        cut
    }

    fn set_times(&self, node: NodeId, (located, about): (&Located, &Statx), change: &SetAttributes) -> Result<()> {
        if change.accessed.is_none() && change.modified.is_none() {
            return Ok(());
        }
        let mut modified = change.modified;
        if let (Some(set), Some(file)) = (modified, self.open_file(about))
            && self.open_files.set_modified(&file, point_of(set))?
        {
            // The pool writes the file below later; the time follows with that. It is not recorded:
            // the stamp of a file in the pool may rest on it.
            modified = None;
        }
        let mut naming = self.names.begin()?;
        let times = Timestamps { last_access: given(change.accessed), last_modification: given(modified) };
        utimensat(located, "", &times, AtFlags::EMPTY_PATH)?;
        let about = naming.completed(tidegate_source_files::about(located))?;
        let accessed = change.accessed.map(|_| logged(about.stx_atime.tv_sec, about.stx_atime.tv_nsec));
        let modified = modified.map(|_| logged(about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec));
        let attributes = NodeAttributes { accessed, modified, ..NodeAttributes::default() };
        self.record_attributes(&mut naming, node, &about, attributes)
    }

    /// Takes set-user-ID, set-group-ID and capabilities of a file away whose contents were changed:
    /// capabilities always, the others if the kernel asks for it. Returns the node if it looked at
    /// the file for those: the kernel relies on the mode that it saw last, which this server or one
    /// before it may have changed.
    pub(crate) fn take_privileges(&self, file: &OpenFile, privileges: Privileges) -> Option<NodeId> {
        if !file.privileges.need_look(privileges) {
            return None;
        }
        // After a failure of the log no sync succeeds, and recovery finds the privileges as before.
        let mut naming = self.names.begin().ok()?;
        file.privileges.begin_look();
        let backing = file.backing();
        let node = self.inodes().of_identity(backing.identity());
        match self.take_privileges_below(&mut naming, (node, &backing), privileges) {
            Ok(mode) if mode & (SET_USER_ID | SET_GROUP_ID) == 0 => {}
            Ok(_) => file.privileges.found_set_ids(),
            Err(_) => file.privileges.suspect(),
        }
        node.filter(|_| privileges == Privileges::Clear)
    }

    /// Takes privileges away from a file below; its mode then.
    fn take_privileges_below(
        &self,
        naming: &mut Naming<'_>,
        (node, backing): (Option<NodeId>, &OpenedFile),
        privileges: Privileges,
    ) -> Result<u32> {
        let descriptor = backing.descriptor();
        let about = about(descriptor)?;
        let subject = node.and_then(|node| self.subject(node, &about));
        // A file without capabilities is the usual case, and no failure.
        if rustix::fs::fremovexattr(descriptor, CAPABILITIES).is_ok()
            && let Some(Subject { path, node }) = &subject
        {
            let _ = naming.record(&NameChange::XattrRemoved { path, node: *node, name: CAPABILITIES.to_bytes() });
        }
        let mode = u32::from(about.stx_mode);
        let taken = if mode & 0o010 != 0 { SET_USER_ID | SET_GROUP_ID } else { SET_USER_ID };
        if privileges == Privileges::Clear && mode & taken != 0 {
            let mode = mode & 0o7777 & !taken;
            rustix::fs::fchmod(descriptor, Mode::from_raw_mode(mode))?;
            if let Some(Subject { path, node }) = &subject {
                let attributes = NodeAttributes { mode: Some(mode), ..NodeAttributes::default() };
                let _ = naming.record(&NameChange::AttributesSet { path, node: *node, attributes });
            }
            return Ok(mode);
        }
        Ok(mode)
    }

    /// The attributes of a node.
    pub(crate) fn attributes(&self, node: NodeId) -> Result<Attributes> {
        let identity = self.inodes().identity(node);
        // An open file needs no walk.
        let Some(file) = identity.and_then(|identity| self.open_files.get(identity)) else {
            return self.attributes_of(&self.about_unopened(node)?);
        };
        let about = file.with_backing(|backing| about(backing.descriptor()))?;
        self.attributes_of_opened(&about, Some(&file))
    }

    fn about_unopened(&self, node: NodeId) -> Result<Statx> {
        if node == NodeId::ROOT {
            return about(self.source.root());
        }
        // A directory that was reached lately needs no walk either.
        match self.folders.get(node) {
            Some(folder) => about(&*folder),
            None => Ok(self.locate(node)?.1),
        }
    }

    /// The attributes of the file that the kernel says this about below.
    pub(crate) fn attributes_of(&self, about: &Statx) -> Result<Attributes> {
        self.attributes_of_opened(about, self.open_file(about).as_deref())
    }

    fn attributes_of_opened(&self, about: &Statx, open: Option<&OpenFile>) -> Result<Attributes> {
        let mut attributes = attributes_below(about);
        if self.inodes().identity(NodeId::ROOT) == Some(self.source.identity(about)) {
            attributes.mode = attributes.mode & !0o7777 | self.hidden.mode() & 0o7777;
        }
        if let Some(file) = open {
            attributes.size = self.open_files.size(file)?.unwrap_or(attributes.size);
            let look = |backing: &OpenedFile| {
                (backing.bytes_below(attributes.blocks * 512, attributes.size), backing.modified())
            };
            let (bytes, modified) = file.with_backing(look);
            attributes.blocks = bytes / 512;
            if let Some(modified) = modified {
                attributes.modified = time_of(modified);
                attributes.changed = attributes.changed.max(attributes.modified);
            }
        }
        Ok(attributes)
    }

    /// Ends the lease of the file that this is said of, if it has one.
    pub(crate) fn end_lease_of(&self, about: &Statx) -> Result<()> {
        self.open_file(about).map_or(Ok(()), |file| self.open_files.end_lease_of(&file))
    }

    /// The open file that this is said of.
    fn open_file(&self, about: &Statx) -> Option<Arc<OpenFile>> {
        self.open_files.get(self.source.identity(about))
    }

    pub(crate) fn statistics<'b>(&self) -> Result<Reply<'b>> {
        let room = fstatvfs(self.source.root())?;
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Reply::statistics(&Statistics {
            blocks: room.f_blocks,
            blocks_free: room.f_bfree,
            blocks_available: room.f_bavail,
            files: room.f_files,
            files_free: room.f_ffree,
            block_bytes: short(room.f_bsize),
            fragment_bytes: short(room.f_frsize),
            name_bytes_max: short(room.f_namemax),
        }))
    }
}

fn attributes_below(about: &Statx) -> Attributes {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    Attributes {
        inode: about.stx_ino,
        size: about.stx_size,
        blocks: about.stx_blocks,
        accessed: time(about.stx_atime.tv_sec, about.stx_atime.tv_nsec),
        modified: time(about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec),
        changed: time(about.stx_ctime.tv_sec, about.stx_ctime.tv_nsec),
        mode: about.stx_mode.into(),
        links: about.stx_nlink,
        uid: about.stx_uid,
        gid: about.stx_gid,
        device: Attributes::device_number(about.stx_rdev_major, about.stx_rdev_minor),
        block_bytes: about.stx_blksize,
    }
}

fn logged(seconds: i64, nanos: u32) -> LoggedTime {
    LoggedTime { seconds, nanos }
}

fn time_of(time: Timespec) -> Time {
    Time { seconds: time.tv_sec, nanoseconds: u32::try_from(time.tv_nsec).unwrap_or(0) }
}

/// A time to be set, as `utimensat` takes it.
fn given(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(at) => point_of(at),
    }
}

fn point_of(time: SetTime) -> Timespec {
    match time {
        SetTime::Now => clock_gettime(ClockId::Realtime),
        SetTime::At(Time { seconds, nanoseconds }) => Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}
