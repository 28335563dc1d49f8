//! Damage of a volume that is used all the same, as `serve` warns of it and `info` shows it.

use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_btt::{ERROR_FLAG_RULE, Survey};
use tidegate_host::shell::word;

/// What a survey found.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// Whether writes are refused, because they could destroy data.
    read_only: bool,
    /// How many rules of the format are broken.
    broken: u64,
    /// The broken rule that says most, and where.
    first: String,
    #[serde(skip)]
    flagged: bool,
    #[serde(skip)]
    file: PathBuf,
}

impl Damage {
    /// The damage that `survey` found in the volume at `file`, if any.
    pub fn of(file: &Path, survey: &Survey) -> Option<Damage> {
        let first = survey.unwritable.as_ref().or(survey.findings.first())?;
        Some(Damage {
            read_only: survey.unwritable.is_some(),
            broken: survey.broken,
            first: first.to_string(),
            flagged: first.rule == ERROR_FLAG_RULE,
            file: file.to_owned(),
        })
    }

    /// An info block of the volume at `file` is damaged, as `first` says, and the other one is
    /// used.
    pub fn of_info_block(file: &Path, first: String) -> Damage {
        Damage { read_only: false, broken: 1, first, flagged: false, file: file.to_owned() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if let more @ 1.. = self.broken.saturating_sub(1) {
            write!(f, "; and {more} more broken rules")?;
        }
        let file = word(&self.file);
        match (self.read_only, self.flagged) {
            (true, false) => write!(
                f,
                "; a write could destroy other blocks, so the volume is read-only; what a repair would lose: tidegate check --pmem {file}"
            ),
            (true, true) => write!(
                f,
                "; whatever wrote the volume found the arena damaged, so the volume is read-only; to check the arena and clear the flag: \
                 tidegate check --repair --pmem {file}"
            ),
            (false, _) => {
                write!(f, "; the volume is used all the same; to repair it: tidegate check --repair --pmem {file}")
            }
        }
    }
}
