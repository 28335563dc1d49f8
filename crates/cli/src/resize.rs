//! `tidegate resize`: a region in front of a disk becomes larger or smaller, while it is served or not. If its cache gets room for more blocks or
//! fewer, what it held goes, once the disk has it: the cache begins empty. Otherwise the cache keeps what it holds.

use crate::answer;
use crate::change::Change;
use crate::control::DiskAnswer;
use crate::create_cache::check_size;
use crate::detach::by_server;
use crate::disks::refuse_detached;
use crate::failure::{Exit, Failure};
use crate::flush::{self, Teller};
use crate::grammar::Resize;
use crate::live_disk::{Resizing, lay_out, lengthened, resized, resized_file, resizing};
use crate::places;
use crate::size::Human;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_disk_cache::Relayout;
use tidegate_media::Access;

/// What `resize` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "crate::json_path")]
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
    check_size(wish.size)?;
    let (pmem, bytes) = (wish.pmem.clone(), wish.size);
    let socket = wish.control.clone().unwrap_or_else(|| places::control_socket(&pmem));
    let (served, changed) = match by_server(&socket, &pmem, Change::Resize { bytes }, flush::teller(json)) {
        Ok(DiskAnswer::Resized { changed }) => (true, changed),
        Ok(_) => (true, Resizing::Cache),
        Err(failure) if wish.control.is_none() && failure.is_no_server() => (false, resize(wish, flush::teller(json))?),
        Err(failure) => return Err(failure),
    };
    answer::give(&Answer { file: pmem, served, region_bytes: bytes, changed }, json)?;
    Ok(Exit::Done)
}

/// Without a server.
fn resize(wish: &Resize, tell: Teller) -> Result<Resizing, Failure> {
    let (region, identity) = flush::cache_in(&wish.pmem, Access::ReadWrite)?;
    refuse_detached(&wish.pmem, &identity)?;
    let wish_for = Relayout { disk: identity.disk, disk_blocks: identity.disk_blocks, region_bytes: wish.size };
    match resizing(&wish.pmem, &region, &wish_for)? {
        Resizing::Nothing => return Ok(Resizing::Nothing),
        Resizing::File => {
            resized_file(&wish.pmem, &region, wish.size)?;
            return Ok(Resizing::File);
        }
        Resizing::Cache => drop(region),
    }
    let flush::Open { region, cached, .. } = flush::open(&wish.pmem, wish.place.named())?;
    cached.drain(&wish.pmem, tell)?;
    drop(cached);
    lengthened(&wish.pmem, &region, wish.size)?;
    resized(&wish.pmem, region, wish.size, |region, region_bytes| {
        lay_out(&wish.pmem, region, &Relayout { region_bytes, ..wish_for })
    })?;
    Ok(Resizing::Cache)
}
