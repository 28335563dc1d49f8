//! What services of this user left that were killed: pools in the state folder that have data of
//! files, and memory of unsynced writes.

use crate::pool::default_pool;
use crate::pool::record::MountRecord;
use crate::pool::volatile::{FOLDER, Volatile};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;
use std::fs::{DirEntry, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_host::owned;

/// A pool that no service has, and that files of its SOURCE may need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftMountPool {
    /// The pool.
    #[serde(with = "tidegate_host::json_path")]
    pub pool: PathBuf,
    /// SOURCE.
    #[serde(with = "tidegate_host::json_path")]
    pub source: PathBuf,
}

/// A file of unsynced writes that no service has open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftMemory {
    /// The file.
    #[serde(with = "tidegate_host::json_path")]
    pub file: PathBuf,
    /// Its bytes of memory.
    pub bytes: u64,
}

/// The pools in this user's state folder that no service has, and that have a record.
pub fn left_mount_pools() -> Vec<LeftMountPool> {
    let folder = default_pool(Path::new("/")).parent().map(Path::to_owned).unwrap_or_default();
    let left = entries_of(&folder).filter_map(|entry| {
        let record = entry.path();
        let pool = record.with_extension("");
        let is_record = record.extension().is_some_and(|extension| extension == "mount");
        (is_record && !is_locked(&pool)).then_some(())?;
        let source = MountRecord::read(&pool).ok()??.source;
        Some(LeftMountPool { pool, source })
    });
    left.collect()
}

/// The memory of unsynced writes that is this user's, or for root any user's, and that no service
/// has.
pub fn left_memory() -> Vec<LeftMemory> {
    let left = entries_of(Path::new(FOLDER)).filter_map(|entry| {
        let (name, about) = (entry.file_name(), entry.metadata().ok()?);
        let is_ours = [about.uid(), 0].contains(&owned::own()) && about.is_file();
        (is_ours && Volatile::is_name(&name) && !is_locked(&entry.path())).then_some(())?;
        Some(LeftMemory { file: entry.path(), bytes: about.blocks() * 512 })
    });
    left.collect()
}

fn entries_of(folder: &Path) -> impl Iterator<Item = DirEntry> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Whether a process has the file for itself. One that cannot be looked at counts as such.
fn is_locked(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(opened) => flock(File::from(opened), FlockOperation::NonBlockingLockShared).is_err(),
        Err(rustix::io::Errno::NOENT) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_nobody_has_open_is_left_and_other_files_are_not_named() {
        let volatile = Volatile::of(*uuid::Uuid::new_v4().as_bytes());
        let memory = volatile.open_or_create(0, 1 << 20).expect("memory");
        let named = || left_memory().iter().any(|left| left.file.to_string_lossy().contains(&volatile.id()));
        assert!(!named(), "this process has it");
        drop(memory);
        assert!(named());
        volatile.remove(0).expect("removed");
        assert!(!named());
    }
}
