//! Which region owns a disk: of two regions in front of one disk, each would overwrite the other's
//! blocks.
//!
//! A disk in a file is marked for its region before that is written to, until it is detached.
//! Another region takes it only if the first one is found to have nothing that the disk lacks, or
//! by force; and then the first one is refused in its turn.

use crate::cached_disk::contents;
use crate::cached_disk::disk::Disk;
use crate::failure::{DiskFailure, Doing, Failure, VolumeFailure};
use std::path::Path;
use tidegate_disk_cache::{Identity, check};
use tidegate_media::{Access, DiskMark};
use tidegate_volume_region::region::{cache_in, map_at_once};
use uuid::Uuid;

/// What to do about a disk that another region or data on it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfClaimed {
    /// It is refused.
    Refuse,
    /// It is taken, and what lies in the way overwritten.
    Override,
}

/// The answer to `--force`.
pub fn if_claimed(force: bool) -> IfClaimed {
    if force { IfClaimed::Override } else { IfClaimed::Refuse }
}

/// Refuses a disk that belongs to another region than `own`, unless that needs it no more, and one
/// that is persistent memory. What a disk of `own` holds came by that region.
pub(crate) fn refuse_unfit(disk: &Disk, own: Option<[u8; 16]>) -> Result<(), DiskFailure> {
    if let Some(mark) = disk.device.mark() {
        if own == Some(mark.region) {
            return Ok(());
        }
        let dirty = dirty_bytes_of(&mark, disk);
        if dirty != Some(0) {
            return Err(of_another(disk, mark, dirty));
        }
    }
    contents::refuse_memory(disk)
}

/// Refuses a disk that got another region than that of `identity` since, unless `if_claimed` says
/// otherwise.
pub fn refuse_taken(disk: &Disk, identity: &Identity, if_claimed: IfClaimed) -> Result<(), DiskFailure> {
    match disk.device.mark().filter(|mark| if_claimed == IfClaimed::Refuse && mark.region != identity.uuid) {
        Some(mark) => {
            let dirty = dirty_bytes_of(&mark, disk);
            Err(of_another(disk, mark, dirty))
        }
        None => Ok(()),
    }
}

fn of_another(disk: &Disk, mark: DiskMark, dirty: Option<u64>) -> DiskFailure {
    let (disk, region) = (disk.path.clone(), Uuid::from_bytes(mark.region));
    DiskFailure::OfAnother { disk, region, place: mark.place, dirty }
}

/// Bytes that the region of `mark` has and `disk` lacks; None: it is not where it was, cannot be
/// read, or is one side of a mirror, whose other side may have more.
fn dirty_bytes_of(mark: &DiskMark, disk: &Disk) -> Option<u64> {
    let region = map_at_once(&mark.place, Access::Private).ok().filter(|region| region.mirror().is_none())?;
    let identity = cache_in(&mark.place, &region).ok()?.filter(|identity| identity.uuid == mark.region)?;
    let report = check(&region).ok().filter(|report| report.findings.is_empty())?;
    let is_its = identity.disk == disk.device.identity().0;
    Some(if is_its { u64::from(report.dirty) * u64::from(identity.block_size) } else { 0 })
}

/// Marks `disk` for the region at `pmem`, whose identity is `region`, before anything is written to
/// that.
pub fn take(disk: &Disk, pmem: &Path, region: [u8; 16]) -> Result<(), Failure> {
    let place = std::path::absolute(pmem).unwrap_or_else(|_| pmem.to_owned());
    let mark = DiskMark { region, place };
    if disk.device.mark().as_ref() == Some(&mark) {
        return Ok(());
    }
    let marked = disk.device.set_mark(&mark).map_err(refused(disk))?;
    if !marked && disk.path.is_file() {
        tracing::warn!(
            "the file system of {} keeps no extended attributes: another region in front of it will not be noticed",
            disk.path.display()
        );
    }
    Ok(())
}

/// Marks `disk` anew for the region at `pmem`, if it is not another region's by now.
pub(crate) fn take_again(disk: &Disk, pmem: &Path, region: [u8; 16]) -> Result<(), Failure> {
    match disk.device.mark() {
        Some(mark) if mark.region != region => Ok(()),
        _ => take(disk, pmem, region),
    }
}

/// Sets `disk` free from `region`, which is detached.
pub(crate) fn set_free(disk: &Disk, region: [u8; 16]) -> Result<(), Failure> {
    Ok(disk.device.clear_mark(region).map_err(refused(disk))?)
}

fn refused(disk: &Disk) -> impl FnOnce(std::io::Error) -> VolumeFailure {
    |error| VolumeFailure::of_io(&disk.path, Doing::Write, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached_disk::disk;
    use crate::options::CreateOptions;
    use crate::volume::create::create;
    use std::fs::File;
    use tidegate_media::DiskAccess;

    #[test]
    fn one_side_of_a_mirror_does_not_tell_what_the_disk_lacks() {
        for (mirror, expected) in [(None, Some(0)), (Some("twin"), None)] {
            let folder = tempfile::tempdir().expect("a folder");
            let [pmem, path] = ["v", "disk"].map(|name| folder.path().join(name));
            File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a disk");
            let options = CreateOptions {
                mirror: mirror.map(|name| folder.path().join(name)),
                disk: Some(path.clone()),
                ..CreateOptions::new(pmem, 2 << 20)
            };
            create(&options).expect("a region");
            let disk = disk::open(&path, DiskAccess::ReadWrite, 4096).expect("a disk");
            let mark = disk.device.mark().expect("a file system that keeps attributes");
            assert_eq!(dirty_bytes_of(&mark, &disk), expected);
            assert_eq!(refuse_unfit(&disk, None).is_err(), mirror.is_some());
        }
    }

    #[test]
    fn what_belongs_into_persistent_memory_is_no_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let [cache, volume, path, pmem] = ["cache", "volume", "disk", "v"].map(|name| folder.path().join(name));
        File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a disk");
        create(&CreateOptions { disk: Some(path.clone()), ..CreateOptions::new(cache.clone(), 8 << 20) })
            .expect("made");
        create(&CreateOptions::new(volume.clone(), 32 << 20)).expect("made");
        for memory in [cache, volume] {
            let before = std::fs::read(&memory).expect("readable");
            let refused = CreateOptions { disk: Some(memory.clone()), ..CreateOptions::new(pmem.clone(), 2 << 20) };
            let failure = create(&refused).expect_err("it is no disk");
            assert!(matches!(failure, Failure::Disk(DiskFailure::IsMemory { .. })), "{failure}");
            assert!(std::fs::read(&memory).expect("readable") == before && !pmem.exists());
        }
        let own = disk::open(&path, DiskAccess::ReadWrite, 4096).expect("a disk");
        assert!(contents::refuse_memory(&own).is_ok());
    }
}
