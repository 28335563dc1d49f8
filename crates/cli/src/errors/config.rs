//! Configuration files that are refused: each with the file, the line, and the correction; and
//! directories that `tidegate doctor` does not examine.

use super::{Exit, Report};
use std::io;
use std::path::{Path, PathBuf};
use tidegate_doctor::{FileMistake, RefusedAt};
use tidegate_host::shell::word;
use tidegate_host::spelling::nearest;

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
    /// A key that means something beside another one only.
    NeedsKey {
        /// The file.
        path: PathBuf,
        /// The key's line, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// The other one.
        needs: &'static str,
    },
    /// Two keys of one volume, one of which makes the other one impossible.
    Excludes {
        /// The file.
        path: PathBuf,
        /// The first key's line, from 1.
        line: usize,
        /// The first key.
        key: &'static str,
        /// The other one.
        excludes: &'static str,
    },
    /// Nothing to serve.
    NoVolume {
        /// The file.
        path: PathBuf,
    },
    /// Nothing to mount.
    NoMount {
        /// The file.
        path: PathBuf,
    },
    /// Two mounts of one name.
    SameMount {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Several mounts, and none was named.
    WhichMount {
        /// The file.
        path: PathBuf,
        /// Their names.
        names: Vec<String>,
    },
    /// No mount has the name.
    UnknownMount {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The names of those that it has.
        names: Vec<String>,
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
    /// A file that the configuration names is not what it should be.
    Files(FileMistake),
}

impl ConfigFailure {
    /// Where the parser refused the file.
    pub(crate) fn refused_at(&self) -> RefusedAt {
        if let ConfigFailure::Invalid { what, .. } = self
            && what.starts_with("missing field")
        {
            return RefusedAt::MissingKey;
        }
        if let ConfigFailure::UnknownKey { line, .. }
        | ConfigFailure::Invalid { line, .. }
        | ConfigFailure::NeedsKey { line, .. }
        | ConfigFailure::Excludes { line, .. } = self
        {
            return RefusedAt::Line(*line);
        }
        RefusedAt::Nowhere
    }
}

impl From<&ConfigFailure> for Report {
    fn from(failure: &ConfigFailure) -> Report {
        match failure {
            ConfigFailure::Unreadable { path, error } => unreadable(path, error.to_string()),
            ConfigFailure::NotText { path } => not_text(path),
            ConfigFailure::UnknownKey { path, line, key, nearest, known } => {
                unknown_key((path, *line), key, nearest.as_deref(), known)
            }
            ConfigFailure::Invalid { path, line, what } => invalid((path, *line), what),
            ConfigFailure::NeedsKey { path, line, key, needs } => needs_key((path, *line), key, needs),
            ConfigFailure::Excludes { path, line, key, excludes } => exclude((path, *line), key, excludes),
            ConfigFailure::NoVolume { path } => no_volume(path),
            ConfigFailure::NoMount { path } => no_mount(path),
            ConfigFailure::SameMount { path, name } => same_mount(path, name),
            ConfigFailure::WhichMount { path, names } => which_mount(path, names),
            ConfigFailure::UnknownMount { path, name, names } => unknown_mount(path, name, names),
            ConfigFailure::SameFile { path, pmem } => same_file(path, pmem),
            ConfigFailure::SameName { path, name } => same_name(path, name),
            ConfigFailure::Files(FileMistake { what, why, next }) => {
                Report::new(("config-file", Exit::Usage), what, why, next)
            }
        }
    }
}

fn unreadable(path: &Path, why: String) -> Report {
    let next = "name a regular file that this user may read: --config FILE";
    Report::new(("config-unreadable", Exit::Environment), format!("cannot read {}", path.display()), why, next)
}

fn not_text(path: &Path) -> Report {
    let what = format!("{} is no text", path.display());
    Report::new(("config-not-text", Exit::Usage), what, "its bytes are not UTF-8", "name a file of TOML: --config FILE")
}

fn unknown_key((path, line): (&Path, usize), key: &str, nearest: Option<&str>, known: &[String]) -> Report {
    let what = format!("{}:{line}: unknown key `{key}`", path.display());
    let next = match nearest {
        Some(near) => format!("write `{near}` if that was meant, or remove the line"),
        None => "remove the line".to_owned(),
    };
    let why = format!("the keys known here are {}", known.join(", "));
    Report::new(("config-unknown-key", Exit::Usage), what, why, next)
}

fn invalid((path, line): (&Path, usize), what: &str) -> Report {
    let what = format!("{}:{line}: {}", path.display(), what.lines().next().unwrap_or_default());
    let next = "correct the line; the help and the manual page of the command tell the keys";
    Report::new(("config-invalid", Exit::Usage), what, "the file is not what this command understands", next)
}

fn needs_key((path, line): (&Path, usize), key: &str, needs: &str) -> Report {
    let what = format!("{}:{line}: {key} without {needs}", path.display());
    let next = format!("write {needs} = true beside it, or remove the line");
    Report::new(("config-needs-key", Exit::Usage), what, format!("it says how {needs} is served"), next)
}

fn exclude((path, line): (&Path, usize), key: &str, excludes: &str) -> Report {
    let what = format!("{}:{line}: {key} and {excludes} for one volume", path.display());
    let (why, next) = match excludes {
        "mirror" => (
            "degraded serves one side alone, mirror serves both",
            "remove degraded if both sides are there, and mirror if one is lost",
        ),
        _ => (
            "blocks of a mirrored volume in a write cache would be in one memory only",
            "remove write_cache: a mirrored volume has none",
        ),
    };
    Report::new(("config-excludes", Exit::Usage), what, why, next)
}

fn no_volume(path: &Path) -> Report {
    let what = format!("{} names no volume", path.display());
    let next = "add [[volume]] and, below it, pmem = \"FILE\"";
    Report::new(("config-no-volume", Exit::Usage), what, "a server needs something to serve", next)
}

fn no_mount(path: &Path) -> Report {
    let what = format!("{} names no mount", path.display());
    let next = "add [[mount]] and, below it, source = \"DIR\" and mountpoint = \"DIR\"";
    Report::new(("config-no-mount", Exit::Usage), what, "there is nothing to mount", next)
}

fn same_mount(path: &Path, name: &str) -> Report {
    let what = format!("{}: two mounts are named {name:?}", path.display());
    let why = "a mount is chosen by its name; one without a name has the last name of its mountpoint";
    Report::new(("config-same-mount", Exit::Usage), what, why, "give one of them another: name = \"...\"")
}

fn which_mount(path: &Path, names: &[String]) -> Report {
    let what = format!("{} has several mounts", path.display());
    let ways: Vec<_> = names.iter().map(|name| format!("--name {}", word(name))).collect();
    let next = format!("say which one: {}", ways.join(", "));
    Report::new(("config-which-mount", Exit::Usage), what, "each of them has a service of its own", next)
}

fn unknown_mount(path: &Path, name: &str, names: &[String]) -> Report {
    let what = format!("{} has no mount {name:?}", path.display());
    let why = format!("the mounts there are {}", names.join(", "));
    let next = match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("write --name {} if that was meant", word(near)),
        None => "add [[mount]] with this name, or name one of those".to_owned(),
    };
    Report::new(("config-unknown-mount", Exit::Usage), what, why, next)
}

fn same_file(path: &Path, pmem: &Path) -> Report {
    let what = format!("{}: {} is named as a region twice", path.display(), pmem.display());
    let next = "name another file in one of them, or make both read_only = true";
    Report::new(("config-same-file", Exit::Usage), what, "a volume that may change is served once", next)
}

fn same_name(path: &Path, name: &str) -> Report {
    let what = format!("{}: two volumes are named {name:?}", path.display());
    let next = "give one of them another: name = \"...\"";
    Report::new(("config-same-name", Exit::Usage), what, "clients choose a volume by its name", next)
}
