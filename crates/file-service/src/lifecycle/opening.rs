//! What a mount and a recovery open first: SOURCE, and the record of whose files a pool has.

use crate::lifecycle::belonging::NotTogether;
use crate::lifecycle::failure::{ServiceFailure, system};
use crate::pool::Pool;
use crate::pool::record::MountRecord;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tidegate_host::unlocked::unlocked;
use tidegate_media::{LockedFile, MapError};
use tidegate_mount_transport::{BelowDead, dead_at, remove_dead};
use tidegate_source_files::mark::PoolMark;
use tidegate_source_files::{SourceDirectory, about};

/// Opens SOURCE for one service alone. One that was killed is waited for until it is gone.
pub(crate) fn open_source(path: &Path) -> Result<(Arc<SourceDirectory>, LockedFile), ServiceFailure> {
    let failed = |error| ServiceFailure::NoSource { source_directory: path.to_owned(), error };
    let source = SourceDirectory::open(path).map_err(|errno| failed(errno.into()))?;
    let lock = lock_source(&source, path, LockedFile::exclusive)?;
    Ok((Arc::new(source), lock))
}

/// SOURCE, which a mount may cover that lost its service.
pub(crate) struct FoundSource {
    pub(crate) source: Arc<SourceDirectory>,
    pub(crate) lock: LockedFile,
    /// What covers it stays, and it is used below that, for as long as this exists.
    pub(crate) below: Option<BelowDead>,
}

/// Opens SOURCE for one service alone, as [`open_source`], also below a dead mount. Only if this
/// user cannot look below that, it is taken away.
pub(crate) fn open_covered_source(path: &Path) -> Result<FoundSource, ServiceFailure> {
    let below = dead_at(path).and_then(|dead| BelowDead::open(&dead).ok());
    let Some(below) = below else {
        remove_dead(path)?;
        let (source, lock) = open_source(path)?;
        return Ok(FoundSource { source, lock, below: None });
    };
    let source =
        below.directory.try_clone().map_err(|error| ServiceFailure::System { doing: "copying a descriptor", error })?;
    let source = SourceDirectory::of(source).map_err(system("looking at SOURCE"))?;
    let lock = lock_source(&source, path, LockedFile::exclusive)?;
    Ok(FoundSource { source: Arc::new(source), lock, below: Some(below) })
}

/// Locks SOURCE for one service, which may be of several processes with one open directory, by
/// `lock`: for this process alone, or in common.
pub(crate) fn lock_source(
    source: &SourceDirectory,
    path: &Path,
    lock: fn(&Path, File) -> Result<LockedFile, MapError>,
) -> Result<LockedFile, ServiceFailure> {
    let lock = unlocked(|| {
        let descriptor = source.root().try_clone_to_owned().map_err(|source| MapError::Io {
            path: path.to_owned(),
            action: "open it again",
            source,
        })?;
        lock(path, File::from(descriptor))
    });
    lock.map_err(|error| match error {
        MapError::InUse { path, .. } => ServiceFailure::SourceInUse { source_directory: path },
        other => other.into(),
    })
}

/// The record beside a pool, which has to be of this SOURCE.
pub(crate) fn record_of(
    pool: &Path,
    path: &Path,
    source: &SourceDirectory,
) -> Result<Option<MountRecord>, ServiceFailure> {
    let Some(record) = MountRecord::read(pool)? else { return Ok(None) };
    let root = about(source.root()).map_err(system("looking at SOURCE"))?;
    if record.is_of(source.identity(&root)) {
        return Ok(Some(record));
    }
    let pool = pool.to_owned();
    Err(match record.source == path {
        true => NotTogether::SourceReplaced { source_directory: path.to_owned(), pool },
        false => NotTogether::OtherSource { pool, recorded: record.source },
    }
    .into())
}

/// Refuses a pool that is not the one which SOURCE at `path` is marked with.
pub(crate) fn check_mark(mark: Option<&PoolMark>, path: &Path, pool: &Pool) -> Result<(), ServiceFailure> {
    match mark {
        Some(mark) if pool.id()?.as_ref() != Some(&mark.id) => Err(other_pool(mark, path, &pool.path)),
        _ => Ok(()),
    }
}

/// Refuses `pool`, as SOURCE at `path` belongs to another one.
pub(crate) fn other_pool(mark: &PoolMark, path: &Path, pool: &Path) -> ServiceFailure {
    let (source_directory, own, pool) = (path.to_owned(), mark.pool.clone(), pool.to_owned());
    NotTogether::OtherPool { source_directory, own, pool }.into()
}

/// What SOURCE is like before it is hidden. One that is marked was hidden before.
pub(crate) fn fresh_record(
    path: &Path,
    source: &SourceDirectory,
    mark: Option<&PoolMark>,
) -> Result<MountRecord, ServiceFailure> {
    let root = about(source.root()).map_err(system("looking at SOURCE"))?;
    let identity = source.identity(&root);
    Ok(MountRecord {
        source: path.to_owned(),
        inode: identity.inode,
        generation: identity.generation,
        mode: mark.map_or_else(|| u32::from(root.stx_mode) & 0o7777, |mark| mark.mode),
    })
}
