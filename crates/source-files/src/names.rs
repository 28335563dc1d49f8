//! SOURCE as the namespace log uses it: the witness, and operations that recovery repeats.
//!
//! The log rests on a file system that loses operations on names in their order only. ext4 with a
//! journal and XFS are such ones; on others the service keeps no log.

use crate::backing::refused;
use crate::recovery::names_of;
use crate::route::Route;
use crate::{SourceDirectory, about, by_descriptor, reopen};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Statx, Timespec, Timestamps};
use rustix::fs::{UTIME_OMIT, Uid, XattrFlags, fgetxattr, fremovexattr, fsetxattr, fsync, syncfs};
use rustix::fs::{
    chmod, chownat, linkat, mkdirat, mknodat, openat, removexattr, renameat_with, setxattr, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use tidegate_file_cache::Refused;
use tidegate_host::files::directory::for_each_name;
use tidegate_layout::file_cache::{LoggedTime, NameChange, NodeAttributes, NodeIdentity};
use tidegate_namespace_log::{FoundNode, NamespaceSource, Witness};

/// The attribute that has the witness. Programs do not see it through the mount.
pub const WITNESS: &CStr = c"user.tidegate.witness";

/// Bytes of a witness: the pool's identity and the place.
const WITNESS_BYTES: usize = 24;

impl SourceDirectory {
    /// Removes the witness, durably.
    pub fn remove_witness(&self) -> Result<()> {
        match fremovexattr(self.root(), WITNESS) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => removed.and_then(|()| fsync(self.root())),
        }
    }

    fn found(&self, path: &[u8]) -> Result<Option<(OwnedFd, Statx)>> {
        match self.locate(&Route::Names(names_of(path))) {
            Ok(located) => Ok(Some((about(&located)?, located)).map(|(about, located)| (located, about))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The directory of a path, and the last name in it.
    fn parent<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8])> {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        Ok((self.locate(&Route::Names(names_of(folder)))?, name))
    }

    fn repeat(&self, change: &NameChange<'_>) -> Result<()> {
        match *change {
            NameChange::Made { path, mode, owner, group, special, target, .. } => {
                self.make(path, mode, special, target)?;
                let attributes = NodeAttributes {
                    mode: Some(mode),
                    owner: Some(owner),
                    group: Some(group),
                    ..NodeAttributes::default()
                };
                self.set_attributes(path, &attributes)
            }
            NameChange::Linked { path, to, .. } => {
                let ((folder, name), file) = (self.parent(to)?, self.locate(&Route::Names(names_of(path)))?);
                linkat(CWD, by_descriptor(&file), folder, name, AtFlags::SYMLINK_FOLLOW)
            }
            NameChange::Removed { path, .. } => {
                let (folder, name) = self.parent(path)?;
                let is_directory = kind_of(&crate::about_at(&folder, name)?) == FileType::Directory;
                unlinkat(folder, name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
            }
            NameChange::Renamed { path, to, replaced, .. } => {
                let ((from, name), (folder, new_name)) = (self.parent(path)?, self.parent(to)?);
                let flags = if replaced.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
                renameat_with(from, name, folder, new_name, flags)
            }
            NameChange::Exchanged { path, to, .. } => {
                let ((from, name), (folder, new_name)) = (self.parent(path)?, self.parent(to)?);
                renameat_with(from, name, folder, new_name, RenameFlags::EXCHANGE)
            }
            NameChange::AttributesSet { path, ref attributes, .. } => self.set_attributes(path, attributes),
            NameChange::XattrSet { path, name, value, .. } => {
                let file = self.locate(&Route::Names(names_of(path)))?;
                setxattr(by_descriptor(&file), name, value, XattrFlags::empty())
            }
            NameChange::XattrRemoved { path, name, .. } => {
                let file = self.locate(&Route::Names(names_of(path)))?;
                match removexattr(by_descriptor(&file), name) {
                    Err(Errno::NODATA) => Ok(()),
                    removed => removed,
                }
            }
        }
    }

    fn make(&self, path: &[u8], mode: u32, special: u64, target: &[u8]) -> Result<()> {
        let (folder, name) = self.parent(path)?;
        // The owner gets it before others may enter it.
        let private = Mode::RWXU;
        match FileType::from_raw_mode(mode) {
            FileType::Directory => mkdirat(folder, name, private),
            FileType::Symlink => symlinkat(target, folder, name),
            FileType::RegularFile => {
                let makes = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(folder, name, makes, private).map(drop)
            }
            kind => mknodat(folder, name, kind, private, special),
        }
    }

    fn set_attributes(&self, path: &[u8], attributes: &NodeAttributes) -> Result<()> {
        let NodeAttributes { mode, owner, group, accessed, modified } = *attributes;
        let file = self.locate(&Route::Names(names_of(path)))?;
        let is_now = about(&file)?;
        // An ordinary user may set what is as it was, but by no change of the owner.
        let owner = owner.filter(|owner| *owner != is_now.stx_uid).map(Uid::from_raw);
        let group = group.filter(|group| *group != is_now.stx_gid).map(Gid::from_raw);
        if owner.is_some() || group.is_some() {
            chownat(&file, "", owner, group, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = mode.filter(|_| kind_of(&is_now) != FileType::Symlink) {
            chmod(by_descriptor(&file), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if accessed.is_none() && modified.is_none() {
            return Ok(());
        }
        let times = Timestamps { last_access: time_of(accessed), last_modification: time_of(modified) };
        utimensat(&file, "", &times, AtFlags::EMPTY_PATH)
    }
}

impl NamespaceSource for SourceDirectory {
    fn witness(&self) -> std::result::Result<Option<Witness>, Refused> {
        let mut value = [0; WITNESS_BYTES];
        match fgetxattr(self.root(), WITNESS, &mut value) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(refused(errno)),
            Ok(WITNESS_BYTES) => {
                let (pool, place) = value.split_at(16);
                let place = u64::from_le_bytes(place.try_into().unwrap_or_default());
                Ok(Some(Witness { pool: pool.try_into().unwrap_or_default(), place }))
            }
            // One that nobody of the service wrote.
            Ok(_) => Ok(None),
        }
    }

    fn set_witness(&self, witness: &Witness) -> std::result::Result<(), Refused> {
        let mut value = [0; WITNESS_BYTES];
        value[..16].copy_from_slice(&witness.pool);
        value[16..].copy_from_slice(&witness.place.to_le_bytes());
        fsetxattr(self.root(), WITNESS, &value, XattrFlags::empty()).map_err(refused)
    }

    fn look_up(&self, path: &[u8]) -> std::result::Result<Option<FoundNode>, Refused> {
        let Some((located, about)) = self.found(path).map_err(refused)? else { return Ok(None) };
        let empty = match kind_of(&about) {
            FileType::RegularFile => about.stx_size == 0,
            FileType::Directory => is_empty(&located).map_err(refused)?,
            _ => true,
        };
        let node = node_of(self, &about);
        Ok(Some(FoundNode { node, mode: about.stx_mode.into(), empty }))
    }

    fn carry_out(&self, change: &NameChange<'_>) -> std::result::Result<(), Refused> {
        self.repeat(change).map_err(refused)
    }

    fn sync(&self) -> std::result::Result<(), Refused> {
        syncfs(self.root()).map_err(refused)
    }
}

/// The inode that this is said of, as the log knows it.
pub(crate) fn node_of(source: &SourceDirectory, about: &Statx) -> NodeIdentity {
    let identity = source.identity(about);
    NodeIdentity { inode: identity.inode, generation: identity.generation }
}

fn kind_of(about: &Statx) -> FileType {
    FileType::from_raw_mode(about.stx_mode.into())
}

fn is_empty(directory: &OwnedFd) -> Result<bool> {
    let mut names = 0;
    for_each_name(reopen(directory, OFlags::RDONLY | OFlags::DIRECTORY)?, |_, _, _| names += 1)?;
    Ok(names == 0)
}

fn time_of(time: Option<LoggedTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(LoggedTime { seconds, nanos }) => Timespec { tv_sec: seconds, tv_nsec: nanos.into() },
    }
}
