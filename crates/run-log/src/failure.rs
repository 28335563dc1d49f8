//! Why a run does not begin, or what a run left is not recovered.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use tidegate_host::Doing;
use tidegate_host::default_paths::FolderError;
use tidegate_host::owned::{NotOwn, UntrustedFile};
use tidegate_media::{LockHolder, MapError, Poison};

/// Why a run did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The run, its pool, or its program.
    #[error(transparent)]
    Run(#[from] RunFailure),
    /// A pool of which some memory is lost.
    #[error("{} cannot be read whole", pool.display())]
    Poisoned {
        /// The pool.
        pool: PathBuf,
        /// Where.
        poison: Poison,
    },
    /// A file or folder that other users may have put there.
    #[error(transparent)]
    NotOwn(#[from] NotOwn),
    /// There is no folder for a file.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The system refuses a file beside the pool.
    #[error("cannot {doing} {}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What was tried.
        doing: Doing,
        /// What the system answered.
        error: io::Error,
    },
    /// The system refuses to map a file.
    #[error("cannot {doing} a file in memory")]
    Map {
        /// What was tried.
        doing: Doing,
        /// Why not.
        error: MapError,
    },
    /// A service of the operating system that ought always to work.
    #[error("failed while {doing}")]
    System {
        /// What was being done, as in "while ...".
        doing: &'static str,
        /// What the system answered.
        error: io::Error,
    },
}

/// Why `tidegate run-log` did not run a program.
#[derive(Debug, thiserror::Error)]
pub enum RunFailure {
    /// The library that is to be loaded under it is not there.
    #[error("there is nothing to load under the program")]
    NoLibrary {
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// A root is no folder.
    #[error("cannot hold files below {}", root.display())]
    NoRoot {
        /// Which.
        root: PathBuf,
        /// Why not.
        why: String,
    },
    /// A pool that is not there.
    #[error("there is no pool {}", pool.display())]
    NoPool {
        /// Where it would be.
        pool: PathBuf,
    },
    /// Nobody runs anything with a pool.
    #[error("nothing runs with the pool {}", pool.display())]
    NoRun {
        /// The pool.
        pool: PathBuf,
    },
    /// This user may not ask about a run.
    #[error("no permission to ask about the pool {}", pool.display())]
    Denied {
        /// The pool.
        pool: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// A size that no pool has.
    #[error("a pool cannot have {size} bytes")]
    PoolSize {
        /// The size.
        size: u64,
        /// The least that there is.
        min: u64,
    },
    /// A pool that is too small.
    #[error("{} is too small for a pool", pool.display())]
    PoolTooSmall {
        /// The pool.
        pool: PathBuf,
        /// The least that there is.
        min: u64,
    },
    /// A pool that cannot be used.
    #[error("the pool {} cannot be used", pool.display())]
    Pool {
        /// The pool.
        pool: PathBuf,
        /// Why not.
        why: String,
    },
    /// A pool that a power loss would take something of.
    #[error("the pool {} would make fsync and fdatasync weaker than they are without it", pool.display())]
    NotPersistent {
        /// The pool.
        pool: PathBuf,
        /// What it is instead.
        is: &'static str,
    },
    /// A pool that another process uses.
    #[error("the pool {} is in use", pool.display())]
    InUse {
        /// The pool.
        pool: PathBuf,
        /// Which.
        holder: LockHolder,
    },
    /// A pool has something that nobody knows the files of.
    #[error("the pool {} has what programs synced, and nothing tells to which files", pool.display())]
    NoJournal {
        /// The pool.
        pool: PathBuf,
        /// Where its journal would be.
        journal: PathBuf,
    },
    /// What an earlier run kept cannot be brought to its file.
    #[error("what was synced to {} is still in the pool", file.display())]
    NotRecovered {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// Nobody knows whether a file is newer than what an earlier run kept of it.
    #[error("the program is not started: {} may be older or newer than what was synced to it", file.display())]
    Doubtful {
        /// The file.
        file: PathBuf,
        /// Where what was kept is.
        aside: PathBuf,
    },
    /// The pool has what files lack whose file systems are not mounted.
    #[error("the pool {} still has what was synced to {files} files", pool.display())]
    Unmounted {
        /// The pool.
        pool: PathBuf,
        /// How many files.
        files: usize,
        /// The first one's file system, in words.
        file_system: String,
    },
    /// The program cannot be started.
    #[error("cannot run {}", program.display())]
    NotStarted {
        /// Its name.
        program: OsString,
        /// What the system answered.
        error: io::Error,
    },
}

impl Failure {
    /// A failure of the system while `doing`, for `map_err`.
    pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::System { doing, error }
    }
}

impl RunFailure {
    /// What the system says when a pool cannot be mapped.
    pub(crate) fn of_map(doing: Doing, error: MapError) -> Failure {
        match error {
            MapError::InUse { path: pool, holder } => RunFailure::InUse { pool, holder }.into(),
            MapError::Io { path, source, .. } => RunFailure::of_file(&path, doing, source),
            error => Failure::Map { doing, error },
        }
    }

    /// What is wrong with a pool, or with what lies beside it, at `path`.
    pub(crate) fn of_file(path: &Path, doing: Doing, error: io::Error) -> Failure {
        let file = path.to_owned();
        match UntrustedFile::in_error(&error) {
            Some(distrust) => Failure::NotOwn(NotOwn {
                file,
                distrust,
                command: "tidegate recover POOL",
                instead: "name a pool and a folder of your own: --pool FILE, or --to DIR",
            }),
            None => Failure::File { file, doing, error },
        }
    }
}
