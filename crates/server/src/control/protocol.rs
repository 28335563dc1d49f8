//! The protocol of control sockets: one line of JSON each way, or more.
//!
//! A client asks in one line, a `ControlRequest`, and gets one line and the end. A client that
//! sends no line gets a snapshot of all counters after a moment. A [`CacheChange`] is answered by
//! more lines: each but the last says how far it is, and the server makes the change only if the
//! client still listens.

use crate::cached_disk::online::FlushTicket;
use crate::cached_disk::online_change::CacheChange;
use crate::cached_disk::resize::Resizing;
use crate::cached_disk::state::DiskState;
use crate::failure::{Obstacle, Refused};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tidegate_disk_cache::Scrubbed;

/// What is asked of a server.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlRequest {
    /// What it does: the answer is a `Snapshot`.
    Snapshot,
    /// To tell of its end: the answers are a `Snapshot` now, and `EndReport` when it has ended.
    End,
    /// Something about the disk of one volume: the answer is a `DiskReply`.
    Disk {
        /// The volume's region.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
        /// What.
        act: DiskAct,
    },
    /// To change the cache of a disk, or to part from it, as long as whoever asked listens: the
    /// answers are `DiskReply`s.
    Change {
        /// The volume's region.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
        /// How.
        change: CacheChange,
    },
}

/// What is asked about a disk.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskAct {
    /// To begin to write everything to it.
    Flush,
    /// Whether that has ended.
    Flushed {
        /// Which flush.
        ticket: FlushTicket,
    },
    /// To put the region in front of the disk again.
    Attach {
        /// Where the disk is.
        #[serde(with = "tidegate_host::json_path")]
        disk: PathBuf,
        /// Whether completed writes may then lie only in memory that a power loss empties.
        #[serde(default)]
        accept_volatile: bool,
        /// Whether a journal may go over what lies at its end.
        #[serde(default)]
        force: bool,
    },
    /// To read what some entries name.
    Scrub {
        /// The first of them.
        from: u32,
    },
    /// To treat requests otherwise from now on.
    SetMode {
        /// How.
        mode: String,
        /// Whether completed writes may then lie only in memory that a power loss empties.
        #[serde(default)]
        accept_volatile: bool,
    },
}

/// What is answered.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskAnswer {
    /// A flush has begun.
    Flushing {
        /// What to ask for it by.
        ticket: FlushTicket,
    },
    /// The flush, or what a change begins with, is under way.
    UnderWay,
    /// The flush has ended.
    Flushed {
        /// What it had to leave, if anything.
        trouble: Option<Obstacle>,
    },
    /// Some entries were looked at.
    Scrubbed {
        /// What they name.
        found: ScrubFindings,
        /// The entry to go on with, if there are more.
        next: Option<u32>,
    },
    /// It was done.
    Done,
    /// A region has the size that was asked for.
    Resized {
        /// What became of it and its cache.
        changed: Resizing,
    },
}

/// An answer, and how the cache is now; or why there is none.
pub(crate) type DiskReply = Result<(DiskAnswer, DiskState), Refused>;

/// Damaged blocks that an answer names.
const NAMED_MAX: usize = 64;

/// What a step found, as a server tells it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ScrubFindings {
    /// Blocks that are as they were stored, or at least can be read.
    pub sound: u64,
    /// Blocks that are not.
    pub damaged: u64,
    /// The first few of these, and why.
    pub named: Vec<String>,
}

impl ScrubFindings {
    /// What `step` found.
    pub fn of(step: &Scrubbed) -> ScrubFindings {
        let named = step.damaged.iter().map(|(lba, why)| format!("{lba}: {why}"));
        let lost =
            (step.lost > 0).then(|| format!("{} entries that cannot be read: as many blocks may be lost", step.lost));
        let damaged = step.damaged.len() as u64 + step.lost;
        ScrubFindings { sound: step.sound, damaged, named: named.chain(lost).take(NAMED_MAX).collect() }
    }

    /// Adds what another step found.
    pub fn add(&mut self, more: ScrubFindings) {
        self.sound += more.sound;
        self.damaged += more.damaged;
        let room = NAMED_MAX.saturating_sub(self.named.len());
        self.named.extend(more.named.into_iter().take(room));
    }
}
