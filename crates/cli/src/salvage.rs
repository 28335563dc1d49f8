//! `tidegate salvage`: the blocks that only a cache has, written to a file or to another disk, without the disk they belong to. The
//! region is not changed, so it can be done again.

use crate::answer;
use crate::cached_disk::Cached;
use crate::disks::{self, DiskPlan};
use crate::failure::{DiskFailure, Doing, Exit, Failure, VolumeFailure};
use crate::flush;
use crate::grammar::Salvage;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use tidegate_media::{Access, BlockDevice, DiskAccess};

/// What `salvage` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "crate::json_path")]
    file: PathBuf,
    #[serde(with = "crate::json_path")]
    to: PathBuf,
    blocks: u64,
    bytes: u64,
    /// What the memory does not give back, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, Answer { blocks, bytes, .. }) = (self.to.display(), self);
        writeln!(f, "salvaged   {blocks} blocks ({bytes} bytes) to {to}, each at its place on the disk")?;
        self.lost.iter().try_for_each(|lost| answer::line(f, "lost", lost))?;
        write!(f, "region     {}, unchanged", self.file.display())
    }
}

/// Runs `tidegate salvage`.
pub(crate) fn run(wish: &Salvage, json: bool) -> Result<Exit, Failure> {
    // What is stored here changes a copy in memory only.
    let (region, identity) = flush::cache_in(&wish.pmem, Access::Private)?;
    let needs = identity.disk_blocks * u64::from(identity.block_size);
    if !wish.to.try_exists().unwrap_or(true) {
        let made = File::create_new(&wish.to).and_then(|file| file.set_len(needs));
        made.map_err(|error| VolumeFailure::of_io(&wish.to, Doing::Create, error))?;
    } else if !wish.force {
        return Err(DiskFailure::TargetHolds { to: wish.to.clone() }.into());
    }
    let target = disks::open(&wish.to, DiskAccess::ReadWrite, identity.block_size)?;
    let has = target.device.geometry().bytes();
    if has < needs {
        return Err(DiskFailure::Smaller { pmem: wish.pmem.clone(), disk: wish.to.clone(), needs, has }.into());
    }
    let cached = Cached::open(region, target, &DiskPlan::default());
    let cached = cached.map_err(|error| VolumeFailure::of_open_cache(&wish.pmem, error))?;
    let bytes = cached.dirty_bytes();
    cached.drain(&wish.pmem, flush::tell)?;
    let blocks = bytes / u64::from(identity.block_size);
    let lost = cached.lost();
    answer::give(&Answer { file: wish.pmem.clone(), to: wish.to.clone(), blocks, bytes, lost }, json)?;
    Ok(Exit::Done)
}
