//! The disk of a cache: where it is, and whether it is still the same one.

use crate::cached_disk::volatile::Volatile;
use crate::failure::{DiskFailure, Doing, Failure, Growth, VolumeFailure};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_disk_cache::{Guard, Identity, Journaling, Mode, Reads};
use tidegate_host::owned;
use tidegate_host::unlocked::unlocked;
use tidegate_layout::disk_cache::DETACHED;
use tidegate_media::{BlockDevice, DiskAccess, DiskIdentity, FileDisk, MapError};
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;
use tidegate_policy::writeback::destage::Caps;
use tidegate_volume_region::description::NO_NAME;
use tidegate_volume_region::xattrs::Xattr;

/// What somebody wants of the disk of a volume, and of the cache in front of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskPlan {
    /// Whether anything was asked for, be it what is usual.
    pub asked_for: bool,
    /// Where it is; None: where it was noted.
    pub path: Option<PathBuf>,
    /// Whether it may be somewhere else than it was, although nothing but its place tells it from
    /// others.
    pub force: bool,
    /// What is done with reads and writes.
    pub mode: Mode,
    /// Whether completed writes may be only in memory that a power loss empties.
    pub volatile: Volatile,
    /// Which clean block goes when room is needed.
    pub replacement: Replacement,
    /// Which blocks that are read come in.
    pub admit: Admit,
    /// Bytes of the longest run of reads that comes in; 0: any does.
    pub sequential_bytes: u64,
    /// What becomes of blocks that are read when the volume is opened anew.
    pub reads: Reads,
    /// How much may be dirty, and for how long.
    pub caps: Caps,
    /// Whether blocks reach the disk by its journal, where it has one.
    pub journaling: Journaling,
    /// What is done if somebody wrote to the disk without the region; `AsLaidOut`: what is usual,
    /// which is that it is noticed.
    pub guard: Guard,
}

/// What becomes of blocks that are read, if they are to be forgotten or not.
pub fn reads(forget: bool) -> Reads {
    match forget {
        true => Reads::Forgotten,
        false => Reads::Kept,
    }
}

/// An open disk.
#[derive(Clone)]
pub struct Disk {
    /// Where it is.
    pub path: PathBuf,
    /// Its blocks.
    pub device: Arc<FileDisk>,
}

/// Opens any disk, in blocks of `block_size` bytes.
pub fn open(path: &Path, access: DiskAccess, block_size: u32) -> Result<Disk, Failure> {
    Ok(try_open(path, access, block_size).map_err(|error| DiskFailure::Unusable { error })?)
}

fn try_open(path: &Path, access: DiskAccess, block_size: u32) -> Result<Disk, MapError> {
    let disk = unlocked(|| FileDisk::open(path, access, block_size))?;
    Ok(Disk { path: path.to_owned(), device: Arc::new(disk) })
}

/// Where a command looks for a disk.
#[derive(Clone, Copy)]
pub struct DiskLocation<'a> {
    /// Its path; None: where it was noted.
    pub path: Option<&'a Path>,
    /// As in [`DiskPlan::force`].
    pub force: bool,
}

/// Refuses the cache `identity` in `pmem` if it has no disk.
pub(crate) fn refuse_detached(pmem: &Path, identity: &Identity) -> Result<(), DiskFailure> {
    match identity.disk == DETACHED {
        true => Err(DiskFailure::Detached { pmem: pmem.to_owned() }),
        false => Ok(()),
    }
}

/// Opens the disk that the cache `identity` in `pmem` belongs to: at `location`, or where it
/// was noted.
pub fn open_of(
    pmem: &Path,
    identity: &Identity,
    location: DiskLocation<'_>,
    access: DiskAccess,
) -> Result<Disk, Failure> {
    refuse_detached(pmem, identity)?;
    let noted = Xattr::Disk.read(pmem);
    let path = location.path.map(Path::to_owned).or_else(|| noted.clone());
    let path = path.ok_or_else(|| DiskFailure::NotNamed { pmem: pmem.to_owned() })?;
    if location.path.is_none() {
        refuse_note_of_another_user(pmem, &path)?;
    }
    let disk = try_open(&path, access, identity.block_size).map_err(|error| match error {
        MapError::NotFound { path } => DiskFailure::Absent { pmem: pmem.to_owned(), disk: path },
        error => DiskFailure::Unusable { error },
    })?;
    match recognised(DiskIdentity(identity.disk), &disk, noted.as_deref()) {
        Recognised::AsIts => {}
        Recognised::ByNothing => warn_of_no_name(&disk),
        Recognised::Elsewhere { was } if !location.force => {
            return Err(DiskFailure::Nameless { pmem: pmem.to_owned(), disk: disk.path, was }.into());
        }
        Recognised::Elsewhere { .. } => {}
        Recognised::AsAnother => {
            return Err(DiskFailure::Replaced { pmem: pmem.to_owned(), disk: disk.path }.into());
        }
    }
    refuse_smaller(pmem, identity, &disk)?;
    Ok(disk)
}

