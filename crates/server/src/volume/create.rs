//! A region file, and an empty volume in it.
//!
//! The contents of an existing file are looked at under its lock before they are overwritten. Only
//! zeroes are overwritten without `force`.

use crate::cached_disk::create as create_cache;
use crate::failure::{CreateFailure, Doing, Failure, MirrorFailure, VolumeFailure};
use crate::options::CreateOptions;
use std::path::Path;
use tidegate_btt::{Contents, FormatError, FormatSpec, Identity, format, identify};
use tidegate_host::default_paths;
use tidegate_layout::btt::{ARENA_BYTES_MIN, PAGE_BYTES, SECTOR_SIZES, Version};
use tidegate_media::{Allocation, MappedRegion, Region};
use tidegate_volume_region::description::{Description, Memory};
use tidegate_volume_region::found::FoundAtPath;
use tidegate_volume_region::mapping::map_emptied;
use tidegate_volume_region::region::{map_to_overwrite, sync};
use tidegate_volume_region::{VolumeRegion, contents, mirror};
use uuid::Uuid;

/// Makes the region and the volume that `args` describes.
pub fn create(args: &CreateOptions) -> Result<Description, Failure> {
    let size_is_right = |size| check_size_of(args, size);
    args.size.map(size_is_right).transpose()?;
    if args.disk.as_deref().is_some_and(|disk| default_paths::is_same_file(disk, &args.pmem)) {
        return Err(CreateFailure::OwnDisk.into());
    }
    // Before the region is touched.
    let disk = args.disk.as_ref().map(|path| create_cache::disk(path, args)).transpose()?;
    let (region, contents) = match &args.mirror {
        None => {
            let (region, contents) = region_of(args)?;
            mirror::leave(&args.pmem, &region)?;
            (VolumeRegion::Plain(region), contents)
        }
        Some(twin) => both_sides(args, twin)?,
    };
    match disk {
        None => lay_out(args, &region, contents),
        Some(disk) => create_cache::lay_out(args, &disk, &region, contents),
    }
}

/// The region that `args` describes, new or emptied, and what it holds then.
fn region_of(args: &CreateOptions) -> Result<(MappedRegion, Contents), Failure> {
    if args.pmem.try_exists().unwrap_or(true) {
        existing_region(args)
    } else {
        Ok((new_region(args)?, Contents::Zeroed))
    }
}

/// The region that `args` describes, mirrored to `twin`.
fn both_sides(args: &CreateOptions, twin: &Path) -> Result<(VolumeRegion, Contents), Failure> {
    let path = args.pmem.as_path();
    if default_paths::is_same_file(path, twin) {
        return Err(MirrorFailure::Same { path: twin.to_owned() }.into());
    }
    if args.disk.as_deref().is_some_and(|disk| default_paths::is_same_file(disk, twin)) {
        return Err(CreateFailure::OwnDisk.into());
    }
    if args.sparse {
        return Err(MirrorFailure::Sparse.into());
    }
    let found = [path, twin].map(FoundAtPath::of);
    let (first, contents) = region_of(args)?;
    let twin_args = CreateOptions { pmem: twin.to_owned(), ..args.clone() };
    let (second, of_twin) = region_of(&twin_args).inspect_err(|_| found[0].leave(path))?;
    let contents = if of_twin == Contents::Zeroed { contents } else { of_twin };
    let made = mirror::create([path, twin], [first, second]);
    let region = made.inspect_err(|_| found.iter().zip([path, twin]).for_each(|(found, path)| found.leave(path)))?;
    Ok((region, contents))
}

fn check_size_of(args: &CreateOptions, size: u64) -> Result<(), CreateFailure> {
    match args.disk {
        Some(_) => create_cache::check_size(size),
        None if !SECTOR_SIZES.contains(&args.block) => Err(CreateFailure::BlockSize { size: args.block }),
        None => check_size(size, args.btt),
    }
}

fn check_size(size: u64, version: Version) -> Result<(), CreateFailure> {
    let min = size_min(version);
    if size < min {
        return Err(CreateFailure::SizeTooSmall { size, min, version });
    }
    if size.is_multiple_of(PAGE_BYTES) { Ok(()) } else { Err(CreateFailure::SizeNotMultiple { size }) }
}

fn size_min(version: Version) -> u64 {
    version.start() + ARENA_BYTES_MIN
}

/// A size for a new volume in the place of a file of `bytes`: its own, if a volume can have that.
pub fn size_in_place_of(bytes: u64) -> String {
    let version = Version::V1_1;
    if check_size(bytes, version).is_ok() { bytes.to_string() } else { "1G".to_owned() }
}

