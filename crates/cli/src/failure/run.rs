//! What keeps a program from being run.

use super::{Exit, Failure, Told, VolumeFailure};
use std::path::PathBuf;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_run_log::{self as run_log, RunFailure};

impl From<run_log::Failure> for Failure {
    fn from(failure: run_log::Failure) -> Failure {
        match failure {
            run_log::Failure::Run(failure) => Failure::Run(failure),
            run_log::Failure::NotOwn(not_own) => Failure::NotOwn(not_own),
            run_log::Failure::Folder(folder) => folder.into(),
            run_log::Failure::File { file, doing, error } => VolumeFailure::of_io(&file, doing, error).into(),
            run_log::Failure::Map { doing, error } => VolumeFailure::of_map(doing, error).into(),
            run_log::Failure::Poisoned { pool, poison } => VolumeFailure::of_poison(&pool, poison).into(),
            run_log::Failure::System { doing, error } => Failure::System { doing, error },
        }
    }
}

/// What chooses the profile of this program when the library is built.
const PROFILE: &str = if cfg!(debug_assertions) { "" } else { " --release" };

/// Tells why a run did not begin.
pub(super) fn told(failure: &RunFailure) -> Told {
    let (kind, exit, why, next) = match failure {
        RunFailure::NoLibrary { places } => (
            "no-library",
            Exit::Environment,
            format!("none of {}", listed(places)),
            // It is looked for beside this program, which this profile's folder has.
            format!("install the package, or build it: cargo build{PROFILE} -p tidegate-preload"),
        ),
        RunFailure::NoRoot { why, .. } => ("no-root", Exit::Usage, why.clone(), "name a folder: --root DIR".to_owned()),
        RunFailure::NoPool { .. } => (
            "no-pool",
            Exit::Refused,
            "no such file".to_owned(),
            "name the pool that a run was given: tidegate recover POOL".to_owned(),
        ),
        RunFailure::NoRun { .. } => (
            "no-run",
            Exit::Refused,
            "there is no supervisor that could be asked".to_owned(),
            "name the pool of a run: tidegate status POOL".to_owned(),
        ),
        RunFailure::Denied { error, .. } => (
            "permission",
            Exit::Environment,
            error.to_string(),
            "run this as the user of the run, or as root".to_owned(),
        ),
        RunFailure::PoolSize { min, .. } => (
            "pool-size",
            Exit::Usage,
            format!("it has {} or more, in multiples of 4096", Human(*min)),
            "name another: --size 1G".to_owned(),
        ),
        RunFailure::PoolTooSmall { min, .. } => {
            ("pool-too-small", Exit::Refused, format!("a pool has {} or more", Human(*min)), "name another file, or one that is not there yet: --pool FILE".to_owned())
        }
        RunFailure::Pool { why, .. } => ("pool", Exit::Refused, why.clone(), "name another file, or one that is not there yet: --pool FILE".to_owned()),
        RunFailure::NotPersistent { pool, is } => (
            "pool-not-persistent",
            Exit::Refused,
            format!("it is {is}: a power loss takes what programs synced last"),
            format!(
                "name a pool in persistent memory (domain power-fail): --pool FILE; or run it all the same, with files that you can lose: --try; what an earlier run left: tidegate recover {}",
                word(pool)
            ),
        ),
        RunFailure::InUse { pool, holder } => (
            "pool-in-use",
            Exit::InUse,
            holder.to_string(),
            format!("see what it does: tidegate status {pool}; or name another pool: --pool FILE", pool = word(pool)),
        ),
        RunFailure::NoJournal { journal, .. } => {
            ("no-journal", Exit::Refused, format!("its journal is not at {}", journal.display()), "put the journal back and run again, or name another pool; if nothing of it is needed, remove this one, or zero the device".to_owned())
        }
        RunFailure::NotRecovered { why, .. } => (
            "not-recovered",
            Exit::Environment,
            why.clone(),
            "put the file's disk right, and run again with the same pool".to_owned(),
        ),
        RunFailure::Doubtful { aside, .. } => (
            "doubtful",
            Exit::Refused,
            "it was last changed before it was held, by a clock that was behind".to_owned(),
            format!(
                "compare it with what was synced, which is in {}, put what is right in its place, and run again",
                aside.display()
            ),
        ),
        RunFailure::Unmounted { pool, file_system, .. } => (
            "unmounted",
            Exit::Refused,
            format!("{file_system} is not there"),
            format!(
                "mount it there, and run this again; if it is gone for good, put aside what was synced to its files: tidegate recover {} --force",
                word(pool)
            ),
        ),
        RunFailure::NotStarted { error, .. } => {
            ("not-started", Exit::Environment, error.to_string(), "name a program: tidegate run -- PROGRAM".to_owned())
        }
    };
    Told { kind, what: failure.to_string(), why, next, exit }
}

fn listed(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}
