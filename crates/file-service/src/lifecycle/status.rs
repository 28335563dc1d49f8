//! What a file service says of itself.

use crate::service::nodes::open_files::OpenFiles;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

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
    /// Servers of the mount that died and were replaced.
    pub restarts: u64,
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
}

impl MountStatus {
    pub(crate) fn of(files: &OpenFiles, (source, mountpoint): (&Path, &Path), restarts: u64) -> MountStatus {
        let (fill, counters) = (files.pool.fill(), files.pool.counters());
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        MountStatus {
            source: source.to_owned(),
            mountpoint: mountpoint.to_owned(),
            pool_bytes: fill.pool,
            dram_bytes: fill.dram,
            restarts,
            files: count(files.len()),
            retained: count(files.pool.detached().len()),
            dirty_bytes: fill.dirty,
            out_of_sync_bytes: fill.out_of_sync,
            syncs: counters.commits,
            syncs_below: counters.below,
            synced_bytes: counters.bytes_committed,
            written_back_bytes: counters.bytes_written_back,
        }
    }
}