fn allocation(args: &CreateOptions) -> Allocation {
    if args.sparse { Allocation::Sparse } else { Allocation::Full }
}

fn new_region(args: &CreateOptions) -> Result<MappedRegion, Failure> {
    let size = args.size.ok_or(CreateFailure::SizeMissing)?;
    let path = args.pmem.as_path();
    let made = MappedRegion::create(path, size, allocation(args));
    let region = made.map_err(|error| VolumeFailure::of_map(Doing::Create, error))?;
    create_cache::refuse_volatile(args, region.domain()).inspect_err(|_| {
        // Why it is refused is told; an empty region that stays is in nobody's way.
        let _ = std::fs::remove_file(path);
    })?;
    Ok(region)
}

/// The region that is there already, if it may be overwritten, and what it holds then.
fn existing_region(args: &CreateOptions) -> Result<(MappedRegion, Contents), Failure> {
    let path = args.pmem.as_path();
    let there = path.metadata().map_err(|error| VolumeFailure::of_io(path, Doing::Write, error))?;
    if there.is_file() && there.len() == 0 {
        let region = grow(args)?;
        create_cache::refuse_volatile(args, region.domain()).inspect_err(|_| {
            let _ = region.file().map(|file| file.set_len(0));
        })?;
        return Ok((region, Contents::Zeroed));
    }
    let region = map_to_overwrite(path)?;
    if args.force {
        tell_what_it_holds(path, &region);
    } else {
        refuse_what_it_holds(path, &region)?;
    }
    let region = region.into_reader();
    create_cache::refuse_volatile(args, region.domain())?;
    match args.size {
        Some(size) if size == region.len() => {}
        Some(_) if there.is_file() => {
            drop(region);
            return Ok((grow(args)?, Contents::Zeroed));
        }
        Some(_) => return Err(VolumeFailure::DeviceSize { path: path.to_owned(), bytes: region.len() }.into()),
        None if there.is_file() => return Err(CreateFailure::SizeMissing.into()),
        None => check_size_of(args, region.len())?,
    }
    let zeroed = region.zero_all().map_err(|error| VolumeFailure::of_map(Doing::Write, error))?;
    Ok((region, if zeroed { Contents::Zeroed } else { Contents::Unknown }))
}

fn refuse_what_it_holds(path: &Path, region: &VolumeRegion) -> Result<(), VolumeFailure> {
    match contents::of_region(path, region)? {
        Some(holds) => Err(VolumeFailure::Exists { path: path.to_owned(), holds }),
        None => Ok(()),
    }
}

/// Tells what is about to be lost. What cannot be read is lost too, and keeps nobody from making a
/// new volume.
fn tell_what_it_holds(path: &Path, region: &VolumeRegion) {
    if let Ok(Some(holds)) = contents::of_region(path, region) {
        tracing::warn!("--force overwrites {}, which held {holds}", path.display());
    }
}

/// Empties the file and gives it its new size: zeroes everywhere.
fn grow(args: &CreateOptions) -> Result<MappedRegion, Failure> {
    let size = args.size.ok_or(CreateFailure::SizeMissing)?;
    Ok(map_emptied(&args.pmem, size, allocation(args))?)
}

/// Formats the region, and sees to it that the result outlives this process.
fn lay_out(args: &CreateOptions, region: &VolumeRegion, contents: Contents) -> Result<Description, Failure> {
    let path = args.pmem.as_path();
    let spec = FormatSpec {
        version: args.btt,
        sector_size: args.block,
        uuid: Uuid::new_v4().into_bytes(),
        parent_uuid: [0; 16],
    };
    format(region, &spec, contents).map_err(|error| refused_format(path, args.btt, error))?;
    sync(path, region)?;
    let bytes = region.len();
    match identify(region).map_err(|poison| VolumeFailure::of_poison(path, poison))? {
        Identity::Btt(summary) => Ok(Description::of(path, Memory::of(region), &summary)),
        found => Err(VolumeFailure::NotDurable {
            path: path.to_owned(),
            why: format!("a volume was written to its {bytes} bytes, and this was read back: {found:?}"),
        }
        .into()),
    }
}

fn refused_format(path: &Path, version: Version, error: FormatError) -> Failure {
    match error {
        FormatError::TooSmall { has, min } => CreateFailure::SizeTooSmall { size: has, min, version }.into(),
        FormatError::SectorSize(size) => CreateFailure::BlockSize { size }.into(),
        FormatError::Sealed(sealed) => {
            VolumeFailure::NotDurable { path: path.to_owned(), why: sealed.to_string() }.into()
        }
    }
}
