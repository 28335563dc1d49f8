//! `tidegate create --disk`: a region in front of a disk. Nothing is written to the disk but the
//! header of a journal, with `--ordered`.

use crate::cached_disk::disk::{self, Disk};
use crate::cached_disk::journal::{journal_on, put_journal, refuse_another_cache, refuse_what_the_end_holds};
use crate::cached_disk::owner::{refuse_of_another, take};
use crate::cached_disk::stale_check;
use crate::cached_disk::volatile::Stake;
use crate::failure::{CreateFailure, DiskFailure, Failure, Step, VolumeFailure};
use crate::options::CreateOptions;
use crate::volume::contents;
use crate::volume::description::{Description, Memory};
use crate::volume::region::sync;
use crate::volume::xattrs::Xattr;
use std::path::Path;
use tidegate_disk_cache::{Contents, FormatError, FormatSpec, Sums, blocks_in, format_ordered, format_with, identify};
use tidegate_layout::btt::PAGE_BYTES;
use tidegate_media::{BlockDevice, DiskAccess, MappedRegion, Region};
use uuid::Uuid;

/// The smallest region in front of a disk.
const REGION_BYTES_MIN: u64 = 1 << 20;

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
    refuse_another_cache(&disk, None, args.force)?;
    if !args.force {
        refuse_of_another(&disk, None)?;
    }
    Ok(disk)
}

/// Refuses `region` in front of a disk, if it is to be, and a power loss empties its memory; unless
/// that was asked for by name.
pub fn refuse_volatile(args: &CreateOptions, region: &MappedRegion) -> Result<(), DiskFailure> {
    if args.disk.is_some() { stake(args, region).refuse(Step::Create, args.volatile) } else { Ok(()) }
}

fn stake<'a>(args: &'a CreateOptions, region: &MappedRegion) -> Stake<'a> {
    Stake { pmem: &args.pmem, domain: region.domain(), ordered: args.ordered }
}

/// Makes `region` a cache of `disk`.
pub fn lay_out(
    args: &CreateOptions,
    disk: &Disk,
    region: &MappedRegion,
    contents: Contents,
) -> Result<Description, Failure> {
    let path = args.pmem.as_path();
    stake(args, region).admit(Step::Create, args.volatile)?;
    let spec = FormatSpec {
        block_size: args.block,
        disk_blocks: disk.device.geometry().blocks,
        ring_slots: FormatSpec::ring_slots_in(region.len()),
        uuid: Uuid::new_v4().into_bytes(),
        disk: disk.device.identity().0,
    };
    let sums = if args.checksums { Sums::Kept } else { Sums::Absent };
    match args.ordered {
        true => lay_out_ordered(args, disk, region, (spec, sums), contents)?,
        false => lay_out_as(path, region, (&spec, sums), contents)?,
    }
    stale_check::clear_stamp(path, region)?;
    region.file().into_iter().for_each(|file| Xattr::Disk.write(file, &disk.path));
    let identity = identify(region).map_err(|poison| VolumeFailure::of_poison(path, poison))?;
    let identity = identity.ok_or_else(|| contents::no_cache(path, region))?;
    take(disk, path, identity.uuid)?;
    Ok(Description::of_disk_cache(path, Memory::of(region), &identity))
}

/// The same with a journal at the end of `disk`, which comes first: without a cache it does no
/// harm.
fn lay_out_ordered(
    args: &CreateOptions,
    disk: &Disk,
    region: &MappedRegion,
    (spec, sums): (FormatSpec, Sums),
    contents: Contents,
) -> Result<(), Failure> {
    // At least as many as with checksums.
    let blocks = blocks_in(region.len(), spec.block_size, spec.ring_slots).unwrap_or(1);
    let journal = journal_on(disk, spec.block_size, blocks)?;
    refuse_what_the_end_holds(disk, &journal, spec.uuid, args.force)?;
    put_journal(disk, journal, spec.uuid)?;
    let (path, spec) = (args.pmem.as_path(), FormatSpec { disk_blocks: journal.disk_blocks, ..spec });
    let formatted = format_ordered(journal.capacity, sums, region, &spec, contents);
    formatted.map_err(|error| refused_format(path, error))?;
    Ok(sync(path, region)?)
}

/// Formats `region` as `spec` says, and sees to it that the result outlives this process.
pub fn lay_out_as(
    path: &Path,
    region: &MappedRegion,
    (spec, sums): (&FormatSpec, Sums),
    contents: Contents,
) -> Result<(), Failure> {
    format_with(sums, region, spec, contents).map_err(|error| refused_format(path, error))?;
    Ok(sync(path, region)?)
}

/// Why no cache of that form comes to be in the region at `path`.
pub fn refused_format(path: &Path, error: FormatError) -> Failure {
    match error {
        FormatError::TooSmall { has, min } => {
            CreateFailure::CacheTooSmall { size: has, min: min.max(REGION_BYTES_MIN) }.into()
        }
        FormatError::BlockSize(size) => CreateFailure::CacheBlockSize { size }.into(),
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
