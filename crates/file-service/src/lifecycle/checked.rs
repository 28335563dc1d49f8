//! Checking the pool of a mount, without a change and while no service has it.

use crate::lifecycle::failure::{ServiceFailure, in_use};
use crate::pool::record::MountRecord;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_file_cache::{PoolReport, check};
use tidegate_host::owned::{self, What, accept};
use tidegate_host::unlocked::unlocked;
use tidegate_media::{Access, MappedRegion};

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolChecked {
    /// SOURCE, if files there may lack what the pool has.
    pub source: Option<PathBuf>,
    /// What the pool has, and which rules it breaks.
    pub report: PoolReport,
}

/// Checks the pool at `path`. Nothing is written to it.
pub fn check_pool(path: &Path) -> Result<PoolChecked, ServiceFailure> {
    if !path.exists() {
        return Err(ServiceFailure::NoPool { pool: path.to_owned() });
    }
    let resolved = owned::resolved(path).map_err(ServiceFailure::of_file("open", path))?;
    let own = |file: &std::fs::File| accept(file, What::Memory);
    let region = unlocked(|| MappedRegion::open_if(&resolved, Access::Private, own));
    let region = Arc::new(region.map_err(|error| in_use(path)(error.into()))?);
    let source = MountRecord::read(&resolved)?.map(|record| record.source);
    let report = check(&region).map_err(|error| ServiceFailure::NotOpened { pool: resolved, error })?;
    Ok(PoolChecked { source, report })
}
