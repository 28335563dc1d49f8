//! What a file service says of itself.

use crate::service::FileService;
use crate::service::lending::Lending;
use std::path::Path;
use std::sync::PoisonError;
use tidegate_mount_status::MountStatus;

/// The state of the mount that a service serves.
pub(super) fn state_of(service: &FileService, shown: (&Path, &Path, &str), restarts: u64) -> MountStatus {
    let (files, source) = (&service.open_files, &service.source);
    let fill = files.pool.fill();
    let (pinned_bytes, pinned_bytes_max) = service.lending.get().map_or((0, 0), Lending::pinned);
    let obstacle = files.obstacle.lock().unwrap_or_else(PoisonError::into_inner);
    MountStatus {
        source: shown.0.to_owned(),
        mountpoint: shown.1.to_owned(),
        pool_bytes: fill.pool,
        dram_bytes: fill.dram,
        dram_used_bytes: fill.dram_used,
        restarts,
        policy: shown.2.to_owned(),
        bypass: files.bypass.globs().to_vec(),
        files: files.states(),
        dirty_bytes: fill.dirty,
        out_of_sync_bytes: fill.out_of_sync,
        clean_bytes: files.pool.clean_bytes(),
        names_bytes: files.names.counters().1,
        leases: files.pool.leases().len() as u64,
        mapped_bytes: files.pool.mapped_bytes(),
        pinned_bytes,
        pinned_bytes_max,
        contexts: files.board.get().map(|board| board.path.clone()),
        obstacle: obstacle.as_ref().map(ToString::to_string),
        counts: files.counts(&source.syncs),
    }
}
