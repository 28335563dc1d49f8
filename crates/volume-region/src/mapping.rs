//! The file of a region, mapped.

use crate::VolumeFailure;
use std::path::Path;
use tidegate_host::Doing;
use tidegate_host::unlocked::unlocked;
use tidegate_media::{Access, MapError, MappedRegion};

/// Maps the file at `path`, a side of a mirror or not.
pub fn map_file(path: &Path, access: Access) -> Result<MappedRegion, VolumeFailure> {
    unlocked(|| MappedRegion::open(path, access)).map_err(|error| not_mapped(access, error))
}

/// Maps the file at `path` as [`map_file`] does, and waits for no lock.
pub(crate) fn map_file_at_once(path: &Path, access: Access) -> Result<MappedRegion, VolumeFailure> {
    MappedRegion::open(path, access).map_err(|error| not_mapped(access, error))
}

fn not_mapped(access: Access, error: MapError) -> VolumeFailure {
    VolumeFailure::of_map(if access == Access::ReadWrite { Doing::Write } else { Doing::Read }, error)
}
