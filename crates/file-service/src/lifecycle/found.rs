//! Mounts that are there, by their processes, and what services of this user left that were killed:
//! pools in the state folder that have data of files, and memory of unsynced writes.

use crate::pool::record::MountRecord;
use crate::pool::volatile::{FOLDER, Volatile};
use crate::pool::{default_pool, is_pool};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;
use std::fs::{DirEntry, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_host::default_paths::volume_of_control_socket;
use tidegate_host::files::mount_table;
use tidegate_host::owned;
use tidegate_host::processes::Process;
use tidegate_mount_transport::KIND;

/// A mount, by its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMount {
    /// The process that keeps it alive.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// The pool.
    pub pool: PathBuf,
}

impl FoundMount {
    /// The mounts of `processes`, each once, as a supervisor and its server have one socket; and
    /// the processes that are of no mount.
    pub fn among(processes: Vec<Process>) -> (Vec<FoundMount>, Vec<Process>) {
        let mut mounts: Vec<FoundMount> = processes.iter().flat_map(FoundMount::of).collect();
        mounts.sort_by(|one, other| (&one.pool, one.pid).cmp(&(&other.pool, other.pid)));
        mounts.dedup_by(|one, other| one.pool == other.pool);
        let others = processes.into_iter().filter(|process| FoundMount::of(process).next().is_none());
        let others = others.collect();
        (mounts, others)
    }

    fn of(process: &Process) -> impl Iterator<Item = FoundMount> {
        let pools = process.control_sockets().into_iter().filter_map(|socket| volume_of_control_socket(socket));
        pools.filter(|pool| is_pool(pool)).map(|pool| FoundMount { pid: process.pid, user: process.user, pool })
    }

    /// SOURCE, as the pool's record names it: its service is not asked.
    pub fn recorded_source(&self) -> Option<PathBuf> {
        MountRecord::read(&self.pool).ok().flatten().map(|record| record.source)
    }

    /// Where the files are shown, as the table of mounts tells: its service is not asked. None: no
    /// mount that this process sees shows them.
    pub fn mountpoint(&self) -> Option<PathBuf> {
        let source = self.recorded_source()?;
        mount_table::all()
            .into_iter()
            .rev()
            .find_map(|(at, mounted)| (mounted.kind == KIND && mounted.source_name == source.as_os_str()).then_some(at))
    }
}

/// A pool that no service has, and that files of its SOURCE may need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftMountPool {
    /// The pool.
    #[serde(with = "tidegate_host::json_path")]
    pub pool: PathBuf,
    /// SOURCE.
    #[serde(with = "tidegate_host::json_path")]
    pub source: PathBuf,
}

/// A file of unsynced writes that no service has open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftMemory {
    /// The file.
    #[serde(with = "tidegate_host::json_path")]
    pub file: PathBuf,
    /// Its bytes of memory.
    pub bytes: u64,
}

/// The pools in this user's state folder that no service has, and that have a record.
pub fn left_mount_pools() -> Vec<LeftMountPool> {
    let folder = default_pool(Path::new("/")).parent().map(Path::to_owned).unwrap_or_default();
    let left = entries_of(&folder).filter_map(|entry| {
        let record = entry.path();
        let pool = record.with_extension("");
        let is_record = record.extension().is_some_and(|extension| extension == "mount");
        (is_record && !is_locked(&pool)).then_some(())?;
        let source = MountRecord::read(&pool).ok()??.source;
        Some(LeftMountPool { pool, source })
    });
    left.collect()
}

/// The memory of unsynced writes that is this user's, or for root any user's, and that no service
/// has.
pub fn left_memory() -> Vec<LeftMemory> {
    let left = entries_of(Path::new(FOLDER)).filter_map(|entry| {
        let (name, about) = (entry.file_name(), entry.metadata().ok()?);
        let is_ours = [about.uid(), 0].contains(&owned::own()) && about.is_file();
        (is_ours && Volatile::is_name(&name) && !is_locked(&entry.path())).then_some(())?;
        Some(LeftMemory { file: entry.path(), bytes: about.blocks() * 512 })
    });
    left.collect()
}

fn entries_of(folder: &Path) -> impl Iterator<Item = DirEntry> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Whether a process has the file for itself. One that cannot be looked at counts as such.
fn is_locked(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(opened) => flock(File::from(opened), FlockOperation::NonBlockingLockShared).is_err(),
        Err(rustix::io::Errno::NOENT) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::record::path_of;
    use tidegate_host::default_paths::control_socket;

    fn process(pid: u32, sockets: &[&Path]) -> Process {
        let sockets = sockets.iter().map(|socket| (*socket).to_owned()).collect();
        Process { pid, user: 7, sockets, locked: Vec::new() }
    }

    #[test]
    fn a_mount_is_found_once_by_the_process_that_keeps_it_alive() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two, volume] = ["one", "two", "volume"].map(|name| folder.path().join(name));
        for pool in [&one, &two] {
            std::fs::write(path_of(pool), "").expect("a record");
        }
        let [of_one, of_two, of_volume] = [&one, &two, &volume].map(|path| control_socket(path));
        let server = process(3, &[&of_volume]);
        let processes = vec![
            process(9, &[&of_one]),
            process(4, &[&of_two, Path::new("/a/v.sock")]),
            process(8, &[&of_one]),
            server.clone(),
        ];
        let found = |pid, pool: &Path| FoundMount { pid, user: 7, pool: pool.to_owned() };
        assert_eq!(FoundMount::among(processes), (vec![found(8, &one), found(4, &two)], vec![server]));
    }

    #[test]
    fn a_mount_without_a_record_tells_no_source() {
        let mount = FoundMount { pid: 1, user: 7, pool: "/nowhere/pool".into() };
        assert_eq!((mount.recorded_source(), mount.mountpoint()), (None, None));
    }

    #[test]
    fn memory_that_nobody_has_open_is_left_and_other_files_are_not_named() {
        let volatile = Volatile::of(*uuid::Uuid::new_v4().as_bytes());
        let memory = volatile.open_or_create(0, 1 << 20).expect("memory");
        let named = || left_memory().iter().any(|left| left.file.to_string_lossy().contains(&volatile.id()));
        assert!(!named(), "this process has it");
        drop(memory);
        assert!(named());
        volatile.remove(0).expect("removed");
        assert!(!named());
    }
}
