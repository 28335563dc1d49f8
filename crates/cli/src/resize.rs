//! `tidegate resize`: a region in front of a disk becomes larger or smaller, while it is served or not. What it held goes, once the disk has it: the cache
//! begins empty.

use crate::answer;
use crate::change::Change;
use crate::create_cache::check_size;
use crate::detach::by_server;
use crate::failure::{Exit, Failure};
use crate::flush::{self, Teller};
use crate::grammar::Resize;
use crate::live_disk::{lay_out, lengthened, resized};
use crate::places;
use crate::size::Human;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_disk_cache::Relayout;

/// What `resize` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "crate::json_path")]
    file: PathBuf,
    /// Whether a server did it.
    served: bool,
    region_bytes: u64,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, size) = (self.file.display(), Human(self.region_bytes));
        write!(f, "resized    {file}: {size}; the disk has everything, and the cache is empty")
    }
}

/// Runs `tidegate resize`.
pub(crate) fn run(wish: &Resize, json: bool) -> Result<Exit, Failure> {
    check_size(wish.size)?;
    let (pmem, bytes) = (wish.pmem.clone(), wish.size);
    let socket = wish.control.clone().unwrap_or_else(|| places::control_socket(&pmem));
    let served = match by_server(&socket, &pmem, Change::Resize { bytes }, flush::teller(json)) {
        Ok(()) => true,
        Err(failure) if wish.control.is_none() && failure.is_no_server() => {
            resize(wish, flush::teller(json))?;
            false
        }
        Err(failure) => return Err(failure),
    };
    answer::give(&Answer { file: pmem, served, region_bytes: bytes }, json)?;
    Ok(Exit::Done)
}

/// Without a server.
fn resize(wish: &Resize, tell: Teller) -> Result<(), Failure> {
    let flush::Open { region, identity, cached, .. } = flush::open(&wish.pmem, wish.place.named())?;
    cached.drain(&wish.pmem, tell)?;
    drop(cached);
    lengthened(&wish.pmem, &region, wish.size)?;
    resized(&wish.pmem, region, wish.size, |region, region_bytes| {
        let wish_for = Relayout { disk: identity.disk, disk_blocks: identity.disk_blocks, region_bytes };
        lay_out(&wish.pmem, region, &wish_for)
    })
}
