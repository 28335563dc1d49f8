//! The record beside a pool: which SOURCE it belongs to, and how SOURCE was before it was hidden.
//!
//! It is written before the pool gets its first file, durably, and removed when SOURCE has
//! everything again. While it is there, the pool may have what the files lack.

use crate::lifecycle::failure::ServiceFailure;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use tidegate_file_cache::FileIdentity;
use tidegate_host::files::folder_of;

/// What a pool belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountRecord {
    /// SOURCE.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) source: PathBuf,
    /// The inode of SOURCE itself.
    pub(crate) inode: u64,
    /// Its generation.
    pub(crate) generation: u64,
    /// The permissions of SOURCE when it is not mounted.
    pub(crate) mode: u32,
}

impl MountRecord {
    /// Whether this is the directory that was recorded.
    pub(crate) fn is_of(&self, root: FileIdentity) -> bool {
        (self.inode, self.generation) == (root.inode, root.generation)
    }

    /// Reads the record beside `pool`, if there is one.
    pub(crate) fn read(pool: &Path) -> Result<Option<MountRecord>, ServiceFailure> {
        let path = path_of(pool);
        let failed = ServiceFailure::of_file("read", &path);
        let mut text = String::new();
        match tidegate_host::owned::open(&path, OFlags::RDONLY).and_then(|mut file| file.read_to_string(&mut text)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
            Ok(_) => serde_json::from_str(&text).map(Some).map_err(|error| failed(error.into())),
        }
    }

    /// Writes the record beside `pool`, durably, in place of a former one.
    pub(crate) fn write(&self, pool: &Path) -> Result<(), ServiceFailure> {
        let path = path_of(pool);
        self.write_by(&path).map_err(ServiceFailure::of_file("write", &path))
    }

    fn write_by(&self, path: &Path) -> io::Result<()> {
        replaced(path, &serde_json::to_vec(self)?, File::sync_all)?;
        sync_folder_of(path)
    }

    /// Removes the record beside `pool`, durably.
    pub(crate) fn remove(pool: &Path) -> Result<(), ServiceFailure> {
        let path = path_of(pool);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_folder_of(&path)).map_err(ServiceFailure::of_file("remove", &path)),
        }
    }
}

/// Where the record of `pool` is.
pub(crate) fn path_of(pool: &Path) -> PathBuf {
    pool.with_added_extension("mount")
}

/// Writes a file in place of the one at `path`. `before` is done with it before it has that name.
pub(crate) fn replaced(path: &Path, bytes: &[u8], before: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let fresh = path.with_added_extension("new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(&fresh, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    before(&file)?;
    std::fs::rename(fresh, path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_record_is_read_as_it_was_written_whatever_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        assert_eq!(MountRecord::read(&pool).expect("readable"), None);
        let source = PathBuf::from(OsStr::from_bytes(b"/srv/\xff a"));
        let record = MountRecord { source, inode: 7, generation: u64::MAX, mode: 0o755 };
        record.write(&pool).expect("written");
        let other = MountRecord { mode: 0o700, ..record };
        other.write(&pool).expect("written again");
        assert_eq!(MountRecord::read(&pool).expect("readable"), Some(other));
        MountRecord::remove(&pool).expect("removed");
        MountRecord::remove(&pool).expect("it is gone already");
        assert_eq!(MountRecord::read(&pool).expect("readable"), None);
    }

    #[test]
    fn a_damaged_record_is_no_absent_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        std::fs::write(path_of(&pool), "{").expect("written");
        assert!(matches!(MountRecord::read(&pool), Err(ServiceFailure::File { .. })));
    }
}
