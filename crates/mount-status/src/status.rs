//! The state of a mount.

use crate::counts::{FileStates, MountCounts};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The state of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Bytes of those in use: in blocks, which may be filled in part.
    pub dram_used_bytes: u64,
    /// Servers of the mount that died and were replaced.
    pub restarts: u64,
    /// The placement: which clean bytes the pool keeps.
    #[serde(default)]
    pub policy: String,
    /// Globs of the files that bypass the pool.
    #[serde(default)]
    pub bypass: Vec<String>,
    /// The files, by state.
    pub files: FileStates,
    /// Bytes that are in DRAM alone.
    pub dirty_bytes: u64,
    /// Bytes that are durable in the pool, and newer than the files below.
    pub out_of_sync_bytes: u64,
    /// Bytes that the pool has and the files below have too.
    pub clean_bytes: u64,
    /// Bytes of records of operations on names that SOURCE may lack.
    pub names_bytes: u64,
    /// Leases of files whose memory was not taken back yet.
    #[serde(default)]
    pub leases: u64,
    /// Bytes of the pool that programs have mapped.
    #[serde(default)]
    pub mapped_bytes: u64,
    /// Bytes of the pool that programs have pinned.
    #[serde(default)]
    pub pinned_bytes: u64,
    /// Bytes of the pool that programs may pin.
    #[serde(default)]
    pub pinned_bytes_max: u64,
    /// Where programs say their contexts, if they can.
    pub contexts: Option<PathBuf>,
    /// Why files are not written back, if something keeps them from it.
    pub obstacle: Option<String>,
    /// What was done.
    #[serde(flatten)]
    pub counts: MountCounts,
}
