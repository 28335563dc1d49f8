//! What killed runs left, as far as it lies in default places: pools whose journal is still there,
//! and folders that nobody listens in.

use super::beside::Beside;
use super::folder::NAME;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_host::default_paths;
use tidegate_host::owned;
use tidegate_host::processes::Process;
use tidegate_host::shell::word;
use tidegate_media::{Access, MapError, MappedRegion};
use tidegate_preload_wire::SOCKET;

/// A pool that has what a run left.
#[derive(Debug, Serialize)]
pub struct LeftPool {
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
    command: String,
}

impl fmt::Display for LeftPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pool, command) = (self.pool.display(), &self.command);
        write!(
            f,
            "the pool {pool} was left by a run that did not end well; this brings what it has to its files: {command}"
        )
    }
}

/// The folder of a run that is gone.
#[derive(Debug, Serialize)]
pub struct LeftFolder {
    #[serde(with = "tidegate_host::json_path")]
    folder: PathBuf,
    command: String,
}

impl fmt::Display for LeftFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (folder, command) = (self.folder.display(), &self.command);
        write!(
            f,
            "{folder} was left by a run that was killed; `tidegate recover` of its pool removes it, or: {command}"
        )
    }
}

/// Whether `process` looks after a run.
pub fn is_supervisor(process: &Process) -> bool {
    process.sockets.iter().any(|socket| socket.parent().is_some_and(is_named))
}

fn is_named(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(NAME.as_bytes()))
}

/// Pools in this user's state folder that have a journal and no run.
pub fn left_pools() -> Vec<LeftPool> {
    let folder = default_paths::default_pool();
    let entries = folder.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let pools = entries.filter_map(|entry| {
        let journal = entry.path();
        let pool = journal.with_extension("");
        (journal.extension()? == "holds" && Beside::of(&pool).journal() == journal && is_unused(&pool)).then_some(pool)
    });
    let mut left: Vec<_> =
        pools.map(|pool| LeftPool { command: format!("tidegate recover {}", word(&pool)), pool }).collect();
    left.sort_by(|one, other| one.pool.cmp(&other.pool));
    left
}

/// Whether nobody has the pool locked that is there.
fn is_unused(pool: &Path) -> bool {
    pool.exists() && !matches!(MappedRegion::open(pool, Access::Private), Err(MapError::InUse { .. }))
}

/// Folders of runs that belong to this user (for root, to every user), and in which nobody listens
/// any more.
pub fn left_folders() -> Vec<LeftFolder> {
    let is_own = |folder: &Path| {
        let about = folder.symlink_metadata();
        about.is_ok_and(|about| about.is_dir() && (owned::own() == 0 || about.uid() == owned::own()))
    };
    let is_dead = |folder: &Path| {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        let answer = UnixStream::connect(folder.join(SOCKET));
        answer.is_err_and(|error| matches!(error.kind(), ConnectionRefused | NotFound))
    };
    let mut above = vec![default_paths::passing_folder(), "/tmp".into()];
    above.dedup();
    let entries = above.into_iter().filter_map(|above| fs::read_dir(above).ok()).flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).filter(|path| is_named(path)).collect();
    folders.retain(|folder| is_own(folder) && is_dead(folder));
    folders.sort();
    let left = |folder: PathBuf| LeftFolder { command: format!("rm -r {}", word(&folder)), folder };
    folders.into_iter().map(left).collect()
}
