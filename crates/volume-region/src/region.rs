//! Regions as files: mapped and locked, recognised by their contents, and synced.

use crate::mapping::{map_file, map_file_at_once};
use crate::{RegionFailure, VolumeFailure, VolumeRegion, mirror};
use std::fs::File;
use std::io;
use std::path::Path;
use tidegate_disk_cache::Identity as CacheIdentity;
use tidegate_layout::disk_cache::{DISK_CACHE_MAGIC, SUPERBLOCK_COPIES_AT};
use tidegate_layout::former_run::is_pool_disk;
use tidegate_media::{Access, FileDisk, MappedRegion, Poison, Region};
use tidegate_mirror::MaybeMirrored;

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
pub fn map(path: &Path, access: Access) -> Result<VolumeRegion, RegionFailure> {
    mirror::look(path, map_file(path, access)?, access)
}

/// Maps the region at `path` as [`map`] does, and waits for no lock.
pub fn map_at_once(path: &Path, access: Access) -> Result<VolumeRegion, RegionFailure> {
    mirror::look(path, map_file_at_once(path, access)?, access)
}

/// Maps the region at `path`, a side of a mirror or not, so that its contents show before they are
/// overwritten.
pub fn map_to_overwrite(path: &Path) -> Result<VolumeRegion, VolumeFailure> {
    Ok(tidegate_mirror::view(map_file(path, Access::ReadWrite)?))
}

/// Bytes of `region`.
pub fn bytes_of(region: &VolumeRegion) -> u64 {
    region.len()
}

/// The file of `region`, if it has one and no twin.
pub fn only_file(region: &VolumeRegion) -> Option<&File> {
    match region {
        MaybeMirrored::Plain(region) => region.file(),
        MaybeMirrored::Mirrored(_) => None,
    }
}

/// The files of `region` that take stores now.
pub fn files(region: &VolumeRegion) -> impl Iterator<Item = &File> {
    region.live().filter_map(MappedRegion::file)
}

/// Whether no byte of `region` is set. A mirror is never blank: its pages say what it is.
pub(crate) fn is_all_zero(region: &VolumeRegion) -> Result<bool, Poison> {
    match region {
        MaybeMirrored::Plain(region) => region.is_all_zero(),
        MaybeMirrored::Mirrored(_) => Ok(false),
    }
}

/// Nothing is known of the disk that `region` caches from now on.
pub fn forget_disk(region: &VolumeRegion) -> io::Result<()> {
    region.live().try_for_each(MappedRegion::forget_disk)
}

/// Notes how the disk that `region` caches is left.
pub fn note_as_left(region: &VolumeRegion, disk: &FileDisk) {
    region.live().for_each(|region| disk.note_as_left(region));
}

/// Whether `disk` is known to be another than `region` left it.
pub fn knows_changed(region: &VolumeRegion, disk: &FileDisk) -> bool {
    region.live().any(|region| disk.was_changed_without(region))
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
pub fn disk_cache_in(path: &Path, region: &VolumeRegion) -> Result<Option<CacheIdentity>, RegionFailure> {
    let identity = cache_in(path, region)?;
    if identity.as_ref().is_some_and(|identity| is_pool_disk(&identity.disk)) {
        return Err(RegionFailure::IsPool { pool: path.to_owned() });
    }
    Ok(identity)
}

/// What is wrong with a cache that cannot be opened.
pub fn cache_finding<R: Region + ?Sized>(path: &Path, region: &R) -> VolumeFailure {
    let why = match tidegate_disk_cache::check(region) {
        Err(none) => none.to_string(),
        Ok(report) => report.findings.first().map_or_else(|| "it is whole now".to_owned(), ToString::to_string),
    };
    VolumeFailure::BrokenCache { path: path.to_owned(), why }
}

/// Makes what was stored durable where fences alone do not.
pub fn sync(path: &Path, region: &VolumeRegion) -> Result<(), VolumeFailure> {
    let synced = region.live().try_for_each(MappedRegion::sync_file);
    synced.map_err(|error| VolumeFailure::NotDurable { path: path.to_owned(), why: error.to_string() })
}
