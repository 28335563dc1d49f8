//! The contents of a region, told before they are overwritten.

use crate::mirror::MirrorState;
use crate::region::{self, RegionContents};
use crate::xattrs::Xattr;
use crate::{VolumeFailure, VolumeRegion};
use std::path::Path;
use tidegate_btt::{Identity, identify};
use tidegate_host::units::Human;
use tidegate_layout::disk_cache::DETACHED;
use tidegate_layout::former_run::is_pool_disk;
use uuid::Uuid;

/// What the region at `path` holds, in words; `None` if there are only zeroes.
pub fn of_region(path: &Path, region: &VolumeRegion) -> Result<Option<String>, VolumeFailure> {
    let state = MirrorState::of(region).map(|state| format!("{state}; in it ")).unwrap_or_default();
    Ok(of_volume(path, region)?.map(|volume| state + &volume))
}

/// What lies on `region`, in words; `None` if there are only zeroes.
fn of_volume(path: &Path, region: &VolumeRegion) -> Result<Option<String>, VolumeFailure> {
    if let Some(cache) = cache_on(path, region)? {
        return Ok(Some(cache));
    }
    Ok(Some(match identify(region).map_err(|poison| VolumeFailure::of_poison(path, poison))? {
        Identity::Blank if region::is_all_zero(region).map_err(|poison| VolumeFailure::of_poison(path, poison))? => {
            return Ok(None);
        }
        Identity::Blank => "data that is not recognised".to_owned(),
        Identity::Btt(summary) => {
            let size = Human(summary.blocks * u64::from(summary.block_size));
            format!("a BTT {} volume of {size}, uuid {}", summary.version, Uuid::from_bytes(summary.uuid))
        }
        Identity::Damaged { .. } => "a damaged BTT volume".to_owned(),
        Identity::Foreign { what } => what.to_owned(),
    }))
}

/// The cache of a disk, or the pool, in `region`, if there is one.
fn cache_on(path: &Path, region: &VolumeRegion) -> Result<Option<String>, VolumeFailure> {
    let identity = match region::holds(path, region)? {
        RegionContents::NoCache => return Ok(None),
        RegionContents::BrokenCache => return Ok(Some("a damaged cache of a disk".to_owned())),
        RegionContents::Cache(identity) if is_pool_disk(&identity.disk) => {
            return Ok(Some("a pool of the former `tidegate run-log`".to_owned()));
        }
        RegionContents::Cache(identity) => identity,
    };
    let disk = match Xattr::Disk.read(path) {
        _ if identity.disk == DETACHED => "a detached cache of a disk".to_owned(),
        Some(disk) => format!("a cache of the disk {}", disk.display()),
        None => "a cache of a disk".to_owned(),
    };
    Ok(Some(match tidegate_disk_cache::check(region) {
        Ok(report) if report.dirty > 0 => {
            let dirty = Human(u64::from(report.dirty) * u64::from(identity.block_size));
            format!("{disk}, with {} blocks ({dirty}) that the disk does not have", report.dirty)
        }
        Ok(_) => format!("{disk}, which lacks nothing"),
        Err(_) => disk,
    }))
}
