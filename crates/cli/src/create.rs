//! `tidegate create`: a region file, and an empty volume in it.
//!
//! What already lies in a file is looked at under its lock before anything is written. Only zeroes
//! are overwritten without `--force`.

use crate::answer;
use crate::compose;
use crate::create_cache;
use crate::facts::{Facts, Memory};
use crate::failure::{Doing, Exit, Failure, UsageFailure, VolumeFailure};
use crate::grammar::Create;
use crate::holdings;
use rustix::fs::FallocateFlags;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tidegate_btt::{Contents, FormatError, FormatSpec, Identity, format, identify};
use tidegate_host::default_paths;
use tidegate_host::shell::word;
use tidegate_host::unlocked::unlocked;
use tidegate_layout::btt::{ARENA_BYTES_MIN, PAGE_BYTES, SECTOR_SIZES, Version};
use tidegate_media::{Access, Allocation, LockedFile, MapError, MappedRegion, Region};
use uuid::Uuid;

/// What `create` answers.
#[derive(Serialize)]
struct Created {
    created: Facts,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "tidegate_host::json_path::optional")]
    disk: Option<PathBuf>,
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "created\n{}", self.created)?;
        write!(f, "next: tidegate serve --pmem {}", word(&self.created.file))?;
        self.disk.iter().try_for_each(|disk| write!(f, " --disk {}", word(disk)))
    }
}

/// Runs `tidegate create`.
pub(crate) fn run(wish: &Create, json: bool) -> Result<Exit, Failure> {
    let created = create(wish)?;
    answer::give(&Created { created, disk: wish.disk.clone() }, json)?;
    Ok(Exit::Done)
}

/// Makes the region and the volume that `wish` describes.
pub(crate) fn create(wish: &Create) -> Result<Facts, Failure> {
    let size_is_right = |size| check_size_of(wish, size);
    wish.size.map(size_is_right).transpose()?;
    if wish.disk.as_deref().is_some_and(|disk| default_paths::is_same_file(disk, &wish.pmem)) {
        return Err(UsageFailure::OwnDisk.into());
    }
    // Before the region is touched.
    let disk = wish.disk.as_ref().map(|path| create_cache::disk(path, wish)).transpose()?;
    let (region, contents) = if wish.pmem.try_exists().unwrap_or(true) {
        existing_region(wish)?
    } else {
        (new_region(wish)?, Contents::Zeroed)
    };
    match disk {
        None => lay_out(wish, &region, contents),
        Some(disk) => create_cache::lay_out(wish, &disk, &region, contents),
    }
}

fn check_size_of(wish: &Create, size: u64) -> Result<(), UsageFailure> {
    match wish.disk {
        Some(_) => create_cache::check_size(size),
        None if !SECTOR_SIZES.contains(&wish.block) => Err(UsageFailure::BlockSize { text: wish.block.to_string() }),
        None => check_size(size, wish.btt),
    }
}

fn check_size(size: u64, version: Version) -> Result<(), UsageFailure> {
    let min = size_min(version);
    if size < min {
        return Err(UsageFailure::SizeTooSmall { size, min, version });
    }
    if size.is_multiple_of(PAGE_BYTES) { Ok(()) } else { Err(UsageFailure::SizeNotMultiple { size }) }
}

fn size_min(version: Version) -> u64 {
    version.start() + ARENA_BYTES_MIN
}

/// A size for a new volume in the place of a file of `bytes`: its own, if a volume can have that.
pub(crate) fn size_in_place_of(bytes: u64) -> String {
    let version = Version::V1_1;
    if check_size(bytes, version).is_ok() { bytes.to_string() } else { "1G".to_owned() }
}

fn allocation(wish: &Create) -> Allocation {
    if wish.sparse { Allocation::Sparse } else { Allocation::Full }
}

fn new_region(wish: &Create) -> Result<MappedRegion, Failure> {
    let size = wish.size.ok_or(UsageFailure::SizeMissing)?;
    let path = wish.pmem.as_path();
    let made = MappedRegion::create(path, size, allocation(wish));
    let region = made.map_err(|error| VolumeFailure::of_map(Doing::Create, error))?;
    create_cache::refuse_volatile(wish, &region).inspect_err(|_| {
        // Why it is refused is told; an empty region that stays is in nobody's way.
        let _ = std::fs::remove_file(path);
    })?;
    Ok(region)
}

