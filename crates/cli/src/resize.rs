//! `tidegate resize`: a region in front of a disk becomes larger or smaller, while it is served or
//! not. If its cache gets room for more blocks or fewer, what it held goes, once the disk has it:
//! the cache begins empty. Otherwise the cache keeps what it holds. Or the volume becomes as large
//! as its disk, which has grown, while no server runs: clients learn a volume's size when they
//! connect.

use crate::answer;
use crate::change::Change;
use crate::compose::{self, Holds};
use crate::control::DiskAnswer;
use crate::create_cache::check_size;
use crate::detach::by_server;
use crate::disks::{self, refuse_detached};
use crate::failure::{DiskFailure, Exit, Failure};
use crate::flush::{self, Teller};
use crate::grammar::Resize;
use crate::live_disk::{Resizing, lay_out, lengthened, resized, resized_file, resizing};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_btt::{Identity, identify};
use tidegate_disk_cache::NewLayout;
use tidegate_host::default_paths;
use tidegate_host::units::{Exact, Human};
use tidegate_media::{Access, BlockDevice, DiskAccess, Region};

/// What `resize` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    /// Whether a server did it.
    served: bool,
    region_bytes: u64,
    /// What became of the region and its cache.
    changed: Resizing,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, size) = (self.file.display(), Human(self.region_bytes));
        match self.changed {
            Resizing::Nothing => write!(f, "unchanged  {file}: it has {size} already, and keeps what it holds"),
            Resizing::File => write!(
                f,
                "resized    {file}: {size}; the cache has room for as many blocks as before, and keeps what it holds"
            ),
            Resizing::Cache => write!(f, "resized    {file}: {size}; the disk has everything, and the cache is empty"),
        }
    }
}

/// Runs `tidegate resize`.
pub(crate) fn run(wish: &Resize, json: bool) -> Result<Exit, Failure> {
    refuse_plain(&wish.pmem)?;
    wish.size.map(check_size).transpose()?;
    let Some(bytes) = wish.size else { return grow(wish, json) };
    let pmem = wish.pmem.clone();
    let socket = wish.control.clone().unwrap_or_else(|| default_paths::control_socket(&pmem));
    let (served, changed) = match by_server(&socket, &pmem, Change::Resize { bytes }, flush::teller(json)) {
        Ok(DiskAnswer::Resized { changed }) => (true, changed),
        Ok(_) => (true, Resizing::Cache),
        Err(failure) if wish.control.is_none() && failure.is_no_server() => {
            (false, resize(wish, bytes, flush::teller(json))?)
        }
        Err(failure) => return Err(failure),
    };
    answer::give(&Answer { file: pmem, served, region_bytes: bytes, changed }, json)?;
    Ok(Exit::Done)
}

/// Refuses a region that holds a volume of its own, served or not.
///
/// Its map, log and second info block lie at the end of their arena, and all of them would move. An
/// arena behind one that is not full is not possible: arenas begin 512 GiB from each other, as
/// follows from the size of all alone (UEFI, chapter 6), so that PMDK, and this program, refuse any
/// other distance in `nextoff`.
fn refuse_plain(pmem: &Path) -> Result<(), DiskFailure> {
    // What cannot be looked at is told when it is used.
    let Ok(region) = compose::map(pmem, Access::PrivateUnlocked) else { return Ok(()) };
    match (compose::holds(pmem, &region), identify(&region)) {
        (Ok(Holds::NoCache), Ok(Identity::Btt(_))) => Err(DiskFailure::Plain { pmem: pmem.to_owned() }),
        _ => Ok(()),
    }
}

/// Without a server.
fn resize(wish: &Resize, bytes: u64, tell: Teller) -> Result<Resizing, Failure> {
    let (region, identity) = flush::cache_in(&wish.pmem, Access::ReadWrite)?;
    refuse_detached(&wish.pmem, &identity)?;
    let wish_for = NewLayout { disk: identity.disk, disk_blocks: identity.disk_blocks, region_bytes: bytes };
    match resizing(&wish.pmem, &region, &wish_for)? {
        Resizing::Nothing => return Ok(Resizing::Nothing),
        Resizing::File => {
            resized_file(&wish.pmem, &region, bytes)?;
            return Ok(Resizing::File);
        }
        Resizing::Cache => drop(region),
    }
    let flush::Open { region, cached, .. } = flush::open(&wish.pmem, wish.place.named())?;
    cached.drain(&wish.pmem, tell)?;
    drop(cached);
    lengthened(&wish.pmem, &region, bytes)?;
    resized(&wish.pmem, region, bytes, |region, region_bytes| {
        lay_out(&wish.pmem, region, &NewLayout { region_bytes, ..wish_for })
    })?;
    Ok(Resizing::Cache)
}

/// What `resize --to-disk` answers.
#[derive(Serialize)]
struct Grown {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    /// Bytes of the volume before.
    was_bytes: u64,
    volume_bytes: u64,
}

impl fmt::Display for Grown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, was, bytes) = (self.file.display(), Exact(self.was_bytes), Exact(self.volume_bytes));
        match self.was_bytes == self.volume_bytes {
            true => write!(f, "unchanged  {file}: the volume is as large as its disk, {bytes}"),
            false => write!(f, "grown      {file}: the volume has {bytes} instead of {was}, and the cache is empty"),
        }
    }
}

/// Makes the volume as large as its disk, without a server: what is cached goes to the disk first.
fn grow(wish: &Resize, json: bool) -> Result<Exit, Failure> {
    let (region, identity) = flush::cache_in(&wish.pmem, Access::ReadWrite)?;
    let disk = disks::open_of(&wish.pmem, &identity, wish.place.named(), DiskAccess::ReadWrite)?;
    let grown = disks::growth(&wish.pmem, &identity, &disk);
    let size_block = u64::from(identity.block_size);
    let (was, disk_blocks) = (identity.disk_blocks, disk.device.geometry().blocks);
    drop((region, disk));
    let volume_blocks = match grown {
        None => was,
        Some(growth) if identity.journal_blocks > 0 => return Err(DiskFailure::JournalInside(growth).into()),
        Some(_) => {
            let flush::Open { region, identity, cached, .. } = flush::open(&wish.pmem, wish.place.named())?;
            cached.drain(&wish.pmem, flush::teller(json))?;
            drop(cached);
            let region_bytes = region.len();
            lay_out(&wish.pmem, &region, &NewLayout { disk: identity.disk, disk_blocks, region_bytes })?;
            disk_blocks
        }
    };
    let (was_bytes, volume_bytes) = (was * size_block, volume_blocks * size_block);
    answer::give(&Grown { file: wish.pmem.clone(), was_bytes, volume_bytes }, json)?;
    Ok(Exit::Done)
}
