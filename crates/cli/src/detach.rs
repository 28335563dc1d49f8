//! `tidegate detach` and `attach`: a cache parts from its disk once the disk has everything, and gets another.
//!
//! A detached cache is empty. Until then the region may have blocks that the disk lacks, or that somebody else changes on
//! the disk meanwhile.

use crate::answer;
use crate::create_cache::lay_out_as;
use crate::disks::{self, DETACHED};
use crate::failure::{DiskFailure, Exit, Failure};
use crate::flush;
use crate::grammar::{Attach, Detach};
use crate::notes::Note;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_disk_cache::{Contents, FormatSpec, Identity};
use tidegate_media::{Access, BlockDevice, DiskAccess};

/// What `detach` answers.
#[derive(Serialize)]
struct Detached {
    detached: PathBuf,
}

impl fmt::Display for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "detached   {}: the disk has everything, and the cache is empty", self.detached.display())
    }
}

/// What `attach` answers.
#[derive(Serialize)]
struct Attached {
    attached: PathBuf,
    disk: PathBuf,
    blocks: u64,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pmem, disk) = (self.attached.display(), self.disk.display());
        writeln!(f, "attached   {pmem} to {disk}, {} blocks", self.blocks)?;
        write!(f, "next: tidegate serve --pmem {pmem} --disk {disk}")
    }
}

/// What a cache like `identity` is laid out by.
fn spec(identity: &Identity, disk: [u8; 32], disk_blocks: u64) -> FormatSpec {
    let Identity { uuid, block_size, ring_slots, .. } = *identity;
    FormatSpec { block_size, disk_blocks, ring_slots, uuid, disk }
}

/// Runs `tidegate detach`.
pub(crate) fn detach(wish: &Detach, json: bool) -> Result<Exit, Failure> {
    let flush::Open { region, identity, cached } = flush::open(&wish.pmem, wish.disk.as_deref())?;
    cached.drain(&wish.pmem, flush::tell)?;
    drop(cached);
    lay_out_as(
        &wish.pmem,
        &region,
        (&spec(&identity, DETACHED, identity.disk_blocks), identity.sums),
        Contents::Unknown,
    )?;
    region.file().into_iter().for_each(|file| Note::Disk.remove(file));
    answer::give(&Detached { detached: wish.pmem.clone() }, json)?;
    Ok(Exit::Done)
}

/// Runs `tidegate attach`.
pub(crate) fn attach(wish: &Attach, json: bool) -> Result<Exit, Failure> {
    let (region, identity) = flush::cache_in(&wish.pmem, Access::ReadWrite)?;
    if identity.disk != DETACHED {
        return Err(DiskFailure::Attached { pmem: wish.pmem.clone() }.into());
    }
    let disk = disks::open(&wish.disk, DiskAccess::ReadWrite, identity.block_size)?;
    let blocks = disk.device.geometry().blocks;
    let spec = spec(&identity, disk.device.identity().0, blocks);
    lay_out_as(&wish.pmem, &region, (&spec, identity.sums), Contents::Unknown)?;
    region.file().into_iter().for_each(|file| Note::Disk.write(file, &disk.path));
    answer::give(&Attached { attached: wish.pmem.clone(), disk: disk.path, blocks }, json)?;
    Ok(Exit::Done)
}
