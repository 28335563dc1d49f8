//! The mount that a directory lies in.

use std::path::{Path, PathBuf};
use tidegate_host::files::mount_table;
use tidegate_mount_transport::KIND;

/// Returns the mountpoint of the mount of Tidegate that shows `directory`, an absolute path without
/// links. `None`: another file system has it.
pub fn mount_above(directory: &Path) -> Option<PathBuf> {
    let mounted = |place: &Path| Some((place.to_owned(), mount_table::at(place)?));
    let (place, mounted) = directory.ancestors().find_map(mounted)?;
    (mounted.kind == KIND).then_some(place)
}
