//! The disk of a cache: where it is, and whether it is still the same one.

use crate::failure::{DiskFailure, Failure};
use crate::notes::Note;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_disk_cache::{Identity, Journaling, Mode, Reads};
use tidegate_media::{BlockDevice, DiskAccess, DiskIdentity, FileDisk, MapError};
use tidegate_policy::admit::Admit;
use tidegate_policy::destage::Caps;
use tidegate_policy::evict::Replacement;

/// In the place of a disk's identity: the cache has none.
pub(crate) const DETACHED: [u8; 32] = [0xff; 32];

/// What somebody wants of the disk of a volume, and of the cache in front of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DiskPlan {
    /// Whether anything was asked for, be it what is usual.
    pub(crate) asked_for: bool,
    /// Where it is; None: where it was noted.
    pub(crate) path: Option<PathBuf>,
    /// What is done with reads and writes.
    pub(crate) mode: Mode,
    /// Which clean block goes when room is needed.
    pub(crate) replacement: Replacement,
    /// Which blocks that are read come in.
    pub(crate) admit: Admit,
    /// Bytes of the longest run of reads that comes in; 0: any does.
    pub(crate) sequential_bytes: u64,
    /// What becomes of blocks that are read when the volume is opened anew.
    pub(crate) reads: Reads,
    /// How much may be dirty, and for how long.
    pub(crate) caps: Caps,
    /// Whether blocks reach the disk by its journal, where it has one.
    pub(crate) journaling: Journaling,
}

/// What becomes of blocks that are read, if they are to be forgotten or not.
pub(crate) fn reads(forget: bool) -> Reads {
    match forget {
        true => Reads::Forgotten,
        false => Reads::Kept,
    }
}

/// An open disk.
#[derive(Clone)]
pub(crate) struct Disk {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its blocks.
    pub(crate) device: Arc<FileDisk>,
}

/// Opens any disk, in blocks of `block_size` bytes.
pub(crate) fn open(path: &Path, access: DiskAccess, block_size: u32) -> Result<Disk, Failure> {
    Ok(try_open(path, access, block_size).map_err(|error| DiskFailure::Unusable { error })?)
}

fn try_open(path: &Path, access: DiskAccess, block_size: u32) -> Result<Disk, MapError> {
    Ok(Disk { path: path.to_owned(), device: Arc::new(FileDisk::open(path, access, block_size)?) })
}

/// Opens the disk that the cache `identity` in `pmem` belongs to: at `named`, or where it was noted.
pub(crate) fn open_of(
    pmem: &Path,
    identity: &Identity,
    named: Option<&Path>,
    access: DiskAccess,
) -> Result<Disk, Failure> {
    if identity.disk == DETACHED {
        return Err(DiskFailure::Detached { pmem: pmem.to_owned() }.into());
    }
    let noted = || Note::Disk.read(pmem);
    let path = named.map(Path::to_owned).or_else(noted);
    let path = path.ok_or_else(|| DiskFailure::NotNamed { pmem: pmem.to_owned() })?;
    let disk = try_open(&path, access, identity.block_size).map_err(|error| match error {
        MapError::NotFound { path } => DiskFailure::Absent { pmem: pmem.to_owned(), disk: path },
        error => DiskFailure::Unusable { error },
    })?;
    refuse_another(pmem, identity, &disk)?;
    Ok(disk)
}

/// Refuses a disk that is another, or shorter, than the one that is cached.
fn refuse_another(pmem: &Path, identity: &Identity, disk: &Disk) -> Result<(), DiskFailure> {
    let (pmem, path) = (pmem.to_owned(), disk.path.clone());
    if disk.device.identity() != DiskIdentity(identity.disk) {
        return Err(DiskFailure::Replaced { pmem, disk: path });
    }
    let blocks = identity.journal().map_or(identity.disk_blocks, |journal| journal.end());
    let (needs, has) = (blocks * u64::from(identity.block_size), disk.device.geometry().bytes());
    if has < needs {
        return Err(DiskFailure::Smaller { pmem, disk: path, needs, has });
    }
    Ok(())
}
