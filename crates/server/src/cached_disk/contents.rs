//! The contents of a disk, told before they are overwritten.

use crate::cached_disk::disk::Disk;
use crate::failure::DiskFailure;
use std::path::Path;
use tidegate_layout::foreign::{HEAD_BYTES, TAIL_BYTES, recognise, recognise_of_memory};
use tidegate_media::{AlignedBytes, BlockDevice, Lba};
use tidegate_volume_region::VolumeRegion;
use tidegate_volume_region::contents::of_region;

/// The region at `path` is no cache of a disk, but what it holds.
pub fn no_cache(path: &Path, region: &VolumeRegion) -> DiskFailure {
    let holds = of_region(path, region).ok().flatten().unwrap_or_else(|| "only zeroes".to_owned());
    DiskFailure::NoCache { pmem: path.to_owned(), holds }
}

/// What is recognised on `disk`, if anything is.
pub fn of_disk(disk: &Disk) -> Option<&'static str> {
    let geometry = disk.device.geometry();
    let bytes = geometry.bytes();
    let block = u64::from(geometry.block_size);
    let head = head_of(disk)?;
    let tail = piece(disk, (bytes - bytes.min(TAIL_BYTES)) / block * block, bytes)?;
    recognise(&head, &tail, bytes)
}

/// Refuses a disk that holds what belongs into persistent memory: it was mistaken for a disk.
pub(crate) fn refuse_memory(disk: &Disk) -> Result<(), DiskFailure> {
    match head_of(disk).and_then(|head| recognise_of_memory(&head)) {
        Some(holds) => Err(DiskFailure::IsMemory { disk: disk.path.clone(), holds }),
        None => Ok(()),
    }
}

fn head_of(disk: &Disk) -> Option<AlignedBytes> {
    let geometry = disk.device.geometry();
    piece(disk, 0, geometry.bytes().min(HEAD_BYTES.next_multiple_of(u64::from(geometry.block_size))))
}

/// Bytes of the disk, from block to block.
fn piece(disk: &Disk, from: u64, to: u64) -> Option<AlignedBytes> {
    let mut bytes = AlignedBytes::zeroed(usize::try_from(to - from).ok()?);
    disk.device.read(Lba(from / u64::from(disk.device.geometry().block_size)), &mut bytes).ok()?;
    Some(bytes)
}

/// Tells on stderr what the disk holds, before `act` changes it.
pub fn tell_of_disk(disk: &Disk, act: &str) {
    let holds = of_disk(disk).unwrap_or("nothing that is recognised");
    tracing::warn!("{act}; at its start {} holds {holds}", disk.path.display());
}
