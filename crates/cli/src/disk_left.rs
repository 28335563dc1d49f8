//! What becomes of a cache whose disk somebody has written to without its region: how the disk was
//! left is noted by the medium
//! ([`FileDisk::note_as_left`](tidegate_media::FileDisk::note_as_left)).

use crate::disks::Disk;
use crate::failure::{DiskFailure, Doing, Failure, VolumeFailure};
use crate::live_disk::lay_out;
use std::path::Path;
use std::sync::Arc;
use tidegate_disk_cache::{Identity, NewLayout, check};
use tidegate_media::{MappedRegion, Region};

/// What is done with a disk that was changed without its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfChanged {
    /// Nothing, if the region has blocks for it.
    Refuse,
    /// It gets them all the same.
    GoOn,
}

/// Nothing is known of the disk of `region` from now on, whatever happens.
pub(crate) fn forget(pmem: &Path, region: &MappedRegion) -> Result<(), VolumeFailure> {
    region.forget_disk().map_err(|error| VolumeFailure::of_io(pmem, Doing::Write, error))
}

/// Lets no block be served that is older than `disk`, which `region` caches and nobody uses yet: if
/// somebody wrote to the disk without the region, the cache is emptied. With `GoOn` it may have
/// blocks that the disk lacks; then the answer is true, and the caller has to bring them to the
/// disk and [`drop_all`] before anything is read. Until then what was noted has to stay.
///
/// # Errors
/// The region has blocks that the disk lacks, and they are not to go there.
pub(crate) fn distrust(
    pmem: &Path,
    region: &Arc<MappedRegion>,
    identity: &Identity,
    disk: &Disk,
    if_changed: IfChanged,
) -> Result<bool, Failure> {
    if !disk.device.was_changed_without(region) {
        return Ok(false);
    }
    let dirty = check(&**region).map_or(0, |report| u64::from(report.dirty));
    if dirty == 0 {
        // What is in the ring yet is dirty, and then this is refused.
        tracing::warn!(
            "{} was changed without {}: what is cached of it is dropped",
            disk.path.display(),
            pmem.display()
        );
        drop_all(pmem, region, identity)?;
    } else if if_changed == IfChanged::Refuse {
        let dirty_bytes = dirty * u64::from(identity.block_size);
        return Err(DiskFailure::Changed { pmem: pmem.to_owned(), disk: disk.path.clone(), dirty_bytes }.into());
    }
    Ok(dirty > 0)
}

/// Empties the cache `identity` in `region`, which is clean.
pub(crate) fn drop_all(pmem: &Path, region: &Arc<MappedRegion>, identity: &Identity) -> Result<(), Failure> {
    let wish = NewLayout { disk: identity.disk, disk_blocks: identity.disk_blocks, region_bytes: region.len() };
    lay_out(pmem, region, &wish)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached_disk::Cached;
    use crate::disks::{self, DiskPlan};
    use crate::flush;
    use crate::grammar::{Command, Parsed, Program, parse};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use tidegate_media::{Access, BlockDevice, DiskAccess, Durability, Lba};

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
            let line = ["create", "--size", "2M", "--pmem", text(&pmem), "--disk", text(&disk)];
            let Command::Create(wish) = command(&line) else { panic!("another command") };
            crate::create::create(&wish).expect("a region");
            let closed = Closed { _folder: folder, pmem, disk };
            let (region, cached) = closed.open();
            cached.device().write(Lba(1), &[1; BLOCK], Durability::Fua).expect("a write");
            let disk = cached.disk();
            drop(cached);
            disk.device.note_as_left(&region);
            closed
        }

        fn region(&self) -> (Arc<MappedRegion>, Identity, Disk) {
            let (region, identity) = flush::cache_in(&self.pmem, Access::ReadWrite).expect("a cache");
            let disk = disks::open(&self.disk, DiskAccess::ReadWrite, identity.block_size).expect("a disk");
            (region, identity, disk)
        }

        fn open(&self) -> (Arc<MappedRegion>, Cached<Arc<MappedRegion>>) {
            let (region, _, disk) = self.region();
            let cached = Cached::open(Arc::clone(&region), disk, &DiskPlan::default());
            (region, cached.expect("it opens"))
        }

        fn flush(&self, more: &[&str]) -> Result<(), Failure> {
            let line = [&["flush", "--pmem", text(&self.pmem)], more].concat();
            let Command::Flush(wish) = command(&line) else { panic!("another command") };
            flush::flush(&wish, flush::teller(false))
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

    fn text(path: &Path) -> &str {
        path.to_str().expect("a path in UTF-8")
    }

    fn command(words: &[&str]) -> Command {
        let line = std::iter::once("tidegate").chain(words.iter().copied()).map(Into::into).collect();
        let Parsed::Run(Program { command, .. }) = parse(line) else { panic!("{words:?}") };
        command
    }

    #[test]
    fn a_disk_that_is_as_it_was_left_goes_on() {
        let closed = Closed::new();
        let (region, identity, disk) = closed.region();
        assert!(!disk.device.was_changed_without(&region));
        assert!(!distrust(&closed.pmem, &region, &identity, &disk, IfChanged::Refuse).expect("nothing is wrong"));
        forget(&closed.pmem, &region).expect("a file");
        closed.write_past_it(1, 9);
        assert!(!disk.device.was_changed_without(&region), "nothing is known while it is in use");
    }

    #[test]
    fn what_the_region_has_for_a_changed_disk_stays_until_somebody_says_so() {
        let closed = Closed::new();
        closed.write_past_it(2, 9);
        let refused = closed.flush(&[]).expect_err("the disk is another");
        let told = refused.told().expect("somebody reads it");
        assert!(told.kind == "disk-changed" && told.why.contains("4096 bytes"), "{told:?}");
        assert!(told.next.contains("salvage") && told.next.contains("flush --force"), "{told:?}");
        closed.flush(&["--force"]).expect("it was said");
        assert_eq!((closed.read(1), closed.read(2)), (1, 9));
        // It was left in good order again.
        closed.flush(&[]).expect("nothing changed since");
    }

    #[test]
    fn what_a_changed_disk_had_too_is_not_read_any_more() {
        let closed = Closed::new();
        closed.flush(&[]).expect("a good disk");
        assert_eq!(closed.read(1), 1);
        closed.write_past_it(1, 7);
        assert_eq!(closed.read(1), 7, "its contents tell, too");
        closed.flush(&[]).expect("nothing is dirty");
        assert_eq!(closed.read(1), 7);
    }
}
