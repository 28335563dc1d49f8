//! What becomes of a cache whose disk somebody has written to without its region: how the disk was
//! left is noted by the medium
//! ([`FileDisk::note_as_left`](tidegate_media::FileDisk::note_as_left)).

use crate::cached_disk::disk::Disk;
use crate::cached_disk::resize::lay_out;
use crate::failure::{DiskFailure, Doing, Failure, VolumeFailure};
use std::path::Path;
use std::sync::Arc;
use tidegate_disk_cache::{Identity, NewLayout};
use tidegate_media::Region;
use tidegate_volume_region::{VolumeRegion, region};

/// What is done with a disk that was changed without its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfChanged {
    /// Nothing, if the region has blocks for it.
    Refuse,
    /// It gets them all the same.
    GoOn,
}

/// Nothing is known of the disk of `region` from now on, whatever happens.
pub(crate) fn clear_stamp(pmem: &Path, region: &VolumeRegion) -> Result<(), VolumeFailure> {
    region::forget_disk(region).map_err(|error| VolumeFailure::of_io(pmem, Doing::Write, error))
}

/// Lets no block be served that is older than `disk`, which `region` caches and nobody uses yet: if
/// somebody wrote to the disk without the region, the cache is emptied. With `GoOn` it may have
/// blocks that the disk lacks; then the answer is true, and the caller has to bring them to the
/// disk and `empty_cache` before anything is read. Until then what was noted has to stay.
///
/// # Errors
/// The region has blocks that the disk lacks, and they are not to go there.
pub fn check(
    pmem: &Path,
    region: &Arc<VolumeRegion>,
    identity: &Identity,
    disk: &Disk,
    if_changed: IfChanged,
) -> Result<bool, Failure> {
    if !region::knows_changed(region, &disk.device) {
        return Ok(false);
    }
    let dirty = tidegate_disk_cache::check(&**region).map_or(0, |report| u64::from(report.dirty));
    if dirty == 0 {
        // What is in the ring yet is dirty, and then this is refused.
        tracing::warn!(
            "{} was changed without {}: what is cached of it is dropped",
            disk.path.display(),
            pmem.display()
        );
        empty_cache(pmem, region, identity)?;
    } else if if_changed == IfChanged::Refuse {
        let dirty_bytes = dirty * u64::from(identity.block_size);
        return Err(DiskFailure::Changed { pmem: pmem.to_owned(), disk: disk.path.clone(), dirty_bytes }.into());
    }
    Ok(dirty > 0)
}

/// Empties the cache `identity` in `region`, which is clean.
pub(crate) fn empty_cache(pmem: &Path, region: &Arc<VolumeRegion>, identity: &Identity) -> Result<(), Failure> {
    let layout = NewLayout { disk: identity.disk, disk_blocks: identity.disk_blocks, region_bytes: region.len() };
    lay_out(pmem, region, &layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached_disk::cache::Cached;
    use crate::cached_disk::disk::DiskLocation;
    use crate::cached_disk::disk::{self, DiskPlan};
    use crate::cached_disk::offline;
    use crate::options::CreateOptions;
    use crate::volume::create::create;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use tidegate_media::{Access, BlockDevice, DiskAccess, Durability, Lba};
    use tidegate_volume_region::mirror::MirrorPlan;

    const BLOCK: usize = 4096;

    /// A disk, and a region in front of it that has block 1 of it, and was closed in good order.
    struct Closed {
        _folder: tempfile::TempDir,
        pmem: PathBuf,
        disk: PathBuf,
    }

    impl Closed {
        fn new() -> Closed {
            let folder = tempfile::tempdir().expect("a folder");
            let (pmem, disk) = (folder.path().join("v"), folder.path().join("disk"));
            File::create(&disk).and_then(|file| file.set_len(8 << 20)).expect("a disk");
            let options = CreateOptions { disk: Some(disk.clone()), ..CreateOptions::new(pmem.clone(), 2 << 20) };
            create(&options).expect("a region");
            let closed = Closed { _folder: folder, pmem, disk };
            let (region, cached) = closed.open();
            cached.device().write(Lba(1), &[1; BLOCK], Durability::Fua).expect("a write");
            let disk = cached.disk();
            drop(cached);
            region::note_as_left(&region, &disk.device);
            closed
        }

        fn region(&self) -> (Arc<VolumeRegion>, Identity, Disk) {
            let (region, identity) = offline::cache_in(&self.pmem, Access::ReadWrite).expect("a cache");
            let disk = disk::open(&self.disk, DiskAccess::ReadWrite, identity.block_size).expect("a disk");
            (region, identity, disk)
        }

        fn open(&self) -> (Arc<VolumeRegion>, Cached<Arc<VolumeRegion>>) {
            let (region, _, disk) = self.region();
            let cached = Cached::open(Arc::clone(&region), disk, &DiskPlan::default());
            (region, cached.expect("it opens"))
        }

        fn flush(&self, if_changed: IfChanged) -> Result<(), Failure> {
            let force = if_changed == IfChanged::GoOn;
            offline::flush((&self.pmem, &MirrorPlan::Absent), DiskLocation { path: None, force }, if_changed, |_| {})
        }

        /// Somebody else writes block `block` of the disk.
        fn write_past_it(&self, block: u64, byte: u8) {
            let disk = File::options().write(true).open(&self.disk).expect("the disk");
            disk.write_all_at(&[byte; BLOCK], block * BLOCK as u64).expect("a write");
        }

        /// What clients would read.
        fn read(&self, block: u64) -> u8 {
            let mut bytes = [0; BLOCK];
            self.open().1.device().read(Lba(block), &mut bytes).expect("a read");
            bytes[0]
        }
    }

    #[test]
    fn a_disk_that_is_as_it_was_left_goes_on() {
        let closed = Closed::new();
        let (region, identity, disk) = closed.region();
        assert!(!region::knows_changed(&region, &disk.device));
        assert!(!check(&closed.pmem, &region, &identity, &disk, IfChanged::Refuse).expect("nothing is wrong"));
        clear_stamp(&closed.pmem, &region).expect("a file");
        closed.write_past_it(1, 9);
        assert!(!region::knows_changed(&region, &disk.device), "nothing is known while it is in use");
    }

    #[test]
    fn what_the_region_has_for_a_changed_disk_stays_until_somebody_says_so() {
        let closed = Closed::new();
        closed.write_past_it(2, 9);
        let refused = closed.flush(IfChanged::Refuse).expect_err("the disk is another");
        let is_about_the_disk = matches!(refused, Failure::Disk(DiskFailure::Changed { dirty_bytes: 4096, .. }));
        assert!(is_about_the_disk, "{refused:?}");
        closed.flush(IfChanged::GoOn).expect("it was said");
        assert_eq!((closed.read(1), closed.read(2)), (1, 9));
        // It was left in good order again.
        closed.flush(IfChanged::Refuse).expect("nothing changed since");
    }

    #[test]
    fn what_a_changed_disk_had_too_is_not_read_any_more() {
        let closed = Closed::new();
        closed.flush(IfChanged::Refuse).expect("a good disk");
        assert_eq!(closed.read(1), 1);
        closed.write_past_it(1, 7);
        assert_eq!(closed.read(1), 7, "its contents tell, too");
        closed.flush(IfChanged::Refuse).expect("nothing is dirty");
        assert_eq!(closed.read(1), 7);
    }
}
