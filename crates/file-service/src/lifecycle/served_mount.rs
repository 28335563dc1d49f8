//! What every server of a mount is told: which mount it is.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The mount that a server serves.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServedMount {
    /// The directory whose files are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) source: PathBuf,
    /// Where they are shown.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) mountpoint: PathBuf,
    /// The pool.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) pool: PathBuf,
    /// Bytes of DRAM for unsynced writes, if that was said.
    pub(crate) dram_bytes: Option<u64>,
}

impl ServedMount {
    /// As a [task's](crate::ServersTask) text.
    pub(crate) fn to_text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