/// Refuses to open the disk that was noted at the region of another user: the note and what the
/// region says of its disk are his to choose.
fn refuse_note_of_another_user(pmem: &Path, disk: &Path) -> Result<(), Failure> {
    let about = pmem.metadata().map_err(|error| VolumeFailure::of_io(pmem, Doing::Read, error))?;
    if about.file_type().is_char_device() || [owned::own(), 0].contains(&about.uid()) {
        return Ok(());
    }
    let (pmem, owner) = (pmem.to_owned(), about.uid());
    Err(DiskFailure::NotedByAnother { pmem, disk: disk.to_owned(), owner }.into())
}

/// What tells whether a disk is the one that is cached.
#[derive(Debug, PartialEq, Eq)]
enum Recognised {
    /// It is: by its name, or, as it has none, by its place.
    AsIts,
    /// It has no name, and nobody knows where it was.
    ByNothing,
    /// It had no name, and was somewhere else.
    Elsewhere {
        /// Where.
        was: PathBuf,
    },
    /// It has another name.
    AsAnother,
}

/// Whether `disk` is the one that was recognised by `own` when it was last open, at `noted`.
fn recognised(own: DiskIdentity, disk: &Disk, noted: Option<&Path>) -> Recognised {
    if own.is_known() {
        return if disk.device.identity() == own { Recognised::AsIts } else { Recognised::AsAnother };
    }
    match noted {
        None => Recognised::ByNothing,
        Some(noted) if is_same_place(noted, &disk.path) => Recognised::AsIts,
        Some(noted) => Recognised::Elsewhere { was: noted.to_owned() },
    }
}

/// Whether `disk` is that of the cache `identity` in `pmem`, as far as it can be told.
pub fn is_of(pmem: &Path, identity: &Identity, disk: &Disk) -> bool {
    recognised(DiskIdentity(identity.disk), disk, Xattr::Disk.read(pmem).as_deref()) == Recognised::AsIts
}

/// Whether both paths lead to one place.
pub(crate) fn is_same_place(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok().is_some_and(|place| other.canonicalize().ok() == Some(place))
}

/// Says of a disk without a name that it may be taken for another.
pub(crate) fn warn_of_no_name(disk: &Disk) {
    if !disk.device.identity().is_known() {
        tracing::warn!("{} {NO_NAME}", disk.path.display());
    }
}

/// How much `disk`, which the cache `identity` in `pmem` belongs to, is larger than what is used of
/// it. None: not by a block.
pub fn growth(pmem: &Path, identity: &Identity, disk: &Disk) -> Option<Growth> {
    growth_to(pmem, identity, &disk.path, disk.device.geometry().bytes())
}

/// How much the disk at `path` is larger than its used part. The disk is not opened for it; None
/// also if `path` is no disk, or no noted disk that this process may open.
pub fn growth_at(pmem: &Path, identity: &Identity, path: &Path) -> Option<Growth> {
    refuse_note_of_another_user(pmem, path).ok()?;
    let kind = path.metadata().ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    // A block device tells its size so too.
    let disk_bytes = File::open(path).and_then(|mut disk| disk.seek(SeekFrom::End(0))).ok()?;
    growth_to(pmem, identity, path, disk_bytes)
}

fn growth_to(pmem: &Path, identity: &Identity, disk: &Path, disk_bytes: u64) -> Option<Growth> {
    let block_size = u64::from(identity.block_size);
    let journal = identity.journal();
    let volume_bytes = journal.map_or(identity.disk_blocks, |journal| journal.end()) * block_size;
    let (pmem, disk, ordered) = (pmem.to_owned(), disk.to_owned(), journal.is_some());
    (disk_bytes >= volume_bytes + block_size).then_some(Growth { pmem, disk, disk_bytes, volume_bytes, ordered })
}

/// Refuses a disk that is shorter than the one that is cached.
fn refuse_smaller(pmem: &Path, identity: &Identity, disk: &Disk) -> Result<(), DiskFailure> {
    let (pmem, path) = (pmem.to_owned(), disk.path.clone());
    let blocks = identity.journal().map_or(identity.disk_blocks, |journal| journal.end());
    let (needs, has) = (blocks * u64::from(identity.block_size), disk.device.geometry().bytes());
    if has < needs {
        return Err(DiskFailure::Smaller { pmem, disk: path, needs, has });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_disk_without_a_name_is_known_by_its_place_and_any_other_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, other, link] = ["disk", "other", "link"].map(|name| folder.path().join(name));
        File::create(&path).and_then(|file| file.set_len(4096)).expect("a disk");
        File::create(&other).expect("a file");
        symlink(&path, &link).expect("a link");
        let disk = open(&path, DiskAccess::ReadOnly, 4096).expect("it opens");
        let (none, its, others) = (DiskIdentity([0; 32]), disk.device.identity(), DiskIdentity([7; 32]));
        assert!(its.is_known());
        assert_eq!(recognised(none, &disk, None), Recognised::ByNothing);
        for noted in [&path, &link] {
            assert_eq!(recognised(none, &disk, Some(noted)), Recognised::AsIts);
        }
        for noted in [other, folder.path().join("gone")] {
            assert_eq!(recognised(none, &disk, Some(&noted)), Recognised::Elsewhere { was: noted.clone() });
            assert_eq!(recognised(its, &disk, Some(&noted)), Recognised::AsIts);
        }
        assert_eq!(recognised(others, &disk, Some(&path)), Recognised::AsAnother);
    }
}
