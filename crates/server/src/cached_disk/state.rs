//! How a disk and the cache in front of it are at one time, as a server tells it.

use crate::cached_disk::disk::Disk;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use tidegate_disk_cache::Mode;
use tidegate_host::columns::line;
use tidegate_host::units::Human;

/// How a cache is at one time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DiskState {
    /// Where the disk is.
    #[serde(with = "tidegate_host::json_path")]
    pub disk: PathBuf,
    /// How requests reach it.
    pub way: String,
    /// Whether a cache is in front of it. Without one the rest says nothing of now.
    pub attached: bool,
    /// What is done with reads and writes.
    pub mode: String,
    /// Which clean block goes when room is needed.
    pub replacement: String,
    /// Which blocks that are read come in.
    pub admit: String,
    /// Bytes of the longest run of reads that comes in; 0: any does.
    pub sequential_bytes: u64,
    /// Whether a restart forgets blocks that came in because they were read.
    pub forgets_reads: bool,
    /// Blocks read since the volume was opened that did not come in: in long runs, and those turned
    /// away.
    pub past: NotAdmitted,
    /// Bytes that only the cache has.
    pub dirty_bytes: u64,
    /// Bytes that the disk has too.
    pub clean_bytes: u64,
    /// Bytes that the cache can hold.
    pub cache_bytes: u64,
    /// Blocks read since the volume was opened, from the cache and in all.
    pub reads: Hits,
    /// Blocks written since then, in the place of a cached one and in all.
    pub writes: Hits,
    /// Whether there is a checksum of each block.
    pub checksums: bool,
    /// What a power loss takes of completed writes, if it takes flushed ones.
    #[serde(default)]
    pub risk: Option<String>,
    /// What keeps blocks from the disk, if anything does.
    pub trouble: Option<String>,
}

/// Blocks that were read and not admitted to the cache.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct NotAdmitted {
    /// They were in a long run.
    pub in_runs: u64,
    /// The admission policy did not let them in.
    pub turned_away: u64,
}

/// Blocks asked for.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Hits {
    /// Those that were cached.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
}

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hits { hits, misses } = *self;
        match hits + misses {
            0 => f.write_str("none yet"),
            all => write!(f, "{:.1} % of {all}", hits as f64 * 100.0 / all as f64),
        }
    }
}

impl fmt::Display for DiskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "disk", format_args!("{}, {}", self.disk.display(), self.way))?;
        if !self.attached {
            line(f, "cached", "nothing: the cache was detached, requests go to the disk")?;
            return self.trouble.iter().try_for_each(|trouble| line(f, "trouble", trouble));
        }
        line(f, "mode", format_args!("{}, replacement {}", self.mode, self.replacement))?;
        self.risk.iter().try_for_each(|risk| line(f, "at risk", risk))?;
        let runs = match self.sequential_bytes {
            0 => "no run too long".to_owned(),
            bytes => format!("runs over {} go past", Human(bytes)),
        };
        let kept = if self.forgets_reads { ", until a restart" } else { "" };
        let NotAdmitted { in_runs, turned_away } = self.past;
        line(
            f,
            "takes in",
            format_args!("{}{kept}, {runs}; past: {in_runs} in runs, {turned_away} turned away", self.admit),
        )?;
        let (dirty, clean, all) = (Human(self.dirty_bytes), Human(self.clean_bytes), Human(self.cache_bytes));
        line(f, "cached", format_args!("{dirty} dirty, {clean} clean, of {all}"))?;
        line(f, "hits", format_args!("reads {}, writes {}", self.reads, self.writes))?;
        self.trouble.iter().try_for_each(|trouble| line(f, "trouble", trouble))
    }
}

impl Hits {
    fn and(self, other: Hits) -> Hits {
        Hits { hits: self.hits + other.hits, misses: self.misses + other.misses }
    }
}

/// Hits, misses and blocks not admitted, of one cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct HitCounts {
    reads: Hits,
    writes: Hits,
    past: NotAdmitted,
}

impl DiskState {
    /// Hits and misses so far, and what was not admitted.
    pub fn hit_counts(&self) -> HitCounts {
        HitCounts { reads: self.reads, writes: self.writes, past: self.past }
    }

    /// This state, with the `earlier` counts added.
    pub fn after(self, earlier: &HitCounts) -> DiskState {
        let NotAdmitted { in_runs, turned_away } = self.past;
        DiskState {
            reads: self.reads.and(earlier.reads),
            writes: self.writes.and(earlier.writes),
            past: NotAdmitted {
                in_runs: in_runs + earlier.past.in_runs,
                turned_away: turned_away + earlier.past.turned_away,
            },
            ..self
        }
    }

    /// `disk` alone, and why it is not written to, if so.
    pub fn without_cache(disk: &Disk, trouble: Option<String>) -> DiskState {
        DiskState {
            disk: disk.path.clone(),
            way: disk.device.way().to_string(),
            attached: false,
            mode: Mode::PassThrough.to_string(),
            replacement: String::new(),
            admit: String::new(),
            sequential_bytes: 0,
            forgets_reads: false,
            past: NotAdmitted::default(),
            dirty_bytes: 0,
            clean_bytes: 0,
            cache_bytes: 0,
            reads: Hits::default(),
            writes: Hits::default(),
            checksums: false,
            risk: None,
            trouble,
        }
    }
}
