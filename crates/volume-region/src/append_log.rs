//! What users are told of an append-only log: the answer of `info` and `check`.

use crate::description::Memory;
use crate::guarantees::{self, Columns, Promise, Stack};
use crate::{VolumeFailure, VolumeRegion};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_append_log::{LogOpenError, identify, survey};
use tidegate_host::columns::line;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_layout::append_log::LogFacts;
use tidegate_media::{Domain, Error};
use uuid::Uuid;

/// A log, the memory of its window, and what is promised there.
#[derive(Clone, Debug, Serialize)]
pub struct LogDescription {
    /// The region file.
    #[serde(with = "tidegate_host::json_path")]
    pub file: PathBuf,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// The format, for scripts.
    pub format: &'static str,
    /// The log's identity.
    pub uuid: Uuid,
    /// Whether a process has it open. Its end changes then, and is not told.
    pub in_use: bool,
    /// The first byte that was not dropped.
    pub begin: u64,
    /// The contents of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<LogContents>,
    /// Bytes in a chunk.
    pub chunk_bytes: u64,
    /// Chunks in the window.
    pub chunks: u32,
    /// Bytes that the file or disk below has room for.
    pub capacity_bytes: u64,
    /// Which troubles the memory survives.
    pub domain: String,
    /// What survives what.
    pub contract: Vec<Promise>,
    #[serde(skip)]
    in_domain: Domain,
}

/// The bytes of a log that no process has open.
#[derive(Clone, Debug, Serialize)]
pub struct LogContents {
    /// Where the durable bytes end.
    pub end: u64,
    /// The durable bytes that only the window has.
    pub bytes_in_window: u64,
    /// Which bytes are damaged, and how.
    pub damage: Vec<String>,
}

impl LogDescription {
    /// What is known of the log in `region`, the file `path`; `None` if that holds no log. Every
    /// byte that only the window has is compared with its checksum.
    pub fn of(path: &Path, region: &VolumeRegion) -> Result<Option<LogDescription>, VolumeFailure> {
        if LogDescription::of_open(path, region)?.is_none() {
            return Ok(None);
        }
        let found = survey(region).map_err(|error| broken(path, error))?;
        let bytes_in_window = found.end.saturating_sub(found.below.max(found.facts.begin));
        let damage = found.damage.iter().map(ToString::to_string).collect();
        let contents = LogContents { end: found.end, bytes_in_window, damage };
        Ok(Some(LogDescription::new(path, Memory::of(region), found.facts, Some(contents))))
    }

    /// What is known of the log in `region` while another process may append to it.
    pub fn of_open(path: &Path, region: &VolumeRegion) -> Result<Option<LogDescription>, VolumeFailure> {
        let facts = identify(region).map_err(|error| broken(path, error))?;
        Ok(facts.map(|facts| LogDescription::new(path, Memory::of(region), facts, None)))
    }

    fn new(path: &Path, memory: Memory, facts: LogFacts, contents: Option<LogContents>) -> LogDescription {
        let plan = facts.plan;
        LogDescription {
            file: path.to_owned(),
            region_bytes: memory.bytes,
            format: "append-only-log",
            uuid: Uuid::from_bytes(facts.uuid),
            in_use: contents.is_none(),
            begin: facts.begin,
            contents,
            chunk_bytes: plan.chunk_bytes,
            chunks: plan.chunks,
            capacity_bytes: plan.below_chunks.saturating_mul(plan.chunk_bytes),
            domain: memory.domain.to_string(),
            contract: guarantees::promises(memory.domain, Stack::BeforeLog),
            in_domain: memory.domain,
        }
    }

    /// Whether no damage was found.
    pub fn is_sound(&self) -> bool {
        self.contents.as_ref().is_none_or(|contents| contents.damage.is_empty())
    }
}

fn broken(path: &Path, error: LogOpenError) -> VolumeFailure {
    match error {
        LogOpenError::Medium(Error::Media(poison)) => VolumeFailure::of_poison(path, poison),
        error => VolumeFailure::BrokenLog { path: path.to_owned(), why: error.to_string() },
    }
}

