//! What lies beside a pool, found again by whatever name leads to the pool.

use crate::failure::{Failure, RunFailure};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tidegate_host::default_paths;
use tidegate_media::Domain;

/// The pool's own path with an ending, or a path in the user's state folder if the pool is a
/// device: the folder of devices is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    pool: PathBuf,
    base: PathBuf,
}

impl Beside {
    /// What lies beside `pool`, which may be absent.
    pub(super) fn of(pool: &Path) -> Beside {
        let pool = real(pool);
        let is_device = pool.metadata().is_ok_and(|data| data.file_type().is_char_device());
        let base = if is_device { in_state_folder(&pool) } else { pool.clone() };
        Beside { pool, base }
    }

    /// The pool as the kernel names it.
    pub(super) fn pool(&self) -> &Path {
        &self.pool
    }

    /// The journal of holds.
    pub(super) fn journal(&self) -> PathBuf {
        self.ending(".holds")
    }

    /// Where what cannot go to its file goes if nobody says otherwise.
    pub(super) fn salvaged(&self) -> PathBuf {
        self.ending(".salvaged")
    }

    fn ending(&self, ending: &str) -> PathBuf {
        let mut name = self.base.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }

    /// Refuses a journal that a power cut takes while it leaves the pool: nobody would know then
    /// which files the pool has blocks of.
    pub(super) fn refuse_in_memory(&self, domain: Domain) -> Result<(), Failure> {
        let journal = self.journal();
        let folder = journal.parent().unwrap_or(Path::new("/"));
        let file_system = rustix::fs::statfs(folder).map(|found| found.f_type as u64);
        let in_memory = file_system.is_ok_and(|found| IN_MEMORY.contains(&found));
        if matches!(domain, Domain::PowerFail { .. }) && in_memory {
            let why = format!("its journal {} would be lost with the power", journal.display());
            return Err(RunFailure::Pool { pool: self.pool.clone(), why }.into());
        }
        Ok(())
    }
}

/// The magic numbers of tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// `pool` without links, as far as it is there.
fn real(pool: &Path) -> PathBuf {
    let folder = pool.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let in_real_folder = || Some(folder.canonicalize().ok()?.join(pool.file_name()?));
    pool.canonicalize().ok().or_else(in_real_folder).unwrap_or_else(|| pool.to_owned())
}

fn in_state_folder(pool: &Path) -> PathBuf {
    let name = pool.to_string_lossy().trim_start_matches('/').replace('/', "-");
    default_paths::default_pool().with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_name_of_a_pool_leads_to_one_journal() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        let pool = folder.join("pool");
        let before = Beside::of(&pool);
        std::fs::write(&pool, "").expect("a file");
        symlink(&pool, folder.join("link")).expect("a link");
        symlink(&folder, folder.join("folder")).expect("a link");
        for name in ["pool", "link", "folder/pool", "folder/link"] {
            assert_eq!(Beside::of(&folder.join(name)), before, "{name}");
        }
        assert_eq!((before.journal(), before.salvaged()), (folder.join("pool.holds"), folder.join("pool.salvaged")));
    }

    #[test]
    fn the_journal_of_a_device_is_not_in_the_folder_of_devices() {
        let beside = Beside::of(Path::new("/dev/null"));
        assert_eq!(beside.pool(), Path::new("/dev/null"));
        assert_eq!(beside.journal(), default_paths::default_pool().with_file_name("dev-null.holds"));
    }

    #[test]
    fn a_pool_that_outlives_the_power_has_no_journal_in_memory() {
        let refused = |domain| Beside::of(Path::new("/dev/shm/pool")).refuse_in_memory(domain).is_err();
        assert!(refused(Domain::PowerFail { caches_included: false }), "/dev/shm is in memory");
        assert!(!refused(Domain::ProcessCrash));
    }
}
