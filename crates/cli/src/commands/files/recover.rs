//! `tidegate recover`: what a run under `tidegate run-log` left in its pool, brought to its files
//! without running anything.

use crate::commands::files::mount_pool;
use crate::errors::{Exit, Failure};
use crate::grammar::Recover;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_file_service::{self as file_service, Unplaced};
use tidegate_host::columns::line;
use tidegate_run_log::{FileSystem, IfUnmounted, LEFT_ALONE, LeftAlone, Recovered, Salvaged, Unmounted, recover_pool};

/// What `recover` answers.
#[derive(Serialize)]
struct RecoveryReport {
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
    /// Whether a run was left that did not end well.
    was_left: bool,
    /// Files that were written.
    #[serde(serialize_with = "tidegate_host::json_path::each")]
    written: Vec<PathBuf>,
    salvaged: Vec<SalvagedFile>,
    removed: Vec<Removed>,
    left: Vec<UntouchedFile>,
    unmounted: Vec<Waiting>,
    /// Whether the pool could not be read: it was no persistent memory, and the power failed.
    is_lost: bool,
}

/// A file whose file system is not mounted: what was synced to it is still in the pool.
#[derive(Serialize)]
struct Waiting {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    file_system: FileSystem,
}

/// What was synced to a file that was not written.
#[derive(Serialize)]
struct SalvagedFile {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    why: &'static str,
    #[serde(with = "tidegate_host::json_path")]
    to: PathBuf,
}

/// A file that its program had removed, and the power cut had not.
#[derive(Serialize)]
struct Removed {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    #[serde(with = "tidegate_host::json_path")]
    to: PathBuf,
}

/// What has the name of a file that its program had removed, and was left alone.
#[derive(Serialize)]
struct UntouchedFile {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    why: &'static str,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.written {
            line(f, "recovered", file.display())?;
        }
        for SalvagedFile { file, why, to } in &self.salvaged {
            line(f, "salvaged", format_args!("{} {why}: {}", file.display(), to.display()))?;
        }
        for Removed { file, to } in &self.removed {
            line(
                f,
                "removed",
                format_args!("{}: what the power cut left of it is in {}", file.display(), to.display()),
            )?;
        }
        for Waiting { file, file_system } in &self.unmounted {
            line(f, "waiting", format_args!("{}: {file_system} is not there", file.display()))?;
        }
        for UntouchedFile { file, why } in &self.left {
            line(f, "left", format_args!("{} {why}: {LEFT_ALONE}", file.display()))?;
        }
        let told = self.written.len() + self.salvaged.len() + self.removed.len() + self.left.len();
        let rest = match (self.was_left, told) {
            (false, _) => "the last run ended well",
            _ if !self.unmounted.is_empty() => {
                "it keeps what is waiting: mount those file systems where they were, and recover it again; if one is gone for good: --force saves the synced bytes of its files to a separate file"
            }
            (true, _) if self.is_lost => {
                "nothing of the last run can be read: it was no persistent memory, and the power failed"
            }
            (true, 0) => "the last run was cut short, and the files have everything that was synced to them",
            (true, _) => "nothing of it is needed any more",
        };
        write!(f, "pool       {}: {rest}", self.pool.display())
    }
}

/// Runs `tidegate recover`.
pub(crate) fn run(args: &Recover, json: bool) -> Result<Exit, Failure> {
    let pool = file_service::pool_of(&args.pool);
    if file_service::is_pool(&pool) {
        let unplaced = if args.force { Unplaced::Salvage } else { Unplaced::Retain };
        let (answer, exit) = mount_pool::recover(&pool, unplaced, output::teller(json))?;
        return output::end_with(&answer, json, exit);
    }
    let if_unmounted = if args.force { IfUnmounted::PutAside } else { IfUnmounted::Keep };
    let recovered = recover_pool(&args.pool, args.to.as_deref(), if_unmounted)?;
    let is_doubtful = recovered.doubtful().is_some();
    let Recovered { was_left, written, salvaged, removed, left, unmounted, is_lost } = recovered;
    let waiting = |Unmounted { file, file_system }: Unmounted| Waiting { file, file_system };
    let unmounted: Vec<_> = unmounted.into_iter().map(waiting).collect();
    let aside = |Salvaged { file, unlike, to }: Salvaged| SalvagedFile { file, why: unlike.told(), to };
    let salvaged: Vec<_> = salvaged.into_iter().map(aside).collect();
    let removed = removed.into_iter().map(|(file, to)| Removed { file, to }).collect();
    let left = left.into_iter().map(|LeftAlone { file, unlike }| UntouchedFile { file, why: unlike.told() }).collect();
    let is_done = salvaged.is_empty() && unmounted.is_empty() && !is_doubtful;
    let exit = if is_done { Exit::Done } else { Exit::Refused };
    output::end_with(
        &RecoveryReport { pool: args.pool.clone(), was_left, written, salvaged, removed, left, unmounted, is_lost },
        json,
        exit,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_run_log::RunFailure;

    #[test]
    fn a_pool_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        let answer = run(&Recover { pool: pool.clone(), to: None, force: false }, false);
        assert!(matches!(answer, Err(Failure::Run(RunFailure::NoPool { .. }))), "{answer:?}");
        assert!(!pool.exists());
    }
}
