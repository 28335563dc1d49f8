//! Reasons why nothing was examined.

use std::io;
use std::path::PathBuf;

/// Why a directory was not examined.
#[derive(Debug, thiserror::Error)]
pub enum DoctorFailure {
    /// The directory cannot be looked at.
    #[error("cannot examine {}", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// It is something else.
    #[error("{} is no directory", path.display())]
    NoDirectory {
        /// What was named.
        path: PathBuf,
    },
    /// It is a mount whose service does not answer, or is gone.
    #[error("{} does not answer", path.display())]
    Silent {
        /// The directory.
        path: PathBuf,
    },
    /// No database has such files.
    #[error("{} has no files of a known database", path.display())]
    NotRecognised {
        /// The directory.
        path: PathBuf,
        /// What is recognised, and by which files.
        known: String,
    },
    /// The file of settings that was named cannot be read.
    #[error("cannot read the settings in {}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}
