//! Work on a cache that no server uses: its region is opened for this process alone.

use crate::cached_disk::cache::{Cached, STEP_ENTRIES};
use crate::cached_disk::contents;
use crate::cached_disk::disk::{self, DiskLocation, DiskPlan, refuse_detached};
use crate::cached_disk::journal::{erase_journal_of, put_journal_of};
use crate::cached_disk::owner::{self, IfClaimed};
use crate::cached_disk::resize::{Resizing, lay_out, lengthened, resized, resized_file, resizing};
use crate::cached_disk::stale_check::{self, IfChanged};
use crate::cached_disk::volatile::{Stake, Volatile};
use crate::control::protocol::ScrubFindings;
use crate::failure::{DiskFailure, Failure, Step, VolumeFailure};
use std::path::Path;
use std::sync::Arc;
use tidegate_disk_cache::{Checksums, DiskCache, Guard, Identity, Journaling, NewLayout, NoDisk, Options};
use tidegate_layout::disk_cache::DETACHED;
use tidegate_media::{Access, BlockDevice, DiskAccess, Region};
use tidegate_volume_region::mirror::{self, MirrorPlan};
use tidegate_volume_region::region;
use tidegate_volume_region::xattrs::Xattr;
use tidegate_volume_region::{RegionFailure, VolumeRegion};

/// The region at `pmem`, which has to hold a cache of a disk.
pub fn cache_in(pmem: &Path, access: Access) -> Result<(Arc<VolumeRegion>, Identity), Failure> {
    cache_on(pmem, region::map(pmem, access))
}

/// The cache of a disk on what was `mapped` at `pmem`.
fn cache_on(
    pmem: &Path,
    mapped: Result<VolumeRegion, RegionFailure>,
) -> Result<(Arc<VolumeRegion>, Identity), Failure> {
    let region = Arc::new(mapped.map_err(|failure| {
        let RegionFailure::Volume(VolumeFailure::Absent { path }) = failure else { return failure.into() };
        Failure::from(DiskFailure::NoRegion { pmem: path })
    })?);
    let identity = region::disk_cache_in(pmem, &region)?;
    let identity = identity.ok_or_else(|| contents::no_cache(pmem, &region))?;
    Ok((region, identity))
}

/// A cache that no server uses, and its disk.
struct Open {
    /// The region.
    region: Arc<VolumeRegion>,
    /// What its superblock says.
    identity: Identity,
    /// The cache.
    cached: Cached<Arc<VolumeRegion>>,
    /// Whether the disk was changed without it, so that nothing may be read of what it holds.
    stale: bool,
}

/// Opens the cache in `pmem` for this process alone; its disk is at `location`, or where it
/// was noted.
fn open(pmem: &Path, location: DiskLocation<'_>) -> Result<Open, Failure> {
    open_for((pmem, &MirrorPlan::Absent), location, IfChanged::Refuse)
}

fn open_for(
    (pmem, plan): (&Path, &MirrorPlan),
    location: DiskLocation<'_>,
    if_changed: IfChanged,
) -> Result<Open, Failure> {
    let (region, identity) = cache_on(pmem, mirror::open(pmem, plan, Access::ReadWrite))?;
    let disk = disk::open_of(pmem, &identity, location, DiskAccess::ReadWrite)?;
    owner::refuse_taken(&disk, &identity, owner::if_claimed(location.force))?;
    owner::take_again(&disk, pmem, identity.uuid)?;
    let stale = stale_check::check(pmem, &region, &identity, &disk, if_changed)?;
    if !stale {
        stale_check::clear_stamp(pmem, &region)?;
    }
    region::files(&region).for_each(|file| Xattr::Disk.write(file, &disk.path));
    let guard = if if_changed == IfChanged::GoOn { Guard::Forced } else { Guard::default() };
    let path = disk.path.clone();
    let cached = Cached::open(Arc::clone(&region), disk, &DiskPlan { guard, ..DiskPlan::default() });
    let cached = cached.map_err(|error| Failure::of_opening(pmem, &path, error))?;
    Ok(Open { region, identity, cached, stale })
}

/// Brings everything that only the cache in `pmem`, mirrored as `plan` says, has to its disk.
///
/// # Errors
/// What the disk refused stays in the region. A disk that was changed without it gets nothing, if
/// `if_changed` says so.
pub fn flush(
    (pmem, plan): (&Path, &MirrorPlan),
    location: DiskLocation<'_>,
    if_changed: IfChanged,
    tell: impl FnMut(&str),
) -> Result<(), Failure> {
    let Open { region, identity, cached, stale } = open_for((pmem, plan), location, if_changed)?;
    cached.drain(pmem, tell)?;
    region::sync(pmem, &region)?;
    let disk = cached.disk();
    drop(cached);
    if stale {
        stale_check::empty_cache(pmem, &region, &identity)?;
    }
    region::note_as_left(&region, &disk.device);
    Ok(())
}

/// Brings everything to the disk, and sets region and disk free from each other.
pub fn detach(pmem: &Path, location: DiskLocation<'_>, tell: impl FnMut(&str)) -> Result<(), Failure> {
    let Open { region, identity, cached, .. } = open(pmem, location)?;
    cached.drain(pmem, tell)?;
    let disk = cached.disk();
    drop(cached);
    let layout = NewLayout { disk: DETACHED, disk_blocks: identity.disk_blocks, region_bytes: region.len() };
    lay_out(pmem, &region, &layout)?;
    region::files(&region).for_each(|file| Xattr::Disk.remove(file));
    erase_journal_of(&identity, &disk)?;
    owner::set_free(&disk, identity.uuid)
}

