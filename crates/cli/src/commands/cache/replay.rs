//! `tidegate replay`: an ordered disk without its region. What its journal holds is put in place;
//! then it is what all writes up to a moment left.

use crate::errors::{Exit, Failure};
use crate::grammar::Replay;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use tidegate_disk_cache::{FoundJournal, find_journal, recover_disk};
use tidegate_host::columns::line;
use tidegate_host::units::Human;
use tidegate_layout::disk_cache::CACHE_BLOCK_BYTES_MIN;
use tidegate_media::{DiskAccess, MapError};
use tidegate_server::cached_disk::contents;
use tidegate_server::cached_disk::disk;
use tidegate_server::failure::{DiskFailure, JournalFailure};
use uuid::Uuid;

/// What `replay` answers.
#[derive(Serialize)]
struct ReplayReport {
    #[serde(with = "tidegate_host::json_path")]
    disk: PathBuf,
    /// Blocks that were put in place.
    blocks: u32,
    /// The identity of the cache that was in front of the disk.
    uuid: Uuid,
    /// Bytes of the volume: the journal lies behind it.
    volume_bytes: u64,
    /// The number of the journal's newest header: it stands for the moment up to which the disk has
    /// every write.
    sequence: u64,
    /// When the disk's file was last written before the replay, in seconds since 1970. A block
    /// device does not tell.
    last_written_s: Option<i64>,
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, blocks) = (self.disk.display(), self.blocks);
        match blocks {
            0 => line(f, "replayed", format_args!("{disk}: nothing was under way"))?,
            _ => line(f, "replayed", format_args!("{disk}: {blocks} blocks put in place"))?,
        }
        let written = self.last_written_s.map_or_else(String::new, |s| format!(", last written at date -d @{s}"));
        line(
            f,
            "moment",
            format_args!(
                "number {} of the journal{written}: every write before it is on the disk, and none after it; what only the region had is lost",
                self.sequence
            ),
        )?;
        line(
            f,
            "cache",
            format_args!("uuid {}, without which the disk is what all writes up to a moment left", self.uuid),
        )?;
        write!(f, "volume     the first {} ({} bytes) of the disk", Human(self.volume_bytes), self.volume_bytes)
    }
}

/// Runs `tidegate replay`.
pub(crate) fn run(args: &Replay, json: bool) -> Result<Exit, Failure> {
    let path = &args.disk;
    if !args.force {
        if !path.try_exists().unwrap_or(true) {
            return Err(DiskFailure::Unusable { error: MapError::NotFound { path: path.clone() } }.into());
        }
        return Err(JournalFailure::RegionNotLost { disk: path.clone() }.into());
    }
    let last_written_s = fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| file.mtime());
    let disk = disk::open(path, DiskAccess::ReadWrite, CACHE_BLOCK_BYTES_MIN)?;
    let found = find_journal(&*disk.device).map_err(JournalFailure::of_error(path))?;
    if let Some(FoundJournal { blocks: blocks @ 1.., .. }) = found {
        contents::tell_of_disk(&disk, &format!("{blocks} blocks of the journal are put in place"));
    }
    let recovered = recover_disk(&*disk.device);
    let recovered = recovered.map_err(JournalFailure::of_error(path))?;
    let Some(FoundJournal { sequence, uuid, block_size, disk_blocks, blocks }) = recovered else {
        return Err(JournalFailure::Absent { disk: path.clone() }.into());
    };
    let volume_bytes = disk_blocks * u64::from(block_size);
    let uuid = Uuid::from_bytes(uuid);
    output::give(&ReplayReport { disk: path.clone(), blocks, uuid, volume_bytes, sequence, last_written_s }, json)?;
    Ok(Exit::Done)
}
