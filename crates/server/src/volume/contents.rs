//! The contents of a region or a disk, told before they are overwritten.

use crate::cached_disk::disk::Disk;
use crate::failure::{DiskFailure, VolumeFailure};
use crate::volume::mirror::VolumeRegion;
use crate::volume::region::{self, RegionContents};
use crate::volume::xattrs::Xattr;
use std::path::Path;
use tidegate_btt::{Identity, identify};
use tidegate_host::units::Human;
use tidegate_layout::disk_cache::DETACHED;
use tidegate_layout::foreign::{HEAD_BYTES, TAIL_BYTES, recognise};
use tidegate_layout::former_run::is_pool_disk;
use tidegate_media::{AlignedBytes, BlockDevice, Lba};
use uuid::Uuid;

/// What the region at `path` holds, in words; `None` if there are only zeroes.
pub(crate) fn of_region(path: &Path, region: &VolumeRegion) -> Result<Option<String>, VolumeFailure> {
    let volume = of_volume(path, region)?;
    Ok(match region.mirror() {
        Some(state) => Some(format!("{state}; in it {}", volume.as_deref().unwrap_or("only zeroes"))),
        None => volume,
    })
}

/// What lies on `region`, in words; `None` if there are only zeroes.
fn of_volume(path: &Path, region: &VolumeRegion) -> Result<Option<String>, VolumeFailure> {
    if let Some(cache) = cache_on(path, region)? {
        return Ok(Some(cache));
    }
    Ok(Some(match identify(region).map_err(|poison| VolumeFailure::of_poison(path, poison))? {
        Identity::Blank if region.is_all_zero().map_err(|poison| VolumeFailure::of_poison(path, poison))? => {
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

/// The region at `path` is no cache of a disk, but what it holds.
pub fn no_cache(path: &Path, region: &VolumeRegion) -> DiskFailure {
    let holds = of_region(path, region).ok().flatten().unwrap_or_else(|| "only zeroes".to_owned());
    DiskFailure::NoCache { pmem: path.to_owned(), holds }
}

/// What is recognised on `disk`, if anything is.
pub fn of_disk(disk: &Disk) -> Option<&'static str> {
    let geometry = disk.device.geometry();
    let piece = |from: u64, to: u64| {
        let mut bytes = AlignedBytes::zeroed(usize::try_from(to - from).ok()?);
        disk.device.read(Lba(from / u64::from(geometry.block_size)), &mut bytes).ok()?;
        Some(bytes)
    };
    let bytes = geometry.bytes();
    let block = u64::from(geometry.block_size);
    let head = piece(0, bytes.min(HEAD_BYTES.next_multiple_of(block)))?;
    let tail = piece((bytes - bytes.min(TAIL_BYTES)) / block * block, bytes)?;
    recognise(&head, &tail, bytes)
}

/// Tells on stderr what the disk holds, before `act` changes it.
pub fn tell_of_disk(disk: &Disk, act: &str) {
    let holds = of_disk(disk).unwrap_or("nothing that is recognised");
    tracing::warn!("{act}; at its start {} holds {holds}", disk.path.display());
}