/// A disk that a region is put in front of.
pub struct DiskToAttach<'a> {
    /// Its path.
    pub path: &'a Path,
    /// What to do if another region or its contents speak against it.
    pub if_claimed: IfClaimed,
}

/// Puts the detached region at `pmem`, mirrored as `plan` says, in front of a disk, and returns the
/// blocks of the volume. With [`IfClaimed::Override`] a disk of another region is taken, and what
/// lies at its end overwritten.
pub fn attach((pmem, plan): (&Path, &MirrorPlan), disk: DiskToAttach<'_>, volatile: Volatile) -> Result<u64, Failure> {
    let DiskToAttach { path, if_claimed } = disk;
    let (region, identity) = cache_on(pmem, mirror::open(pmem, plan, Access::ReadWrite))?;
    if identity.disk != DETACHED {
        return Err(DiskFailure::Attached { pmem: pmem.to_owned() }.into());
    }
    Stake::of(pmem, &region, &identity).admit(Step::Attach, volatile)?;
    let disk = disk::open(path, DiskAccess::ReadWrite, identity.block_size)?;
    if if_claimed == IfClaimed::Refuse {
        owner::refuse_unfit(&disk, Some(identity.uuid))?;
    }
    let disk_blocks = put_journal_of(&identity, &disk, if_claimed)?;
    owner::take(&disk, pmem, identity.uuid)?;
    disk::warn_of_no_name(&disk);
    let layout = NewLayout { disk: disk.device.identity().0, disk_blocks, region_bytes: region.len() };
    lay_out(pmem, &region, &layout)?;
    region::files(&region).for_each(|file| Xattr::Disk.write(file, &disk.path));
    Ok(disk_blocks)
}

/// Makes the region at `pmem` `bytes` long, and its cache as large as fits.
pub fn resize(
    pmem: &Path,
    location: DiskLocation<'_>,
    bytes: u64,
    tell: impl FnMut(&str),
) -> Result<Resizing, Failure> {
    let (region, identity) = cache_in(pmem, Access::ReadWrite)?;
    refuse_detached(pmem, &identity)?;
    let layout = NewLayout { disk: identity.disk, disk_blocks: identity.disk_blocks, region_bytes: bytes };
    match resizing(pmem, &region, &layout)? {
        Resizing::Nothing => return Ok(Resizing::Nothing),
        Resizing::File => {
            resized_file(pmem, &region, bytes)?;
            return Ok(Resizing::File);
        }
        Resizing::Cache => drop(region),
    }
    let Open { region, cached, .. } = open(pmem, location)?;
    cached.drain(pmem, tell)?;
    drop(cached);
    lengthened(pmem, &region, bytes)?;
    resized(pmem, region, bytes, |region, region_bytes| lay_out(pmem, region, &NewLayout { region_bytes, ..layout }))?;
    Ok(Resizing::Cache)
}

/// Bytes of a volume that was to become as large as its disk.
pub struct Grown {
    /// Before.
    pub was_bytes: u64,
    /// Now.
    pub volume_bytes: u64,
}

/// Makes the volume in `pmem` as large as its disk: what is cached goes there first.
pub fn grow(pmem: &Path, location: DiskLocation<'_>, tell: impl FnMut(&str)) -> Result<Grown, Failure> {
    let (region, identity) = cache_in(pmem, Access::ReadWrite)?;
    let disk = disk::open_of(pmem, &identity, location, DiskAccess::ReadWrite)?;
    let grown = disk::growth(pmem, &identity, &disk);
    let block_bytes = u64::from(identity.block_size);
    let (was, disk_blocks) = (identity.disk_blocks, disk.device.geometry().blocks);
    drop((region, disk));
    let volume_blocks = match grown {
        None => was,
        Some(growth) if identity.journal_blocks > 0 => return Err(DiskFailure::JournalInside(growth).into()),
        Some(_) => {
            let Open { region, identity, cached, .. } = open(pmem, location)?;
            cached.drain(pmem, tell)?;
            drop(cached);
            let region_bytes = region.len();
            lay_out(pmem, &region, &NewLayout { disk: identity.disk, disk_blocks, region_bytes })?;
            disk_blocks
        }
    };
    Ok(Grown { was_bytes: was * block_bytes, volume_bytes: volume_blocks * block_bytes })
}

/// Reads every block that the cache in `pmem` holds, over a copy in memory of what recovery would
/// change. Returns whether the cache keeps checksums, and what was found.
pub fn scrub(pmem: &Path) -> Result<(bool, ScrubFindings), Failure> {
    let (region, identity) = cache_in(pmem, Access::Private)?;
    let no_disk = Arc::new(NoDisk::new(identity.disk_blocks, identity.block_size));
    // A disk that is not there has no journal either.
    let options = Options { journaling: Journaling::Ignored, guard: Guard::Off, ..Options::default() };
    let cache = DiskCache::open(region, no_disk, options);
    let cache = cache.map_err(|error| VolumeFailure::of_open_cache(pmem, error))?;
    let mut found = ScrubFindings::default();
    let mut next = Some(0);
    while let Some(from) = next {
        let step = cache.scrub_step(from, STEP_ENTRIES);
        found.add(ScrubFindings::of(&step));
        next = step.next;
    }
    Ok((identity.sums == Checksums::Kept, found))
}
