//! Reasons why `tidegate run` does not run a program, or does not end its mounts.

use super::{Exit, Failure, Report};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use tidegate_access_trace::RecordingFailure;
use tidegate_host::shell::word;

/// Why a program was not run, or what a run left.
#[derive(Debug)]
pub(crate) enum ProgramFailure {
    /// The library of the direct path is in none of these places.
    NoLibrary {
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// A root cannot be used.
    NoRoot {
        /// The directory as it was named.
        root: PathBuf,
        /// Why not.
        why: String,
    },
    /// A pool is named for more roots than one.
    OnePool {
        /// The root that has no pool.
        root: PathBuf,
    },
    /// The pool lies below the root that it is for.
    PoolInRoot {
        /// The root.
        root: PathBuf,
        /// The pool.
        pool: PathBuf,
    },
    /// A mount namespace was asked for by another user than root.
    PrivateTakesRoot,
    /// The trace of a run cannot be recorded.
    NoTrace(RecordingFailure),
    /// The program does not start.
    NotStarted {
        /// Its name.
        program: OsString,
        /// What the system answered.
        error: io::Error,
    },
    /// The service of a mount ended, and not by the end of the mount.
    MountDied {
        /// Where the mount is.
        root: PathBuf,
        /// What may have what its files lack.
        pool: PathBuf,
        /// How the service ended.
        status: ExitStatus,
    },
}

impl From<ProgramFailure> for Failure {
    fn from(failure: ProgramFailure) -> Failure {
        Failure::Program(failure)
    }
}

/// What builds the library in the profile of this program, beside which it is looked for.
const PROFILE: &str = if cfg!(debug_assertions) { "" } else { " --release" };

impl From<&ProgramFailure> for Report {
    fn from(failure: &ProgramFailure) -> Report {
        match failure {
            ProgramFailure::NoLibrary { places } => {
                let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                Report::new(
                    ("no-library", Exit::Environment),
                    "the library of the direct path is missing",
                    format!("none of {}", places.join(", ")),
                    format!(
                        "install the package, or build it: cargo build{PROFILE} -p tidegate-direct-preload; or run without it, with slower syncs: --no-direct"
                    ),
                )
            }
            ProgramFailure::NoRoot { root, why } => Report::new(
                ("no-root", Exit::Usage),
                format!("{} is no root of a run", root.display()),
                why,
                "name a directory: --root DIR",
            ),
            ProgramFailure::OnePool { root } => Report::new(
                ("one-pool", Exit::Usage),
                format!("there is no pool for {}", root.display()),
                "a pool belongs to one root, and --pool names one for another root",
                "leave --pool out: each root then has a pool in the state directory; or mount the roots first: tidegate mount",
            ),
            ProgramFailure::PoolInRoot { root, pool } => Report::new(
                ("pool-in-root", Exit::Usage),
                format!("the pool {} lies below the root {}", pool.display(), root.display()),
                "the mount would cover its own pool",
                "name a pool elsewhere: --pool FILE; or another root: --root DIR",
            ),
            ProgramFailure::PrivateTakesRoot => Report::new(
                ("private", Exit::Environment),
                "there is no mount namespace for this run",
                "only root makes one",
                "run it as root, or leave --private out: other processes see the mounts then",
            ),
            ProgramFailure::NoTrace(RecordingFailure { path, error }) => Report::new(
                ("no-trace", Exit::Environment),
                format!("no trace can be recorded to {}", path.display()),
                error.to_string(),
                "name a new file in a directory that can be written: --trace FILE",
            ),
            ProgramFailure::NotStarted { program, error } => Report::new(
                ("not-started", Exit::Environment),
                format!("{} cannot be started", program.display()),
                error.to_string(),
                "name a program: tidegate run -- PROGRAM",
            ),
            ProgramFailure::MountDied { root, pool, status } => {
                let (root, pool) = (word(root), word(pool));
                Report::new(
                    ("mount-died", Exit::Environment),
                    format!("the mount at {root} did not end well: {status}"),
                    format!("its files may lack what the pool {pool} has"),
                    format!("run again with the same root and pool, or bring it to the files: tidegate recover {pool}"),
                )
            }
        }
    }
}
