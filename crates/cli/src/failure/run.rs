//! What keeps a program from being run.

use super::{Doing, Exit, Failure, Told, VolumeFailure};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use tidegate_host::owned::{Distrust, NotOwn};
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::{LockHolder, MapError};

/// Why `tidegate run` did not run a program.
#[derive(Debug)]
pub(crate) enum RunFailure {
    /// The library that is to be loaded under it is not there.
    NoLibrary {
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// A root is no folder.
    NoRoot {
        /// Which.
        root: PathBuf,
        /// Why not.
        why: String,
    },
    /// A pool that is not there.
    NoPool {
        /// Where it would be.
        pool: PathBuf,
    },
    /// Nobody runs anything with a pool.
    NoRun {
        /// The pool.
        pool: PathBuf,
    },
    /// This user may not ask about a run.
    Denied {
        /// The pool.
        pool: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// A size that no pool has.
    PoolSize {
        /// The size.
        size: u64,
        /// The least that there is.
        min: u64,
    },
    /// A pool that is too small.
    PoolTooSmall {
        /// The pool.
        pool: PathBuf,
        /// The least that there is.
        min: u64,
    },
    /// A pool that cannot be used.
    Pool {
        /// The pool.
        pool: PathBuf,
        /// Why not.
        why: String,
    },
    /// A pool that a power loss would take something of.
    NotPersistent {
        /// The pool.
        pool: PathBuf,
        /// What it is instead.
        is: &'static str,
    },
    /// A pool that another process uses.
    InUse {
        /// The pool.
        pool: PathBuf,
        /// Which.
        holder: LockHolder,
    },
    /// A pool where a volume was expected.
    NoVolume {
        /// The pool.
        pool: PathBuf,
    },
    /// A pool has something that nobody knows the files of.
    NoJournal {
        /// The pool.
        pool: PathBuf,
        /// Where its journal would be.
        journal: PathBuf,
    },
    /// What an earlier run kept cannot be brought to its file.
    NotRecovered {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// Nobody knows whether a file is newer than what an earlier run kept of it.
    Doubtful {
        /// The file.
        file: PathBuf,
        /// Where what was kept is.
        aside: PathBuf,
    },
    /// The pool has what files lack whose file systems are not mounted.
    Unmounted {
        /// The pool.
        pool: PathBuf,
        /// How many files.
        files: usize,
        /// The first one's file system, in words.
        file_system: String,
    },
    /// The program cannot be started.
    NotStarted {
        /// Its name.
        program: OsString,
        /// What the system answered.
        error: io::Error,
    },
}

impl RunFailure {
    /// What the system says when a pool cannot be mapped.
    pub(crate) fn of_map(doing: Doing, error: MapError) -> Failure {
        match error {
            MapError::InUse { path: pool, holder } => RunFailure::InUse { pool, holder }.into(),
            MapError::Io { path, source, .. } => RunFailure::of_file(&path, doing, source),
            error => VolumeFailure::of_map(doing, error).into(),
        }
    }

    /// What is wrong with a pool, or with what lies beside it, at `path`.
    pub(crate) fn of_file(path: &Path, doing: Doing, error: io::Error) -> Failure {
        match Distrust::in_error(&error) {
            Some(distrust) => Failure::NotOwn(NotOwn {
                file: path.to_owned(),
                distrust,
                command: "tidegate recover POOL",
                instead: "name a pool and a folder of your own: --pool FILE, or --to DIR",
            }),
            None => VolumeFailure::of_io(path, doing, error).into(),
        }
    }

    pub(super) fn told(&self) -> Told {
        Told::of(self.kind(), self.what_and_why(), self.next())
    }

    fn kind(&self) -> (&'static str, Exit) {
        match self {
            RunFailure::NoLibrary { .. } => ("no-library", Exit::Environment),
            RunFailure::NoRoot { .. } => ("no-root", Exit::Usage),
            RunFailure::NoPool { .. } => ("no-pool", Exit::Refused),
            RunFailure::NoRun { .. } => ("no-run", Exit::Refused),
            RunFailure::Denied { .. } => ("permission", Exit::Environment),
            RunFailure::PoolSize { .. } => ("pool-size", Exit::Usage),
            RunFailure::PoolTooSmall { .. } => ("pool-too-small", Exit::Refused),
            RunFailure::Pool { .. } => ("pool", Exit::Refused),
            RunFailure::NotPersistent { .. } => ("pool-not-persistent", Exit::Refused),
            RunFailure::InUse { .. } => ("pool-in-use", Exit::InUse),
            RunFailure::NoVolume { .. } => ("no-volume", Exit::Refused),
            RunFailure::NoJournal { .. } => ("no-journal", Exit::Refused),
            RunFailure::NotRecovered { .. } => ("not-recovered", Exit::Environment),
            RunFailure::Doubtful { .. } => ("doubtful", Exit::Refused),
            RunFailure::Unmounted { .. } => ("unmounted", Exit::Refused),
            RunFailure::NotStarted { .. } => ("not-started", Exit::Environment),
        }
    }

    fn what_and_why(&self) -> (String, String) {
        match self {
            RunFailure::NoLibrary { places } => {
                let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                ("there is nothing to load under the program".to_owned(), format!("none of {}", places.join(", ")))
            }
            RunFailure::NoRoot { root, why } => (format!("cannot hold files below {}", root.display()), why.clone()),
            RunFailure::NoPool { pool } => (format!("there is no pool {}", pool.display()), "no such file".to_owned()),
            RunFailure::NoRun { pool } => (
                format!("nothing runs with the pool {}", pool.display()),
                "there is no supervisor that could be asked".to_owned(),
            ),
            RunFailure::Denied { pool, error } => {
                (format!("no permission to ask about the pool {}", pool.display()), error.to_string())
            }
            RunFailure::PoolSize { size, min } => (
                format!("a pool cannot have {size} bytes"),
                format!("it has {} or more, in multiples of 4096", Human(*min)),
            ),
            RunFailure::PoolTooSmall { pool, min } => {
                (format!("{} is too small for a pool", pool.display()), format!("a pool has {} or more", Human(*min)))
            }
            RunFailure::Pool { pool, why } => (format!("the pool {} cannot be used", pool.display()), why.clone()),
            RunFailure::NotPersistent { pool, is } => (
                format!("the pool {} would make fsync and fdatasync weaker than they are without it", pool.display()),
                format!("it is {is}: a power loss takes what programs synced last"),
            ),
            RunFailure::InUse { pool, holder } => {
                (format!("the pool {} is in use", pool.display()), holder.to_string())
            }
            RunFailure::NoVolume { pool } => (
                format!("{} is no volume", pool.display()),
                "it is a pool of `tidegate run`, and has what programs synced to their files".to_owned(),
            ),
            RunFailure::NoJournal { pool, journal } => (
                format!("the pool {} has what programs synced, and nothing tells to which files", pool.display()),
                format!("its journal is not at {}", journal.display()),
            ),
            RunFailure::NotRecovered { file, why } => {
                (format!("what was synced to {} is still in the pool", file.display()), why.clone())
            }
            RunFailure::Doubtful { file, .. } => (
                format!(
                    "the program is not started: {} may be older or newer than what was synced to it",
                    file.display()
                ),
                "it was last changed before it was held, by a clock that was behind".to_owned(),
            ),
            RunFailure::Unmounted { pool, files, file_system } => (
                format!("the pool {} still has what was synced to {files} files", pool.display()),
                format!("{file_system} is not there"),
            ),
            RunFailure::NotStarted { program, error } => {
                (format!("cannot run {}", program.display()), error.to_string())
            }
        }
    }

    fn next(&self) -> String {
        match self {
            RunFailure::NoLibrary { .. } => {
                // It is looked for beside this program, which this profile's folder has.
                let profile = if cfg!(debug_assertions) { "" } else { " --release" };
                format!("install the package, or build it: cargo build{profile} -p tidegate-preload")
            }
            RunFailure::NoRoot { .. } => "name a folder: --root DIR".to_owned(),
            RunFailure::NoPool { .. } => "name the pool that a run was given: tidegate recover POOL".to_owned(),
            RunFailure::NoRun { .. } => "name the pool of a run: tidegate status POOL".to_owned(),
            RunFailure::Denied { .. } => "run this as the user of the run, or as root".to_owned(),
            RunFailure::PoolSize { .. } => "name another: --size 1G".to_owned(),
            RunFailure::PoolTooSmall { .. } | RunFailure::Pool { .. } => {
                "name another file, or one that is not there yet: --pool FILE".to_owned()
            }
            RunFailure::NotPersistent { pool, .. } => format!(
                "name a pool in persistent memory (domain power-fail): --pool FILE; or run it all the same, with files that you can lose: --try; what an earlier run left: tidegate recover {}",
                word(pool)
            ),
            RunFailure::InUse { pool, .. } => format!(
                "see what it does: tidegate status {pool}; or name another pool: --pool FILE",
                pool = word(pool)
            ),
            RunFailure::NoVolume { .. } => {
                "a run brings its files to their disks by itself, and at once when a program calls `sync`; after a crash: tidegate recover POOL".to_owned()
            }
            RunFailure::NoJournal { .. } => {
                "put the journal back and run again, or name another pool; if nothing of it is needed, remove this one, or zero the device".to_owned()
            }
            RunFailure::NotRecovered { .. } => "put the file's disk right, and run again with the same pool".to_owned(),
            RunFailure::Doubtful { aside, .. } => format!(
                "compare it with what was synced, which is in {}, put what is right in its place, and run again",
                aside.display()
            ),
            RunFailure::Unmounted { pool, .. } => format!(
                "mount it there, and run this again; if it is gone for good, put aside what was synced to its files: tidegate recover {} --force",
                word(pool)
            ),
            RunFailure::NotStarted { .. } => "name a program: tidegate run -- PROGRAM".to_owned(),
        }
    }
}
