//! Configuration files that are refused: each with the file, the line, and what to write instead.

use super::{Exit, Told};
use std::io;
use std::path::PathBuf;

/// Why a configuration file is not followed.
#[derive(Debug)]
pub(crate) enum ConfigFailure {
    /// It cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// Its bytes are no text.
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A key that means nothing.
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key's line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The known key it is most likely meant to be.
        nearest: Option<String>,
        /// Every key that is known in its place.
        known: Vec<String>,
    },
    /// A value of the wrong kind, a missing key, or no TOML at all.
    Invalid {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The parser's words.
        what: String,
    },
    /// Nothing to serve.
    NoVolume {
        /// The file.
        path: PathBuf,
    },
    /// Two volumes of one name.
    SameName {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Two volumes in one file, and one of them may change it.
    SameFile {
        /// The file.
        path: PathBuf,
        /// The region.
        pmem: PathBuf,
    },
}

impl ConfigFailure {
    pub(super) fn told(&self) -> Told {
        let (what, why, next) = self.words();
        Told::of(self.kind(), (what, why), next)
    }

    fn kind(&self) -> (&'static str, Exit) {
        match self {
            ConfigFailure::Unreadable { .. } => ("config-unreadable", Exit::Environment),
            ConfigFailure::NotText { .. } => ("config-not-text", Exit::Usage),
            ConfigFailure::UnknownKey { .. } => ("config-unknown-key", Exit::Usage),
            ConfigFailure::Invalid { .. } => ("config-invalid", Exit::Usage),
            ConfigFailure::NoVolume { .. } => ("config-no-volume", Exit::Usage),
            ConfigFailure::SameFile { .. } => ("config-same-file", Exit::Usage),
            ConfigFailure::SameName { .. } => ("config-same-name", Exit::Usage),
        }
    }

    /// What, why, and what next.
    fn words(&self) -> (String, String, String) {
        match self {
            ConfigFailure::Unreadable { path, error } => (
                format!("cannot read {}", path.display()),
                error.to_string(),
                "name a regular file that this user may read: --config FILE".to_owned(),
            ),
            ConfigFailure::NotText { path } => (
                format!("{} is no text", path.display()),
                "its bytes are not UTF-8".to_owned(),
                "name a file of TOML: --config FILE".to_owned(),
            ),
            ConfigFailure::UnknownKey { path, line, key, nearest, known } => (
                format!("{}:{line}: unknown key `{key}`", path.display()),
                format!("the keys known here are {}", known.join(", ")),
                match nearest {
                    Some(near) => format!("write `{near}` if that was meant, or remove the line"),
                    None => "remove the line".to_owned(),
                },
            ),
            ConfigFailure::Invalid { path, line, what } => (
                format!("{}:{line}: {}", path.display(), what.lines().next().unwrap_or_default()),
                "the file is not what this command understands".to_owned(),
                "correct the line; the help and the manual page of the command tell the keys".to_owned(),
            ),
            ConfigFailure::NoVolume { path } => (
                format!("{} names no volume", path.display()),
                "a server needs something to serve".to_owned(),
                "add [[volume]] and, below it, pmem = \"FILE\"".to_owned(),
            ),
            ConfigFailure::SameFile { path, pmem } => (
                format!("{}: two volumes are in {}", path.display(), pmem.display()),
                "a volume that may change is served once".to_owned(),
                "name another file in one of them, or make both read_only = true".to_owned(),
            ),
            ConfigFailure::SameName { path, name } => (
                format!("{}: two volumes are named {name:?}", path.display()),
                "clients choose a volume by its name".to_owned(),
                "give one of them another: name = \"...\"".to_owned(),
            ),
        }
    }
}
