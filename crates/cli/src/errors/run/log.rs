//! Reasons why a program is not run.

use crate::errors::{Exit, Failure, Report};
use std::path::{Path, PathBuf};
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_run_log::{self as run_log, RunFailure};
use tidegate_server::failure::{self as server, VolumeFailure};

impl From<run_log::Failure> for Failure {
    fn from(failure: run_log::Failure) -> Failure {
        match failure {
            run_log::Failure::Run(failure) => Failure::Run(failure),
            run_log::Failure::NotOwn(not_own) => server::Failure::NotOwn(not_own).into(),
            run_log::Failure::Folder(folder) => server::Failure::from(folder).into(),
            run_log::Failure::File { file, doing, error } => VolumeFailure::of_io(&file, doing, error).into(),
            run_log::Failure::Map { doing, error } => VolumeFailure::of_map(doing, error).into(),
            run_log::Failure::Poisoned { pool, poison } => VolumeFailure::of_poison(&pool, poison).into(),
            run_log::Failure::System { doing, error } => Failure::system(doing)(error),
        }
    }
}

/// What builds the library in the profile of this program, beside which it is looked for.
const PROFILE: &str = if cfg!(debug_assertions) { "" } else { " --release" };

impl From<&RunFailure> for Report {
    fn from(failure: &RunFailure) -> Report {
        let (kind, exit, why) = match failure {
            RunFailure::NoLibrary { places, .. } => {
                ("no-library", Exit::Environment, format!("none of {}", listed(places)))
            }
            RunFailure::NoRoot { why, .. } => ("no-root", Exit::Usage, why.clone()),
            RunFailure::NoPool { .. } => ("no-pool", Exit::Refused, "no such file".to_owned()),
            RunFailure::NoRun { .. } => {
                ("no-run", Exit::Refused, "there is no supervisor that could be asked".to_owned())
            }
            RunFailure::Denied { error, .. } => ("permission", Exit::Environment, error.to_string()),
            RunFailure::PoolSize { min, .. } => {
                ("pool-size", Exit::Usage, format!("it has {} or more, in multiples of 4096", Human(*min)))
            }
            RunFailure::PoolTooSmall { min, .. } => {
                ("pool-too-small", Exit::Refused, format!("a pool has {} or more", Human(*min)))
            }
            RunFailure::NoJournal { journal, .. } => {
                ("no-journal", Exit::Refused, format!("its journal is not at {}", journal.display()))
            }
            RunFailure::NotStarted { error, .. } => ("not-started", Exit::Environment, error.to_string()),
            RunFailure::Pool { why, .. } => ("pool", Exit::Refused, why.clone()),
            RunFailure::NotPersistent { is, .. } => (
                "pool-not-persistent",
                Exit::Refused,
                format!("it is {is}: a power loss takes what programs synced last"),
            ),
            RunFailure::InUse { holder, .. } => ("pool-in-use", Exit::InUse, holder.to_string()),
            RunFailure::NotRecovered { why, .. } => ("not-recovered", Exit::Environment, why.clone()),
            RunFailure::Doubtful { .. } => (
                "doubtful",
                Exit::Refused,
                "it was last changed before it was held, by a clock that was behind".to_owned(),
            ),
            RunFailure::Unmounted { file_system, .. } => {
                ("unmounted", Exit::Refused, format!("{file_system} is not there"))
            }
        };
        let Next(next) = failure.into();
        Report { kind, what: failure.to_string(), why, next, exit }
    }
}

/// What to do about a run that did not begin.
struct Next(String);

impl From<&RunFailure> for Next {
    fn from(failure: &RunFailure) -> Next {
        Next(match failure {
        RunFailure::NoLibrary { .. } => {
            format!("install the package, or build it: cargo build{PROFILE} -p tidegate-preload")
        }
        RunFailure::NoRoot { .. } => "name a folder: --root DIR".to_owned(),
        RunFailure::NoPool { .. } => "name the pool that a run was given: tidegate recover POOL".to_owned(),
        RunFailure::NoRun { .. } => "name the pool of a run: tidegate status POOL".to_owned(),
        RunFailure::Denied { .. } => "run this as the user of the run, or as root".to_owned(),
        RunFailure::PoolSize { .. } => "name another: --size 1G".to_owned(),
        RunFailure::NoJournal { .. } => "put the journal back and run again, or name another pool; if nothing of it is needed, remove this one, or zero the device".to_owned(),
        RunFailure::NotStarted { .. } => "name a program: tidegate run-log -- PROGRAM".to_owned(),
        RunFailure::PoolTooSmall { .. } | RunFailure::Pool { .. } => "name another file, or one that is not there yet: --pool FILE".to_owned(),
        RunFailure::NotPersistent { pool, .. } => format!(
            "name a pool in persistent memory (domain power-fail): --pool FILE; or run it all the same, with files that you can lose: --try; what an earlier run left: tidegate recover {}",
            word(pool)
        ),
        RunFailure::InUse { pool, .. } => {
            format!("see what it does: tidegate status {pool}; or name another pool: --pool FILE", pool = word(pool))
        }
        RunFailure::NotRecovered { .. } => "put the file's disk right, and run again with the same pool".to_owned(),
        RunFailure::Doubtful { aside, .. } => format!(
            "compare it with what was synced, which is in {}, put what is right in its place, and run again",
            aside.display()
        ),
        RunFailure::Unmounted { pool, .. } => format!(
            "mount it there, and run this again; if it is gone for good, save the synced bytes of its files to a separate file: tidegate recover {} --force",
            word(pool)
        ),
        })
    }
}

/// Tells that a pool is where a volume was expected.
pub(in crate::errors) fn instead_of_a_volume(pool: &Path) -> Report {
    Report {
        kind: "no-volume",
        what: format!("{} is no volume", pool.display()),
        why: "it is a pool of `tidegate run-log`, and has what programs synced to their files".to_owned(),
        next: "a run brings its files to their disks by itself, and at once when a program calls `sync`; after a crash: tidegate recover POOL".to_owned(),
        exit: Exit::Refused,
    }
}

fn listed(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}
