//! Regions in front of disks that are laid out anew, or get another size.

use crate::failure::{DiskFailure, Doing, Failure, MirrorFailure, VolumeFailure};
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_disk_cache::{Foreseen, NewLayout, NewLayoutError, foresee, lay_out_anew};
use tidegate_media::Region;
use tidegate_volume_region::mirror::{self, MirrorPlan};
use tidegate_volume_region::region::{self, sync};
use tidegate_volume_region::{RegionFailure, VolumeRegion};

/// How long somebody who has a look at the region, as `info` does, may keep this process from it.
const LOOKS_END_WITHIN: Duration = Duration::from_secs(10);

/// Lays the cache in `region` out anew, and sees to it that the result outlives this process.
pub fn lay_out(pmem: &Path, region: &Arc<VolumeRegion>, layout: &NewLayout) -> Result<(), Failure> {
    lay_out_anew(Arc::clone(region), layout).map_err(|error| refused_layout(pmem, error))?;
    Ok(sync(pmem, region)?)
}

/// Why the cache in the region at `pmem` is not laid out anew.
fn refused_layout(pmem: &Path, error: NewLayoutError) -> Failure {
    match error {
        NewLayoutError::Open(error) => VolumeFailure::of_open_cache(pmem, error).into(),
        NewLayoutError::Format(error) => Failure::of_format(pmem, error),
        NewLayoutError::Dirty(_) => VolumeFailure::BrokenCache { path: pmem.to_owned(), why: error.to_string() }.into(),
    }
}

/// What becomes of a region that is to have another size, and of its cache.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resizing {
    /// They are like that already.
    Nothing,
    /// The file becomes longer or shorter. The cache has room for as many blocks as before, and
    /// keeps what it holds.
    File,
    /// The cache becomes larger or smaller, and begins empty.
    Cache,
}

/// What becomes of `region` if it is to be as `layout` says. Changes nothing.
///
/// # Errors
/// It cannot be like that.
pub(crate) fn resizing(pmem: &Path, region: &Arc<VolumeRegion>, layout: &NewLayout) -> Result<Resizing, Failure> {
    let has = length_of(pmem, file_of(pmem, region)?)?;
    Ok(match foresee(region, layout).map_err(|error| refused_layout(pmem, error))? {
        Foreseen::AsItIs if has == layout.region_bytes => Resizing::Nothing,
        Foreseen::AsItIs => Resizing::File,
        Foreseen::Anew => Resizing::Cache,
    })
}

/// Makes the file of `region` `bytes` long, which may be in use: its cache does not reach behind
/// that.
pub(crate) fn resized_file(pmem: &Path, region: &VolumeRegion, bytes: u64) -> Result<(), Failure> {
    match lengthened(pmem, region, bytes)? > bytes {
        true => shortened(pmem, region, bytes),
        false => Ok(()),
    }
}

/// Gives the file of `region` room for `bytes`, if it has less. The region knows nothing of it
/// before it is opened anew. Returns how long the file was.
pub fn lengthened(pmem: &Path, region: &VolumeRegion, bytes: u64) -> Result<u64, Failure> {
    let file = file_of(pmem, region)?;
    let has = length_of(pmem, file)?;
    if bytes <= has {
        return Ok(has);
    }
    if let Err(errno) = fallocate(file, FallocateFlags::empty(), has, bytes - has) {
        // Some file systems keep what they found room for.
        shortened(pmem, region, has)?;
        return Err(VolumeFailure::of_growth(pmem, bytes, errno.into()).into());
    }
    file.sync_all().map_err(|error| VolumeFailure::of_io(pmem, Doing::Write, error))?;
    Ok(has)
}

/// Makes the file of `region` no more than `bytes` long.
pub(crate) fn shortened(pmem: &Path, region: &VolumeRegion, bytes: u64) -> Result<(), Failure> {
    let file = file_of(pmem, region)?;
    let shorter = file.set_len(bytes).and_then(|()| file.sync_all());
    Ok(shorter.map_err(|error| VolumeFailure::of_io(pmem, Doing::Write, error))?)
}

fn length_of(pmem: &Path, file: &File) -> Result<u64, Failure> {
    let there = file.metadata().map_err(|error| VolumeFailure::of_io(pmem, Doing::Read, error))?;
    Ok(there.len())
}

fn file_of<'a>(pmem: &Path, region: &'a VolumeRegion) -> Result<&'a File, Failure> {
    if region.mirror().is_some() {
        return Err(MirrorFailure::FixedSize { path: pmem.to_owned() }.into());
    }
    // A device has the size that it has.
    let is_file = |file: &&File| file.metadata().is_ok_and(|there| there.is_file());
    Ok(region::only_file(region).filter(is_file).ok_or_else(|| DiskFailure::NoFile { pmem: pmem.to_owned() })?)
}

/// Makes `region`, which nobody else uses and whose file has room for `bytes`, so long, and by
/// `lay_out` the cache in it as large as fits: a file becomes smaller last, so that the cache fits
/// at all times.
pub(crate) fn resized(
    pmem: &Path,
    region: Arc<VolumeRegion>,
    bytes: u64,
    lay_out: impl FnOnce(&Arc<VolumeRegion>, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let refused = |error| VolumeFailure::of_io(pmem, Doing::Write, error);
    if bytes > region.len() {
        drop(region);
        return lay_out(&Arc::new(map_again(pmem, &MirrorPlan::Absent)?), bytes);
    }
    let file = file_of(pmem, &region)?.try_clone().map_err(refused)?;
    lay_out(&region, bytes)?;
    drop(region);
    Ok(file.set_len(bytes).and_then(|()| file.sync_all()).map_err(refused)?)
}

/// Maps the region at `pmem`, which this process had for itself a moment ago. Somebody who has a
/// look at it just then is waited for.
pub(crate) fn map_again(pmem: &Path, mirror: &MirrorPlan) -> Result<VolumeRegion, Failure> {
    let deadline = Instant::now() + LOOKS_END_WITHIN;
    loop {
        let mapped = mirror::open_at_once(pmem, mirror);
        let in_use = matches!(&mapped, Err(RegionFailure::Volume(VolumeFailure::InUse { .. })));
        if !in_use || Instant::now() >= deadline {
            return Ok(mapped?);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
