//! Regions as files: mapped and locked, recognised by their contents, and synced.

use crate::failure::{Doing, Failure, VolumeFailure};
use std::path::Path;
use tidegate_disk_cache::Identity as CacheIdentity;
use tidegate_host::unlocked::unlocked;
use tidegate_layout::disk_cache::{DISK_CACHE_MAGIC, SUPERBLOCK_COPIES_AT};
use tidegate_layout::former_run::is_pool_disk;
use tidegate_media::{Access, MapError, MappedRegion, Region};

/// What a region holds.
pub enum RegionContents {
    /// A cache of a disk.
    Cache(CacheIdentity),
    /// A cache of a disk, neither of whose superblocks can be trusted.
    BrokenCache,
    /// Anything else.
    NoCache,
}

/// Maps the region at `path`, locked as `access` needs. A lock that may be given up at any moment
/// is waited for.
pub fn map(path: &Path, access: Access) -> Result<MappedRegion, Failure> {
    unlocked(|| MappedRegion::open(path, access)).map_err(|error| not_mapped(access, error))
}

/// Maps the region at `path` as [`map`] does, and waits for nobody.
pub fn map_at_once(path: &Path, access: Access) -> Result<MappedRegion, Failure> {
    MappedRegion::open(path, access).map_err(|error| not_mapped(access, error))
}

fn not_mapped(access: Access, error: MapError) -> Failure {
    let doing = if access == Access::ReadWrite { Doing::Write } else { Doing::Read };
    VolumeFailure::of_map(doing, error).into()
}

/// Bytes of `region`.
pub fn bytes_of(region: &MappedRegion) -> u64 {
    region.len()
}

/// What lies on `region`.
pub fn holds<R: Region + ?Sized>(path: &Path, region: &R) -> Result<RegionContents, VolumeFailure> {
    let unreadable = |poison| VolumeFailure::of_poison(path, poison);
    if let Some(identity) = tidegate_disk_cache::identify(region).map_err(unreadable)? {
        return Ok(RegionContents::Cache(identity));
    }
    let mut magic = [0; DISK_CACHE_MAGIC.len()];
    for at in SUPERBLOCK_COPIES_AT.into_iter().filter(|at| at + DISK_CACHE_MAGIC.len() as u64 <= region.len()) {
        region.read(at, &mut magic).map_err(unreadable)?;
        if magic == DISK_CACHE_MAGIC {
            return Ok(RegionContents::BrokenCache);
        }
    }
    Ok(RegionContents::NoCache)
}

/// The cache of a disk on `region`, if it holds one.
pub fn cache_in<R: Region + ?Sized>(path: &Path, region: &R) -> Result<Option<CacheIdentity>, VolumeFailure> {
    match holds(path, region)? {
        RegionContents::Cache(identity) => Ok(Some(identity)),
        RegionContents::NoCache => Ok(None),
        RegionContents::BrokenCache => Err(cache_finding(path, region)),
    }
}

/// The cache of a disk on `region`, if it holds one. A pool of files is refused: it has the same
/// form.
pub(crate) fn disk_cache_in(path: &Path, region: &MappedRegion) -> Result<Option<CacheIdentity>, Failure> {
    let identity = cache_in(path, region)?;
    if identity.as_ref().is_some_and(|identity| is_pool_disk(&identity.disk)) {
        return Err(Failure::IsPool { pool: path.to_owned() });
    }
    Ok(identity)
}

/// What is wrong with a cache that cannot be opened.
pub(crate) fn cache_finding<R: Region + ?Sized>(path: &Path, region: &R) -> VolumeFailure {
    let why = match tidegate_disk_cache::check(region) {
        Err(none) => none.to_string(),
        Ok(report) => report.findings.first().map_or_else(|| "it is whole now".to_owned(), ToString::to_string),
    };
    VolumeFailure::BrokenCache { path: path.to_owned(), why }
}

/// Makes what was stored durable where fences alone do not.
pub fn sync(path: &Path, region: &MappedRegion) -> Result<(), VolumeFailure> {
    region.sync_file().map_err(|error| VolumeFailure::NotDurable { path: path.to_owned(), why: error.to_string() })
}
