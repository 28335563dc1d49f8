//! What belongs together: pools and SOURCEs, and directories and mounts.
//!
//! While a pool may have what the files of its SOURCE lack, neither is used with another one.

use std::path::{Path, PathBuf};
use tidegate_host::files::mount_table;
use tidegate_mount_transport::KIND;

/// What was refused; the text says what, and the program adds what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTogether {
    /// The pool has files of another SOURCE.
    #[error("the pool {} belongs to {}", pool.display(), recorded.display())]
    OtherSource {
        /// The pool.
        pool: PathBuf,
        /// Whose files it has.
        recorded: PathBuf,
    },
    /// SOURCE is marked with another pool, which may have what its files lack.
    #[error("{} belongs to the pool that was made at {}, and not to {}", source_directory.display(), own.display(), pool.display())]
    OtherPool {
        /// SOURCE.
        source_directory: PathBuf,
        /// Where SOURCE's own pool was.
        own: PathBuf,
        /// The pool that was named.
        pool: PathBuf,
    },
    /// Another directory is where SOURCE was.
    #[error("{} is not the directory that the pool {} belongs to", source_directory.display(), pool.display())]
    SourceReplaced {
        /// SOURCE.
        source_directory: PathBuf,
        /// The pool.
        pool: PathBuf,
    },
    /// The record of what the pool belongs to is not there.
    #[error("nothing says whose files the pool {} has", pool.display())]
    NoRecord {
        /// The pool.
        pool: PathBuf,
        /// Where the record was looked for.
        record: PathBuf,
    },
}

/// Returns the mountpoint of the mount of Tidegate that shows `directory`, an absolute path without
/// links. `None`: another file system has it.
pub fn mount_above(directory: &Path) -> Option<PathBuf> {
    let mounted = |place: &Path| Some((place.to_owned(), mount_table::at(place)?));
    let (place, mounted) = directory.ancestors().find_map(mounted)?;
    (mounted.kind == KIND).then_some(place)
}