impl fmt::Display for LogDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "log", self.file.display())?;
        line(f, "format", format_args!("append-only log 1, uuid {}", self.uuid))?;
        let window = Human(u64::from(self.chunks) * self.chunk_bytes);
        let (chunks, chunk) = (self.chunks, Human(self.chunk_bytes));
        line(f, "window", format_args!("{window} in {chunks} chunks of {chunk}"))?;
        line(f, "below", format_args!("room for {}", Human(self.capacity_bytes)))?;
        match &self.contents {
            None => line(f, "bytes", format_args!("from {} on; a process has the log open", self.begin))?,
            Some(LogContents { end, bytes_in_window, .. }) => {
                let only = format_args!("{} of them only in the window", Human(*bytes_in_window));
                line(f, "bytes", format_args!("from {} to {end}, {only}", self.begin))?;
            }
        }
        let damage = self.contents.iter().flat_map(|contents| &contents.damage);
        damage.clone().try_for_each(|damage| line(f, "damage", damage))?;
        line(f, "domain", format_args!("{}: {}", self.domain, self.in_domain.meaning()))?;
        write!(f, "{}", Columns { promises: &self.contract, stack: Stack::BeforeLog })?;
        write!(f, "{:<10} ", "result")?;
        match (&self.contents, self.is_sound()) {
            (None, _) => write!(f, "not checked: a process has the log open"),
            (Some(_), true) => write!(f, "sound: all bytes of the window have their checksums"),
            (Some(_), false) => write!(
                f,
                "damaged: keep a copy of {}; `tidegate_log_open_damaged` gives the other bytes",
                word(&self.file)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidegate_append_log::{AppendLog, Making, OnDamage, create};
    use tidegate_media::{BlockDevice, MappedRegion, Region};
    use tidegate_mirror::MaybeMirrored;
    use tidegate_sim::Disk;

    const CHUNK: u64 = 1 << 16;

    /// A region with a log of 100,000 synced bytes, of which the first chunk is below.
    fn logged() -> VolumeRegion {
        let region = Arc::new(MappedRegion::anonymous(1 << 20).unwrap());
        let below: Arc<dyn BlockDevice> = Arc::new(Disk::new(1024, 4096));
        create(&region, &below, &Making { chunk_bytes: CHUNK, uuid: [1; 16], below: [0; 32] }).unwrap();
        let log = AppendLog::open(Arc::clone(&region), below, OnDamage::Refuse).unwrap();
        log.append(&vec![7; 100_000]).unwrap();
        log.sync().unwrap();
        log.write_back_step().unwrap();
        drop(log);
        MaybeMirrored::Plain(Arc::into_inner(region).unwrap())
    }

    #[test]
    fn the_bytes_of_a_log_are_told_and_compared() {
        let path = Path::new("/mnt/pmem/log");
        let region = logged();
        let sound = LogDescription::of(path, &region).unwrap().unwrap();
        let told = sound.to_string();
        assert!(sound.is_sound() && told.contains("from 0 to 100000, 33.6 KiB of them only in the window"), "{told}");
        assert!(told.ends_with("sound: all bytes of the window have their checksums"), "{told}");
        let open = LogDescription::of_open(path, &region).unwrap().unwrap().to_string();
        assert!(open.contains("from 0 on; a process has the log open") && !open.contains("sound"), "{open}");
        // A byte of the second chunk, which only the window has.
        let facts = identify(&region).unwrap().unwrap();
        region.write(facts.plan.byte_at(CHUNK + 5), &[8]);
        let damaged = LogDescription::of(path, &region).unwrap().unwrap();
        let told = damaged.to_string();
        assert!(
            !damaged.is_sound() && told.contains("damage     bytes 65536..100000 of the log are damaged"),
            "{told}"
        );
    }

    #[test]
    fn other_regions_hold_no_log_and_broken_superblocks_are_named() {
        let path = Path::new("/mnt/pmem/log");
        let blank = MaybeMirrored::Plain(MappedRegion::anonymous(1 << 20).unwrap());
        assert!(LogDescription::of(path, &blank).unwrap().is_none());
        let region = logged();
        for at in tidegate_layout::append_log::LOG_SUPERBLOCKS_AT {
            region.write(at + 96, &[1]);
        }
        let error = LogDescription::of(path, &region).unwrap_err();
        assert!(matches!(&error, VolumeFailure::BrokenLog { why, .. } if why.contains("superblock")), "{error:?}");
    }
}
