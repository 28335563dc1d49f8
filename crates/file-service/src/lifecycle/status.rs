//! What a file service says of itself.

use crate::service::FileService;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The state of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The directory whose files are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub source: PathBuf,
    /// Where they are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub mountpoint: PathBuf,
    /// Bytes of the pool's blocks.
    pub pool_bytes: u64,
    /// Bytes of DRAM for unsynced writes.
    pub dram_bytes: u64,
    /// Files that are open, or not all written back.
    pub files: u64,
    /// Files whose data the pool retains, as they are missing or were changed by others.
    pub retained: u64,
    /// Bytes that are in DRAM alone.
    pub dirty_bytes: u64,
    /// Bytes that are durable in the pool, and newer than the files below.
    pub out_of_sync_bytes: u64,
    /// Syncs and synchronous writes that completed in persistent memory.
    pub syncs: u64,
    /// Those that waited for the files below.
    pub syncs_below: u64,
    /// Bytes that these syncs made durable in the pool.
    pub synced_bytes: u64,
    /// Bytes that were written back.
    pub written_back_bytes: u64,
    /// Operations on names that were recorded in the pool.
    pub names: u64,
    /// Bytes of records of those that SOURCE may lack.
    pub names_bytes: u64,
    /// Those that waited for a sync of SOURCE.
    pub names_below: u64,
    /// Syncs of SOURCE and its files, in the background and otherwise.
    pub source_syncs: u64,
}

impl MountStatus {
    pub(crate) fn of(service: &FileService, source: &Path, mountpoint: &Path) -> MountStatus {
        let files = &service.open_files;
        let (names, names_bytes) = service.names.counters();
        let (fill, counters) = (files.pool.fill(), files.pool.counters());
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        MountStatus {
            source: source.to_owned(),
            mountpoint: mountpoint.to_owned(),
            pool_bytes: fill.pool,
            dram_bytes: fill.dram,
            files: count(files.len()),
            retained: count(files.pool.detached().len()),
            dirty_bytes: fill.dirty,
            out_of_sync_bytes: fill.out_of_sync,
            syncs: counters.commits,
            syncs_below: counters.below,
            synced_bytes: counters.bytes_committed,
            written_back_bytes: counters.bytes_written_back,
            names: names.recorded,
            names_bytes,
            names_below: names.syncs_below,
            // Relaxed: a number that is told.
            source_syncs: service.source.syncs().load(Ordering::Relaxed),
        }
    }
}
