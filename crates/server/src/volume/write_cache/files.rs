//! The files in which the caches of one volume lie, in a folder where every user may make any name.
//!
//! A file is the volume's if it belongs to the server's user, to root or to the region's owner. A
//! file of anybody else, and a symbolic link, is a squatter: it is neither read nor removed. The
//! cache then lies under another name, which no other user can foresee, and which the next server
//! finds as it has the same beginning and ending.

use super::VolumeIdentity;
use crate::failure::{Doing, Failure, VolumeFailure};
use crate::volume::orphans;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_host::owned;
use tidegate_media::{Access, Allocation, MapError, MappedRegion};
use uuid::Uuid;

/// Names that are tried before the last failure is told.
const TRIES: u32 = 8;

/// How the files of a volume's caches are named, and whose they are.
pub(super) struct CacheFiles {
    folder: PathBuf,
    beginning: String,
    ending: String,
    owners: [u32; 3],
}

impl CacheFiles {
    /// Those of `volume`.
    pub(super) fn of(volume: VolumeIdentity) -> Result<CacheFiles, Failure> {
        let unknown = |error| VolumeFailure::of_io(volume.pmem, Doing::Read, error);
        let owner = fs::metadata(volume.pmem).map_err(unknown)?.uid();
        let ending = orphans::ending(volume.pmem).map_err(unknown)?;
        let (beginning, owners) = (format!("tidegate-{}", volume.uuid), [owned::own(), 0, owner]);
        Ok(CacheFiles { folder: orphans::folder(), beginning, ending, owners })
    }

    /// Files that servers left. Warns of squatters.
    pub(super) fn left(&self) -> Result<Vec<PathBuf>, Failure> {
        let unreadable = |error| VolumeFailure::of_io(&self.folder, Doing::Read, error);
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            // One that has gone meanwhile was none.
            let Some(about) = path.symlink_metadata().ok().filter(|_| self.is_named(&path)) else { continue };
            if self.is_own(&about) {
                left.push(path);
            } else {
                let (path, maker) = (path.display(), owned::named(about.uid()));
                tracing::warn!("{path} is ignored: it is no cache that a server of this volume left, {maker} made it");
            }
        }
        Ok(left)
    }

    fn is_named(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let between = name.and_then(|name| name.strip_prefix(&self.beginning)?.strip_suffix(&self.ending));
        between.is_some_and(|between| between.is_empty() || between.starts_with('.'))
    }

    fn is_own(&self, about: &Metadata) -> bool {
        about.is_file() && self.owners.contains(&about.uid())
    }

    /// Opens a file that was left.
    pub(super) fn open(&self, path: &Path) -> Result<MappedRegion, MapError> {
        MappedRegion::open_if(path, Access::ReadWrite, |file| match file.metadata()? {
            about if self.is_own(&about) => Ok(()),
            about => Err(owned::UntrustedFile::Owner(about.uid()).into()),
        })
    }

    /// A new file of `bytes` bytes, under a name that is free, and its path. A failure has the path
    /// too.
    pub(super) fn create(&self, bytes: u64) -> Result<(PathBuf, MappedRegion), (PathBuf, MapError)> {
        let mut tries = 0..TRIES;
        let mut path = self.folder.join(format!("{}{}", self.beginning, self.ending));
        loop {
            match MappedRegion::create(&path, bytes, Allocation::Full) {
                Ok(region) => return Ok((path, region)),
                Err(MapError::AlreadyExists { .. }) if tries.next().is_some() => {
                    path = self.folder.join(format!("{}.{}{}", self.beginning, Uuid::new_v4().simple(), self.ending));
                }
                Err(error) => return Err((path, error)),
            }
        }
    }
}

/// Removes a cache's file.
pub(super) fn remove(file: &Path) -> Result<(), Failure> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(VolumeFailure::of_io(file, Doing::Write, error).into())
        }
        _ => Ok(()),
    }
}
