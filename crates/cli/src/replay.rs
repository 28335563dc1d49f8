//! `tidegate replay`: an ordered disk without its region. What its journal holds is put in place; then it is what all writes up to a moment left.

use crate::answer;
use crate::disks;
use crate::failure::{Exit, Failure, JournalFailure};
use crate::grammar::Replay;
use crate::size::Human;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_disk_cache::{FoundJournal, recover_disk};
use tidegate_media::DiskAccess;
use uuid::Uuid;

/// Bytes in a block of the disk as it is read here: any block of a cache has as many or more.
const BLOCK_BYTES: u32 = 512;

/// What `replay` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "crate::json_path")]
    disk: PathBuf,
    /// Blocks that were put in place.
    blocks: u32,
    /// The identity of the cache that was in front of the disk.
    uuid: Uuid,
    /// Bytes of the volume: the journal lies behind it.
    volume_bytes: u64,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, blocks) = (self.disk.display(), self.blocks);
        match blocks {
            0 => answer::line(f, "replayed", format_args!("{disk}: nothing was under way"))?,
            _ => answer::line(f, "replayed", format_args!("{disk}: {blocks} blocks put in place"))?,
        }
        answer::line(
            f,
            "cache",
            format_args!("uuid {}, without which the disk is what all writes up to a moment left", self.uuid),
        )?;
        write!(f, "volume     the first {} ({} bytes) of the disk", Human(self.volume_bytes), self.volume_bytes)
    }
}

/// Runs `tidegate replay`.
pub(crate) fn run(wish: &Replay, json: bool) -> Result<Exit, Failure> {
    let path = &wish.disk;
    if !wish.force {
        return Err(JournalFailure::RegionNotLost { disk: path.clone() }.into());
    }
    let disk = disks::open(path, DiskAccess::ReadWrite, BLOCK_BYTES)?;
    let recovered = recover_disk(&*disk.device);
    let recovered = recovered.map_err(JournalFailure::of_error(path))?;
    let Some(FoundJournal { uuid, block_size, disk_blocks, blocks }) = recovered else {
        return Err(JournalFailure::Absent { disk: path.clone() }.into());
    };
    let volume_bytes = disk_blocks * u64::from(block_size);
    answer::give(&Answer { disk: path.clone(), blocks, uuid: Uuid::from_bytes(uuid), volume_bytes }, json)?;
    Ok(Exit::Done)
}