/// The region that is there already, if it may be overwritten, and what it holds then.
fn existing_region(wish: &Create) -> Result<(MappedRegion, Contents), Failure> {
    let path = wish.pmem.as_path();
    let there = path.metadata().map_err(|error| VolumeFailure::of_io(path, Doing::Write, error))?;
    if there.is_file() && there.len() == 0 {
        let region = grow(wish)?;
        create_cache::refuse_volatile(wish, &region).inspect_err(|_| {
            let _ = region.file().map(|file| file.set_len(0));
        })?;
        return Ok((region, Contents::Zeroed));
    }
    let region = compose::map(path, Access::ReadWrite)?;
    if wish.force {
        tell_what_it_holds(path, &region);
    } else {
        refuse_what_it_holds(path, &region)?;
    }
    create_cache::refuse_volatile(wish, &region)?;
    match wish.size {
        Some(size) if size == region.len() => {}
        Some(_) if there.is_file() => {
            drop(region);
            return Ok((grow(wish)?, Contents::Zeroed));
        }
        Some(_) => return Err(VolumeFailure::DeviceSize { path: path.to_owned(), bytes: region.len() }.into()),
        None if there.is_file() => return Err(UsageFailure::SizeMissing.into()),
        None => check_size_of(wish, region.len())?,
    }
    let zeroed = region.zero_all().map_err(|error| VolumeFailure::of_map(Doing::Write, error))?;
    Ok((region, if zeroed { Contents::Zeroed } else { Contents::Unknown }))
}

fn refuse_what_it_holds(path: &Path, region: &MappedRegion) -> Result<(), VolumeFailure> {
    match holdings::of_region(path, region)? {
        Some(holds) => Err(VolumeFailure::Exists { path: path.to_owned(), holds }),
        None => Ok(()),
    }
}

/// Tells what is about to be lost. What cannot be read is lost too, and keeps nobody from making a
/// new volume.
fn tell_what_it_holds(path: &Path, region: &MappedRegion) {
    if let Ok(Some(holds)) = holdings::of_region(path, region) {
        tracing::warn!("--force overwrites {}, which held {holds}", path.display());
    }
}

/// Empties the file and gives it its new size: zeroes everywhere.
fn grow(wish: &Create) -> Result<MappedRegion, Failure> {
    let (path, size) = (wish.pmem.as_path(), wish.size.ok_or(UsageFailure::SizeMissing)?);
    let failed = |error| VolumeFailure::of_io(path, Doing::Write, error);
    let opened = File::options().write(true).open(path).map_err(failed)?;
    let again =
        || opened.try_clone().map_err(|source| MapError::Io { path: path.to_owned(), action: "open it", source });
    let file = unlocked(|| LockedFile::exclusive(path, again()?));
    let file = file.map_err(|error| VolumeFailure::of_map(Doing::Write, error))?;
    file.set_len(0).map_err(failed)?;
    let given = match allocation(wish) {
        Allocation::Sparse => file.set_len(size),
        Allocation::Full => rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, size).map_err(io::Error::from),
    };
    if let Err(error) = given {
        file.set_len(0).map_err(failed)?;
        return Err(VolumeFailure::of_allocation(path, size, error).into());
    }
    file.sync_all().map_err(failed)?;
    // The lock belongs to this open file: it has to go before the region takes its own.
    drop(file);
    compose::map(path, Access::ReadWrite)
}

/// Formats the region, and sees to it that the result outlives this process.
fn lay_out(wish: &Create, region: &MappedRegion, contents: Contents) -> Result<Facts, Failure> {
    let path = wish.pmem.as_path();
    let spec = FormatSpec {
        version: wish.btt,
        sector_size: wish.block,
        uuid: Uuid::new_v4().into_bytes(),
        parent_uuid: [0; 16],
    };
    format(region, &spec, contents).map_err(|error| refused_format(path, wish.btt, error))?;
    sync(path, region)?;
    let bytes = region.len();
    match identify(region).map_err(|poison| VolumeFailure::of_poison(path, poison))? {
        Identity::Btt(summary) => Ok(Facts::of(path, Memory::of(region), &summary)),
        found => Err(VolumeFailure::NotDurable {
            path: path.to_owned(),
            why: format!("a volume was written to its {bytes} bytes, and this was read back: {found:?}"),
        }
        .into()),
    }
}

fn refused_format(path: &Path, version: Version, error: FormatError) -> Failure {
    match error {
        FormatError::TooSmall { has, min } => UsageFailure::SizeTooSmall { size: has, min, version }.into(),
        FormatError::SectorSize(size) => UsageFailure::BlockSize { text: size.to_string() }.into(),
        FormatError::Sealed(sealed) => {
            VolumeFailure::NotDurable { path: path.to_owned(), why: sealed.to_string() }.into()
        }
    }
}

/// Makes what was stored durable where fences alone do not.
pub(crate) fn sync(path: &Path, region: &MappedRegion) -> Result<(), VolumeFailure> {
    region.sync_file().map_err(|error| VolumeFailure::NotDurable { path: path.to_owned(), why: error.to_string() })
}
