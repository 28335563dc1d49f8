//! What every server of a mount is told: which mount it is.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tidegate_host::files::mount_table;

/// The mount that a server serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServedMount {
    /// The directory whose files are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) source: PathBuf,
    /// Where they are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) mountpoint: PathBuf,
    /// The number of the file system there, if it could be told.
    pub(crate) number: Option<String>,
    /// The pool.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) pool: PathBuf,
    /// Bytes of DRAM for unsynced writes, if that was said.
    pub(crate) dram_bytes: Option<u64>,
    /// Bytes of the pool that programs may pin, if that was said.
    pub(crate) pinned_bytes_max: Option<u64>,
    /// The name of the placement.
    pub(crate) policy: String,
    /// Globs of the files that bypass the pool.
    pub(crate) bypass: Vec<String>,
    /// The name of the wish for a sandbox.
    pub(crate) sandbox: String,
    /// Whether threads never poll for requests.
    #[serde(default)]
    pub(crate) no_busy_poll: bool,
}

impl ServedMount {
    /// Whether the mount is still at its mountpoint, and nothing over it. If that cannot be found
    /// out, it is taken to be.
    pub(crate) fn is_in_place(&self) -> bool {
        match mount_table::try_at(&self.mountpoint) {
            Ok(found) => self.number.is_none() || self.number == found.map(|mounted| mounted.number),
            Err(_) => true,
        }
    }

    /// As a [task's](crate::ServersTask) text.
    pub(crate) fn to_text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
