//! `tidegate scrub`: every block that a cache of a disk holds is read, and compared with its
//! checksum if the cache keeps them. A running server does it, a few blocks at a time beside its
//! clients; without one this command does it, and changes nothing.

use crate::answer;
use crate::control::{self, DiskAct, DiskAnswer};
use crate::failure::{Exit, Failure, VolumeFailure};
use crate::flush;
use crate::grammar::Scrub;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_disk_cache::{Checksums, DiskCache, Guard, Journaling, NoDisk, Options, Scrubbed};
use tidegate_host::default_paths;
use tidegate_media::{Access, Region};

/// Entries that are looked at in one step.
pub(crate) const STEP_ENTRIES: u32 = 4096;

/// Damaged blocks that an answer names.
const NAMED_MAX: usize = 64;

/// What a step found, as a server tells it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    /// Blocks that are as they were stored, or at least can be read.
    pub(crate) sound: u64,
    /// Blocks that are not.
    pub(crate) damaged: u64,
    /// The first few of these, and why.
    pub(crate) named: Vec<String>,
}

impl Found {
    /// In `step`.
    pub(crate) fn of(step: &Scrubbed) -> Found {
        let named = step.damaged.iter().map(|(lba, why)| format!("{lba}: {why}"));
        let lost =
            (step.lost > 0).then(|| format!("{} entries that cannot be read: as many blocks may be lost", step.lost));
        let damaged = step.damaged.len() as u64 + step.lost;
        Found { sound: step.sound, damaged, named: named.chain(lost).take(NAMED_MAX).collect() }
    }

    fn add(&mut self, more: Found) {
        self.sound += more.sound;
        self.damaged += more.damaged;
        let room = NAMED_MAX.saturating_sub(self.named.len());
        self.named.extend(more.named.into_iter().take(room));
    }
}

/// What `scrub` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    /// Whether a server did it.
    served: bool,
    /// Whether the cache keeps checksums.
    checksums: bool,
    #[serde(flatten)]
    found: Found,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { sound, damaged, named } = &self.found;
        answer::line(f, "volume", self.file.display())?;
        let by = if self.checksums { "fit their checksums" } else { "can be read; the cache keeps no checksums" };
        answer::line(f, "sound", format_args!("{sound} blocks {by}"))?;
        named.iter().try_for_each(|block| answer::line(f, "damaged", block))?;
        match *damaged {
            0 => write!(f, "{:<10} nothing is damaged", "result"),
            _ => write!(f, "{:<10} {damaged} blocks are damaged; what the disk has too is read from there", "result"),
        }
    }
}

/// Runs `tidegate scrub`.
pub(crate) fn run(wish: &Scrub, json: bool) -> Result<Exit, Failure> {
    let file = wish.pmem.clone();
    let socket = wish.control.clone().unwrap_or_else(|| default_paths::control_socket(&file));
    let answer = match served(&socket, &file) {
        Err(failure) if wish.control.is_none() && failure.is_no_server() => offline(&file)?,
        other => other?,
    };
    answer::end_with(&answer, json, if answer.found.damaged == 0 { Exit::Done } else { Exit::Refused })
}

/// By the server, step by step.
fn served(socket: &Path, pmem: &Path) -> Result<Answer, Failure> {
    let mut found = Found::default();
    let (mut next, mut checksums) = (Some(0), false);
    while let Some(from) = next {
        let (answer, state) = control::ask_disk(socket, pmem, DiskAct::Scrub { from })?;
        let DiskAnswer::Scrubbed { found: more, next: after } = answer else { break };
        found.add(more);
        (next, checksums) = (after, state.checksums);
    }
    Ok(Answer { file: pmem.to_owned(), served: true, checksums, found })
}

/// By this process, over a copy in memory of what recovery would change.
fn offline(pmem: &Path) -> Result<Answer, Failure> {
    let (region, identity) = flush::cache_in(pmem, Access::Private)?;
    let no_disk = Arc::new(NoDisk::new(identity.disk_blocks, identity.block_size));
    // A disk that is not there has no journal either.
    let options = Options { journaling: Journaling::Ignored, guard: Guard::Off, ..Options::default() };
    let cache = DiskCache::open(region, no_disk, options);
    let cache = cache.map_err(|error| VolumeFailure::of_open_cache(pmem, error))?;
    Ok(Answer {
        file: pmem.to_owned(),
        served: false,
        checksums: identity.sums == Checksums::Kept,
        found: all_of(&cache),
    })
}

fn all_of<R: Region>(cache: &DiskCache<R>) -> Found {
    let mut found = Found::default();
    let mut next = Some(0);
    while let Some(from) = next {
        let step = cache.scrub_step(from, STEP_ENTRIES);
        found.add(Found::of(&step));
        next = step.next;
    }
    found
}
