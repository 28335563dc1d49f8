//! Making a region in front of a disk. Only the header of the journal of an ordered one is written
//! to the disk.

use crate::cached_disk::contents;
use crate::cached_disk::disk::{self, Disk};
use crate::cached_disk::journal::{journal_on, put_journal, refuse_another_cache, refuse_what_the_end_holds};
use crate::cached_disk::owner::{if_claimed, refuse_unfit, take};
use crate::cached_disk::stale_check;
use crate::cached_disk::volatile::Stake;
use crate::failure::{CreateFailure, DiskFailure, Failure, REGION_BYTES_MIN, Step, VolumeFailure};
use crate::options::CreateOptions;
use std::path::Path;
use tidegate_disk_cache::{Checksums, Contents, FormatSpec, blocks_in, format_ordered, format_with, identify};
use tidegate_layout::btt::PAGE_BYTES;
use tidegate_media::{BlockDevice, DiskAccess, Domain, Region};
use tidegate_volume_region::VolumeRegion;
use tidegate_volume_region::description::{Description, Memory};
use tidegate_volume_region::region::{self, sync};
use tidegate_volume_region::xattrs::Xattr;
use uuid::Uuid;

/// Refuses a size that no region in front of a disk has.
pub fn check_size(size: u64) -> Result<(), CreateFailure> {
    if size < REGION_BYTES_MIN {
        return Err(CreateFailure::CacheTooSmall { size, min: REGION_BYTES_MIN });
    }
    if size.is_multiple_of(PAGE_BYTES) { Ok(()) } else { Err(CreateFailure::SizeNotMultiple { size }) }
}

/// The disk that `args` names, and nobody else uses.
pub fn disk(path: &Path, args: &CreateOptions) -> Result<Disk, Failure> {
    if !args.block.is_power_of_two() {
        return Err(CreateFailure::CacheBlockSize { size: args.block }.into());
    }
    let disk = disk::open(path, DiskAccess::ReadWrite, args.block)?;
    refuse_another_cache(&disk, None, if_claimed(args.force))?;
    if !args.force {
        refuse_unfit(&disk, None)?;
    }
    Ok(disk)
}

/// Refuses memory in `domain` in front of a disk, if it is to be, and a power loss empties it;
/// unless that was asked for by name.
pub(crate) fn refuse_volatile(args: &CreateOptions, domain: Domain) -> Result<(), DiskFailure> {
    if args.disk.is_some() { stake(args, domain).refuse(Step::Create, args.volatile) } else { Ok(()) }
}

fn stake<'a>(args: &'a CreateOptions, domain: Domain) -> Stake<'a> {
    Stake { pmem: &args.pmem, domain, ordered: args.ordered }
}

/// Makes `region` a cache of `disk`.
pub fn lay_out(
    args: &CreateOptions,
    disk: &Disk,
    region: &VolumeRegion,
    contents: Contents,
) -> Result<Description, Failure> {
    let path = args.pmem.as_path();
    stake(args, region.reader().domain()).admit(Step::Create, args.volatile)?;
    let spec = FormatSpec {
        block_size: args.block,
        disk_blocks: disk.device.geometry().blocks,
        ring_slots: FormatSpec::ring_slots_in(region.len()),
        uuid: Uuid::new_v4().into_bytes(),
        disk: disk.device.identity().0,
    };
    let sums = if args.checksums { Checksums::Kept } else { Checksums::Absent };
    match args.ordered {
        true => lay_out_ordered(args, disk, region, (spec, sums), contents)?,
        false => lay_out_as(path, region, (&spec, sums), contents)?,
    }
    stale_check::clear_stamp(path, region)?;
    region::files(region).for_each(|file| Xattr::Disk.write(file, &disk.path));
    let identity = identify(region).map_err(|poison| VolumeFailure::of_poison(path, poison))?;
    let identity = identity.ok_or_else(|| contents::no_cache(path, region))?;
    take(disk, path, identity.uuid)?;
    Ok(Description::of_disk_cache(path, Memory::of(region), &identity))
}

/// Makes `region` a cache of `disk` with a journal at its end. The journal comes first: without a
/// cache it does no harm.
fn lay_out_ordered(
    args: &CreateOptions,
    disk: &Disk,
    region: &VolumeRegion,
    (spec, sums): (FormatSpec, Checksums),
    contents: Contents,
) -> Result<(), Failure> {
    // At least as many as with checksums.
    let blocks = blocks_in(region.len(), spec.block_size, spec.ring_slots).unwrap_or(1);
    let journal = journal_on(disk, spec.block_size, blocks)?;
    refuse_what_the_end_holds(disk, &journal, spec.uuid, if_claimed(args.force))?;
    put_journal(disk, journal, spec.uuid)?;
    let (path, spec) = (args.pmem.as_path(), FormatSpec { disk_blocks: journal.disk_blocks, ..spec });
    let formatted = format_ordered(journal.capacity, sums, region, &spec, contents);
    formatted.map_err(|error| Failure::of_format(path, error))?;
    Ok(sync(path, region)?)
}

/// Formats `region` as `spec` says, and sees to it that the result outlives this process.
pub(crate) fn lay_out_as(
    path: &Path,
    region: &VolumeRegion,
    (spec, sums): (&FormatSpec, Checksums),
    contents: Contents,
) -> Result<(), Failure> {
    format_with(sums, region, spec, contents).map_err(|error| Failure::of_format(path, error))?;
    Ok(sync(path, region)?)
}
