//! Caches that killed servers left and whose volumes are gone: nothing completes them, and nothing but their owner removes them.
//!
//! A cache's file carries the path of its volume in an extended attribute. It is an orphan if no server uses it and the volume is
//! not at that path any more. Where the file system keeps no attributes nothing is known, and nothing said.

use crate::notes::Note;
use crate::shell::word;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_media::{Access, MappedRegion};

/// A cache without a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Orphan {
    /// The cache's file.
    #[serde(with = "crate::json_path")]
    pub(crate) cache: PathBuf,
    /// Where its volume was.
    #[serde(with = "crate::json_path")]
    pub(crate) volume: PathBuf,
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cache, volume) = (self.cache.display(), self.volume.display());
        let next = "if that was moved, serve it where it is now, else";
        write!(f, "{cache} has blocks of {volume}, which is gone; {next}: rm {}", word(&self.cache))
    }
}

/// The folder of all caches.
pub(crate) fn folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

/// What the name of the cache of the volume in `pmem` ends with: which file that is.
///
/// # Errors
/// The system does not tell.
pub(crate) fn ending(pmem: &Path) -> io::Result<String> {
    let about = fs::metadata(pmem)?;
    let (device, file) = if about.rdev() == 0 { (about.dev(), about.ino()) } else { (about.rdev(), 0) };
    Ok(format!("-{device:x}-{file:x}.cache"))
}

/// All orphans that this user may read.
pub(crate) fn list() -> Vec<Orphan> {
    let entries = fs::read_dir(folder()).into_iter().flatten().flatten();
    let mut orphans: Vec<_> = entries.filter_map(|entry| orphan(entry.path())).collect();
    orphans.sort_by(|one, another| one.cache.cmp(&another.cache));
    orphans
}

fn orphan(cache: PathBuf) -> Option<Orphan> {
    let name = cache.file_name()?.to_str()?;
    if !name.starts_with("tidegate-") || !name.ends_with(".cache") {
        return None;
    }
    // A link leads to a file that may be used for anything.
    let is_file = cache.symlink_metadata().is_ok_and(|about| about.is_file());
    let volume = Note::Volume.read(&cache).filter(|_| is_file)?;
    let gone = match ending(&volume) {
        Ok(ending) => !name.ends_with(&ending),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    // A server that uses it has it locked.
    let left = gone && MappedRegion::open_if(&cache, Access::Private, |_| Ok(())).is_ok();
    left.then_some(Orphan { cache, volume })
}
