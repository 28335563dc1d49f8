//! `tidegate check` of the pool of a mount.

use crate::errors::{Exit, Failure};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_file_service::{self as file_service, PoolChecked, PoolReport};
use tidegate_host::columns::line;
use tidegate_host::shell::word;
use tidegate_host::units::Human;

/// So many findings are shown to people, and the others counted; `--json` has all of them.
const FINDINGS_SHOWN_MAX: usize = 8;

/// What `check` answers.
#[derive(Serialize)]
struct PoolFindings {
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
    /// SOURCE, if files there may lack what the pool has.
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    source: Option<PathBuf>,
    sound: bool,
    lanes: u32,
    files: u64,
    entries: u64,
    entry_bytes: u64,
    /// Bytes that the files have too.
    clean_bytes: u64,
    /// Commits and operations on names that the next mount or recovery carries out.
    pending: Pending,
    findings: Vec<Violation>,
}

/// What the logs hold.
#[derive(Serialize)]
struct Pending {
    elements: u64,
    names: u64,
}

/// A broken rule.
#[derive(Serialize)]
struct Violation {
    rule: &'static str,
    offset: u64,
    found: String,
}

impl PoolFindings {
    fn new(pool: &Path, checked: PoolChecked) -> PoolFindings {
        let PoolChecked { source, report } = checked;
        let PoolReport { lanes, files, entries, bytes, clean_bytes, elements, names, findings } = report;
        PoolFindings {
            pool: pool.to_owned(),
            source,
            sound: findings.is_empty(),
            lanes,
            files,
            entries,
            entry_bytes: bytes,
            clean_bytes,
            pending: Pending { elements, names },
            findings: findings
                .into_iter()
                .map(|broken| Violation { rule: broken.rule, offset: broken.at, found: broken.found })
                .collect(),
        }
    }
}

impl fmt::Display for PoolFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = self.pool.display();
        match &self.source {
            Some(source) => line(f, "pool", format_args!("{pool}, of a mount of {}", source.display()))?,
            None => line(f, "pool", format_args!("{pool}, of a mount; it belongs to no SOURCE now"))?,
        }
        line(f, "files", format_args!("{} in {} lanes", self.files, self.lanes))?;
        let (bytes, clean) = (Human(self.entry_bytes), Human(self.clean_bytes));
        line(f, "entries", format_args!("{} ({bytes}); the files have {clean} of the pool too", self.entries))?;
        let Pending { elements, names } = self.pending;
        line(f, "pending", format_args!("{elements} elements of commits, {names} operations on names"))?;
        for Violation { rule, offset, found } in self.findings.iter().take(FINDINGS_SHOWN_MAX) {
            line(f, "broken", format_args!("at {offset:#x}: {rule} (found {found})"))?;
        }
        if let others @ 1.. = self.findings.len().saturating_sub(FINDINGS_SHOWN_MAX) {
            line(f, "broken", format_args!("at {others} more places (--json lists them)"))?;
        }
        let result = match (self.findings.len(), &self.source) {
            (0, None) => "sound: every rule is kept".to_owned(),
            (0, Some(_)) => {
                format!("sound: every rule is kept; mount SOURCE again, or tidegate recover {}", word(&self.pool))
            }
            (broken, _) => format!("damaged: {broken} broken rules; keep a copy of the pool and of its record"),
        };
        write!(f, "{:<10} {result}", "result")
    }
}

/// Checks the pool, and answers.
pub(crate) fn run(pool: &Path, json: bool) -> Result<Exit, Failure> {
    let answer = PoolFindings::new(pool, file_service::check_pool(pool)?);
    output::end_with(&answer, json, if answer.sound { Exit::Done } else { Exit::Refused })
}
