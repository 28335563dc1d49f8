//! Why a cache is not opened in front of its disk.

use super::{DiskFailure, Failure, VolumeFailure};
use std::path::Path;
use tidegate_disk_cache::OpenError;

/// Why the cache in `pmem` is not opened in front of the disk at `disk`.
pub(crate) fn of_opening(pmem: &Path, disk: &Path, error: OpenError) -> Failure {
    match error {
        OpenError::DiskChanged { lba, dirty, block_size } => {
            let [at, dirty_bytes] = [lba, dirty].map(|blocks| blocks * u64::from(block_size));
            DiskFailure::Differs { pmem: pmem.to_owned(), disk: disk.to_owned(), at, dirty_bytes }.into()
        }
        error => VolumeFailure::of_open_cache(pmem, error).into(),
    }
}
