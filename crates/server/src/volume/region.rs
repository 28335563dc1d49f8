//! Regions as files: mapped and locked, recognised by their contents, and synced.

use crate::failure::{Failure, VolumeFailure};
use crate::volume::mirror::{self, VolumeRegion};
use std::path::Path;
use tidegate_disk_cache::Identity as CacheIdentity;
use tidegate_layout::disk_cache::{DISK_CACHE_MAGIC, SUPERBLOCK_COPIES_AT};
use tidegate_layout::former_run::is_pool_disk;
use tidegate_media::{Access, MappedRegion, Region};

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
/// is waited for. A side of a mirror is mapped for a look only.
pub fn map(path: &Path, access: Access) -> Result<VolumeRegion, Failure> {
    mirror::look(path, mirror::map_file(path, access)?, access)
}

/// Maps the region at `path` as [`map`] does, and waits for nobody.
pub fn map_at_once(path: &Path, access: Access) -> Result<VolumeRegion, Failure> {
    let region = MappedRegion::open(path, access).map_err(|error| mirror::not_mapped(access, error))?;
    mirror::look(path, region, access)
}

/// Bytes of `region`.
pub fn bytes_of(region: &VolumeRegion) -> u64 {
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
pub(crate) fn disk_cache_in(path: &Path, region: &VolumeRegion) -> Result<Option<CacheIdentity>, Failure> {
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
pub fn sync(path: &Path, region: &VolumeRegion) -> Result<(), VolumeFailure> {
    region.sync_files().map_err(|error| VolumeFailure::NotDurable { path: path.to_owned(), why: error.to_string() })
}
