//! `tidegate check` of a cache of a disk.

use crate::errors::{Exit, Failure};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_disk_cache::{CheckReport, Finding, check};
use tidegate_host::columns::line;
use tidegate_host::units::Human;
use tidegate_server::failure::VolumeFailure;
use tidegate_volume_region::VolumeRegion;

/// What `check` answers.
#[derive(Serialize)]
struct CacheCheck {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    sound: bool,
    /// Whether it can be served and flushed all the same.
    opens: bool,
    blocks: Uses,
    dirty_bytes: u64,
    findings: Vec<BrokenRule>,
}

/// What the region's blocks are used for.
#[derive(Serialize)]
struct Uses {
    dirty: u32,
    clean: u32,
    free: u32,
    in_ring: u32,
}

/// A broken rule.
#[derive(Serialize)]
struct BrokenRule {
    rule: String,
    offset: u64,
    found: String,
}

impl From<Finding> for BrokenRule {
    fn from(finding: Finding) -> BrokenRule {
        match finding {
            Finding::Broken(corrupt) => {
                BrokenRule { rule: corrupt.rule.to_owned(), offset: corrupt.at, found: corrupt.found }
            }
            Finding::Unreadable(poison) => BrokenRule {
                rule: "the medium gives back what was stored".to_owned(),
                offset: poison.at,
                found: poison.to_string(),
            },
            Finding::Lost(lost) => BrokenRule {
                rule: "the medium gives every entry back".to_owned(),
                offset: lost.at,
                found: lost.to_string(),
            },
        }
    }
}

impl fmt::Display for CacheCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Uses { dirty, clean, free, in_ring: interrupted } = self.blocks;
        line(f, "volume", self.file.display())?;
        line(f, "blocks", format_args!("{dirty} dirty ({}), {clean} clean, {free} free", Human(self.dirty_bytes)))?;
        if interrupted > 0 {
            let note = format_args!("{interrupted} blocks of transactions, found by the next serve in any case");
            line(f, "ring", note)?;
        }
        for BrokenRule { rule, offset, found } in &self.findings {
            line(f, "broken", format_args!("at {offset:#x}: {rule} (found {found})"))?;
        }
        let result = match self.findings.len() {
            0 => "sound: every rule is kept".to_owned(),
            _ if self.opens => "damaged: it opens, without what cannot be read; flush it, or salvage it".to_owned(),
            broken => format!("damaged: {broken} broken rules; keep a copy of the file"),
        };
        write!(f, "{:<10} {result}", "result")
    }
}

/// Checks the cache in `region`, and answers.
pub(crate) fn run(path: &Path, region: &VolumeRegion, json: bool) -> Result<Exit, Failure> {
    let broken = |none: tidegate_disk_cache::NoCache| VolumeFailure::BrokenCache {
        path: path.to_owned(),
        why: none.to_string(),
    };
    let report = check(region).map_err(broken)?;
    let opens = report.opens();
    let CheckReport { identity, dirty, clean, free, unretired, findings } = report;
    let answer = CacheCheck {
        file: path.to_owned(),
        sound: findings.is_empty(),
        opens,
        blocks: Uses { dirty, clean, free, in_ring: unretired },
        dirty_bytes: u64::from(dirty) * u64::from(identity.block_size),
        findings: findings.into_iter().map(BrokenRule::from).collect(),
    };
    output::end_with(&answer, json, if answer.sound { Exit::Done } else { Exit::Refused })
}
