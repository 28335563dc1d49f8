//! `tidegate create --disk`: a region in front of a disk. Nothing is written to the disk but the
//! header of a journal, with `--ordered`.

use crate::belonging::{refuse_of_another, take};
use crate::create::sync;
use crate::disk_left;
use crate::disks::{self, Disk};
use crate::facts::{Facts, Memory};
use crate::failure::{DiskFailure, Failure, UsageFailure, VolumeFailure};
use crate::grammar::Create;
use crate::holdings;
use crate::notes::Note;
use crate::ordered::{journal_on, put_journal, refuse_another_cache, refuse_what_the_end_holds};
use crate::risk::{self, Stake, Step};
use std::path::Path;
use tidegate_disk_cache::{
    Checksums, Contents, FormatError, FormatSpec, blocks_in, format_ordered, format_with, identify,
};
use tidegate_layout::btt::PAGE_BYTES;
use tidegate_media::{BlockDevice, DiskAccess, MappedRegion, Region};
use uuid::Uuid;

/// The smallest region in front of a disk.
const REGION_BYTES_MIN: u64 = 1 << 20;

/// Refuses a size that no region in front of a disk has.
pub(crate) fn check_size(size: u64) -> Result<(), UsageFailure> {
    if size < REGION_BYTES_MIN {
        return Err(UsageFailure::CacheTooSmall { size, min: REGION_BYTES_MIN });
    }
    if size.is_multiple_of(PAGE_BYTES) { Ok(()) } else { Err(UsageFailure::SizeNotMultiple { size }) }
}

/// The disk that `wish` names, and nobody else uses.
pub(crate) fn disk(path: &Path, wish: &Create) -> Result<Disk, Failure> {
    if !wish.block.is_power_of_two() {
        return Err(UsageFailure::CacheBlockSize { size: wish.block }.into());
    }
    let disk = disks::open(path, DiskAccess::ReadWrite, wish.block)?;
    refuse_another_cache(&disk, None, wish.force)?;
    if !wish.force {
        refuse_of_another(&disk, None)?;
    }
    Ok(disk)
}

/// Refuses `region` in front of a disk, if it is to be, and a power loss empties its memory; unless
/// that was asked for by name.
pub(crate) fn refuse_volatile(wish: &Create, region: &MappedRegion) -> Result<(), DiskFailure> {
    if wish.disk.is_some() {
        stake(wish, region).refuse(Step::Create, risk::accepted(wish.accept_volatile))
    } else {
        Ok(())
    }
}

fn stake<'a>(wish: &'a Create, region: &MappedRegion) -> Stake<'a> {
    Stake { pmem: &wish.pmem, domain: region.domain(), ordered: wish.ordered }
}

/// Makes `region` a cache of `disk`.
pub(crate) fn lay_out(wish: &Create, disk: &Disk, region: &MappedRegion, contents: Contents) -> Result<Facts, Failure> {
    let path = wish.pmem.as_path();
    stake(wish, region).admit(Step::Create, risk::accepted(wish.accept_volatile))?;
    let spec = FormatSpec {
        block_size: wish.block,
        disk_blocks: disk.device.geometry().blocks,
        ring_slots: FormatSpec::ring_slots_in(region.len()),
        uuid: Uuid::new_v4().into_bytes(),
        disk: disk.device.identity().0,
    };
    let sums = if wish.checksums { Checksums::Kept } else { Checksums::Absent };
    match wish.ordered {
        true => lay_out_ordered(wish, disk, region, (spec, sums), contents)?,
        false => lay_out_as(path, region, (&spec, sums), contents)?,
    }
    disk_left::forget(path, region)?;
    region.file().into_iter().for_each(|file| Note::Disk.write(file, &disk.path));
    let identity = identify(region).map_err(|poison| VolumeFailure::of_poison(path, poison))?;
    let identity = identity.ok_or_else(|| holdings::no_cache(path, region))?;
    take(disk, path, identity.uuid)?;
    Ok(Facts::of_disk_cache(path, Memory::of(region), &identity))
}

/// The same with a journal at the end of `disk`, which comes first: without a cache it does no
/// harm.
fn lay_out_ordered(
    wish: &Create,
    disk: &Disk,
    region: &MappedRegion,
    (spec, sums): (FormatSpec, Checksums),
    contents: Contents,
) -> Result<(), Failure> {
    // At least as many as with checksums.
    let blocks = blocks_in(region.len(), spec.block_size, spec.ring_slots).unwrap_or(1);
    let journal = journal_on(disk, spec.block_size, blocks)?;
    refuse_what_the_end_holds(disk, &journal, spec.uuid, wish.force)?;
    put_journal(disk, journal, spec.uuid)?;
    let (path, spec) = (wish.pmem.as_path(), FormatSpec { disk_blocks: journal.disk_blocks, ..spec });
    let formatted = format_ordered(journal.capacity, sums, region, &spec, contents);
    formatted.map_err(|error| refused_format(path, error))?;
    Ok(sync(path, region)?)
}

/// Formats `region` as `spec` says, and sees to it that the result outlives this process.
pub(crate) fn lay_out_as(
    path: &Path,
    region: &MappedRegion,
    (spec, sums): (&FormatSpec, Checksums),
    contents: Contents,
) -> Result<(), Failure> {
    format_with(sums, region, spec, contents).map_err(|error| refused_format(path, error))?;
    Ok(sync(path, region)?)
}

/// Why no cache of that form comes to be in the region at `path`.
pub(crate) fn refused_format(path: &Path, error: FormatError) -> Failure {
    match error {
        FormatError::TooSmall { has, min } => {
            UsageFailure::CacheTooSmall { size: has, min: min.max(REGION_BYTES_MIN) }.into()
        }
        FormatError::BlockSize(size) => UsageFailure::CacheBlockSize { size }.into(),
        FormatError::Sealed(sealed) => {
            VolumeFailure::NotDurable { path: path.to_owned(), why: sealed.to_string() }.into()
        }
        error @ (FormatError::DiskBlocks(_)
        | FormatError::RingSlots(_)
        | FormatError::RingElsewhere { .. }
        | FormatError::Journal { .. }) => {
            VolumeFailure::BrokenCache { path: path.to_owned(), why: error.to_string() }.into()
        }
    }
}
