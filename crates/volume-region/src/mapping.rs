//! The file of a region, mapped.

use crate::VolumeFailure;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::path::Path;
use tidegate_host::Doing;
use tidegate_host::unlocked::unlocked;
use tidegate_media::{Access, Allocation, LockedFile, MapError, MappedRegion};

/// Maps the file at `path`, a side of a mirror or not.
pub(crate) fn map_file(path: &Path, access: Access) -> Result<MappedRegion, VolumeFailure> {
    unlocked(|| MappedRegion::open(path, access)).map_err(|error| not_mapped(access, error))
}

/// Maps the file at `path` as [`map_file`] does, and waits for no lock.
pub(crate) fn map_file_at_once(path: &Path, access: Access) -> Result<MappedRegion, VolumeFailure> {
    MappedRegion::open(path, access).map_err(|error| not_mapped(access, error))
}

/// Empties the file at `path`, gives it `bytes` zeroes, and maps it.
pub fn map_emptied(path: &Path, bytes: u64, allocation: Allocation) -> Result<MappedRegion, VolumeFailure> {
    let failed = |error| VolumeFailure::of_io(path, Doing::Write, error);
    let opened = File::options().write(true).open(path).map_err(failed)?;
    let again =
        || opened.try_clone().map_err(|source| MapError::Io { path: path.to_owned(), action: "open it", source });
    let file = unlocked(|| LockedFile::exclusive(path, again()?));
    let file = file.map_err(|error| VolumeFailure::of_map(Doing::Write, error))?;
    file.set_len(0).map_err(failed)?;
    let given = match allocation {
        Allocation::Sparse => file.set_len(bytes),
        Allocation::Full => rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from),
    };
    if let Err(error) = given {
        file.set_len(0).map_err(failed)?;
        return Err(VolumeFailure::of_allocation(path, bytes, error));
    }
    file.sync_all().map_err(failed)?;
    // The lock belongs to this open file: it has to go before the region takes its own.
    drop(file);
    map_file(path, Access::ReadWrite)
}

fn not_mapped(access: Access, error: MapError) -> VolumeFailure {
    VolumeFailure::of_map(if access == Access::ReadWrite { Doing::Write } else { Doing::Read }, error)
}
