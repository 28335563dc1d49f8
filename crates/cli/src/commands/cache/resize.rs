//! `tidegate resize`: a region in front of a disk becomes larger or smaller, while it is served or
//! not. If its cache gets room for more blocks or fewer, what it held goes, once the disk has it:
//! the cache begins empty. Otherwise the cache keeps what it holds. Or the volume becomes as large
//! as its disk, which has grown, while no server runs: clients learn a volume's size when they
//! connect.

use crate::commands::cache::detach::by_server;
use crate::errors::{Exit, Failure};
use crate::grammar::Resize;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_btt::{Identity, identify};
use tidegate_host::default_paths;
use tidegate_host::units::{Exact, Human};
use tidegate_media::Access;
use tidegate_server::cached_disk::create::check_size;
use tidegate_server::cached_disk::offline;
use tidegate_server::cached_disk::online_change::CacheChange;
use tidegate_server::cached_disk::resize::Resizing;
use tidegate_server::control::protocol::DiskAnswer;
use tidegate_server::failure::DiskFailure;
use tidegate_volume_region::region;
use tidegate_volume_region::region::RegionContents;

/// What `resize` answers.
#[derive(Serialize)]
struct ResizeReport {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    /// Whether a server did it.
    served: bool,
    region_bytes: u64,
    /// What became of the region and its cache.
    changed: Resizing,
}

impl fmt::Display for ResizeReport {
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
pub(crate) fn run(args: &Resize, json: bool) -> Result<Exit, Failure> {
    refuse_plain(&args.pmem)?;
    args.size.map(check_size).transpose()?;
    let Some(bytes) = args.size else { return grow(args, json) };
    let pmem = args.pmem.clone();
    let socket = args.control.clone().unwrap_or_else(|| default_paths::control_socket(&pmem));
    let (served, changed) = match by_server(&socket, &pmem, CacheChange::Resize { bytes }, output::teller(json)) {
        Ok(DiskAnswer::Resized { changed }) => (true, changed),
        Ok(_) => (true, Resizing::Cache),
        Err(failure) if args.control.is_none() && failure.is_no_server() => {
            (false, offline::resize(&pmem, args.place.location(), bytes, output::teller(json))?)
        }
        Err(failure) => return Err(failure),
    };
    output::give(&ResizeReport { file: pmem, served, region_bytes: bytes, changed }, json)?;
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
    let Ok(region) = region::map(pmem, Access::PrivateUnlocked) else { return Ok(()) };
    match (region::holds(pmem, &region), identify(&region)) {
        (Ok(RegionContents::NoCache), Ok(Identity::Btt(_))) => Err(DiskFailure::Plain { pmem: pmem.to_owned() }),
        _ => Ok(()),
    }
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
fn grow(args: &Resize, json: bool) -> Result<Exit, Failure> {
    let offline::Grown { was_bytes, volume_bytes } =
        offline::grow(&args.pmem, args.place.location(), output::teller(json))?;
    output::give(&Grown { file: args.pmem.clone(), was_bytes, volume_bytes }, json)?;
    Ok(Exit::Done)
}
