//! Files of write caches that killed servers left in shared memory: blocks that the next server of
//! the volume completes, or, if the volume is gone, blocks that no server completes and only
//! their owner removes.
//!
//! A cache's file carries the path of its volume in an extended attribute. Where the file system
//! keeps no attributes, no file is told of. Every user may make any name in that
//! folder, so only files of trusted users are told of.

use serde::Serialize;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_host::owned;
use tidegate_host::shell::word;
use tidegate_media::{Access, MappedRegion};
use tidegate_volume_region::xattrs::Xattr;
use uuid::Uuid;

/// A cache that no server uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// The cache's file.
    #[serde(with = "tidegate_host::json_path")]
    pub cache: PathBuf,
    /// Its volume.
    #[serde(with = "tidegate_host::json_path")]
    pub volume: PathBuf,
    /// Whether the volume is still there.
    pub state: LeftoverState,
    /// The command that completes it, or removes it.
    pub command: String,
}

/// What a cache is left of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverState {
    /// A volume whose next server completes it.
    Unfinished,
    /// A volume that is not where it was.
    VolumeGone,
}

impl Leftover {
    fn new(cache: PathBuf, volume: PathBuf, state: LeftoverState) -> Leftover {
        let command = match state {
            LeftoverState::Unfinished => format!("tidegate serve --pmem {}", word(&volume)),
            LeftoverState::VolumeGone => format!("rm {}", word(&cache)),
        };
        Leftover { cache, volume, state, command }
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cache, volume, command) = (self.cache.display(), self.volume.display(), &self.command);
        match self.state {
            LeftoverState::Unfinished => {
                write!(f, "{cache} has blocks of {volume} that a killed server left; this completes them: {command}")
            }
            LeftoverState::VolumeGone => write!(
                f,
                "{cache} has blocks of {volume}, which is gone; if that was moved, serve it where it is now, else: {command}"
            ),
        }
    }
}

/// The folder of all caches.
pub fn folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

/// What the name of the cache of the volume in `pmem` ends with: which file that is.
///
/// # Errors
/// The system does not tell.
pub fn ending(pmem: &Path) -> io::Result<String> {
    let about = fs::metadata(pmem)?;
    let (device, file) = if about.rdev() == 0 { (about.dev(), about.ino()) } else { (about.rdev(), 0) };
    Ok(format!("-{device:x}-{file:x}.cache"))
}

/// All that belong to this user; for root those of every user.
pub fn of_this_user() -> Vec<Leftover> {
    let left = caches("tidegate-".to_owned()).filter(|(_, owner)| owned::own() == 0 || *owner == owned::own());
    sorted(left.filter_map(|(cache, _)| {
        let volume = Xattr::Volume.read(&cache)?;
        let state = if is_of(&cache, &volume)? { LeftoverState::Unfinished } else { LeftoverState::VolumeGone };
        Some(Leftover::new(cache, volume, state))
    }))
}

/// Those of the volume `uuid` in `pmem`: its own, and those of the same volume in a file that is
/// gone. Only files of this user, of root and of the region's owner count.
pub fn of_volume(pmem: &Path, uuid: Uuid) -> Vec<Leftover> {
    let Ok(about) = fs::metadata(pmem) else { return Vec::new() };
    let owners = [owned::own(), 0, about.uid()];
    let left = caches(format!("tidegate-{uuid}")).filter(|(_, owner)| owners.contains(owner));
    sorted(left.filter_map(|(cache, _)| {
        if is_of(&cache, pmem)? {
            return Some(Leftover::new(cache, pmem.to_owned(), LeftoverState::Unfinished));
        }
        let volume = Xattr::Volume.read(&cache)?;
        (!is_of(&cache, &volume)?).then(|| Leftover::new(cache, volume, LeftoverState::VolumeGone))
    }))
}

fn sorted(left: impl Iterator<Item = Leftover>) -> Vec<Leftover> {
    // A server that uses one has it locked.
    let is_unused = |left: &Leftover| MappedRegion::open_if(&left.cache, Access::Private, |_| Ok(())).is_ok();
    let mut left: Vec<_> = left.filter(is_unused).collect();
    left.sort_by(|one, another| one.cache.cmp(&another.cache));
    left
}

/// Files of caches whose names begin so, and who owns them.
fn caches(beginning: String) -> impl Iterator<Item = (PathBuf, u32)> {
    let entries = fs::read_dir(folder()).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let cache = entry.path();
        let name = cache.file_name()?.to_str()?;
        // A link leads to a file that may be used for anything.
        let about = cache.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
        (name.starts_with(&beginning) && name.ends_with(".cache")).then(|| (cache.clone(), about.uid()))
    })
}

/// Whether `cache` is that of the volume at `volume`; None if nobody can tell.
fn is_of(cache: &Path, volume: &Path) -> Option<bool> {
    match ending(volume) {
        Ok(ending) => Some(cache.file_name()?.to_str()?.ends_with(&ending)),
        Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(false),
    }
}
