//! The mark on SOURCE: an extended attribute that names the pool which may have what files lack.
//!
//! The record beside a pool says which SOURCE the pool belongs to; the mark says the opposite. So
//! SOURCE cannot be mounted with another pool while its own one has data, even if the pool or its
//! record is out of reach. The mark is durable before SOURCE is hidden and before the pool gets
//! its first file. It goes, durably, when SOURCE has everything again.
//!
//! A copy of SOURCE with its extended attributes has a mark that is about the original. It counts
//! for nothing there: the mark says which directory it was made for.
//!
//! A file system without extended attributes has no marks: there, only the record tells.

use crate::{SourceDirectory, about};
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, fsync};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::io;
use std::path::PathBuf;

/// The attribute's name. Programs do not see it through the mount.
pub const NAME: &CStr = c"user.tidegate.pool";

/// Most bytes of an attribute's value on any file system of Linux.
const VALUE_BYTES_MAX: usize = 1 << 16;

/// Which pool SOURCE belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMark {
    /// The number that the pool got when it was laid out.
    pub id: String,
    /// Where the pool was.
    #[serde(with = "tidegate_host::json_path")]
    pub pool: PathBuf,
    /// The permissions of SOURCE when it is not mounted.
    pub mode: u32,
    /// The inode of SOURCE itself; 0 in a mark of before this was written.
    #[serde(default)]
    pub inode: u64,
    /// Its generation.
    #[serde(default)]
    pub generation: u64,
}

impl PoolMark {
    /// Reads the mark of SOURCE, if it has one of its own.
    pub fn read(source: &SourceDirectory) -> Result<Option<PoolMark>, MarkFailure> {
        let doing = "reading the extended attribute user.tidegate.pool of SOURCE";
        let mut value = vec![0; VALUE_BYTES_MAX];
        match fgetxattr(source.root(), NAME, &mut value) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(failed(doing)(errno)),
            Ok(len) => {
                let mark: PoolMark = serde_json::from_slice(&value[..len])
                    .map_err(|error| MarkFailure { doing, error: error.into() })?;
                Ok(Some(mark).filter(|mark| mark.inode == 0 || mark.is_of(source)))
            }
        }
    }

    /// Whether the mark was made for this directory.
    fn is_of(&self, source: &SourceDirectory) -> bool {
        about(source.root()).is_ok_and(|about| {
            let root = source.identity(&about);
            (self.inode, self.generation) == (root.inode, root.generation)
        })
    }

    /// Marks SOURCE, durably, in place of a former mark.
    pub fn write(&self, source: &SourceDirectory) -> Result<(), MarkFailure> {
        let doing = "writing the extended attribute user.tidegate.pool of SOURCE";
        let value = serde_json::to_vec(self).map_err(|error| MarkFailure { doing, error: error.into() })?;
        match fsetxattr(source.root(), NAME, &value, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            set => set.and_then(|()| fsync(source.root())).map_err(failed(doing)),
        }
    }

    /// Removes the mark of SOURCE, durably.
    pub fn remove(source: &SourceDirectory) -> Result<(), MarkFailure> {
        let removed = match fremovexattr(source.root(), NAME) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => removed,
        };
        let durable = removed.and_then(|()| fsync(source.root()));
        durable.map_err(failed("removing the extended attribute user.tidegate.pool of SOURCE"))
    }
}

/// What could not be done with a mark.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {error}")]
pub struct MarkFailure {
    /// What.
    pub doing: &'static str,
    /// Why not.
    #[source]
    pub error: io::Error,
}

fn failed(doing: &'static str) -> impl FnOnce(Errno) -> MarkFailure {
    move |errno| MarkFailure { doing, error: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_until_it_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        assert_eq!(PoolMark::read(&source).expect("readable"), None);
        let mark =
            PoolMark { id: "a".to_owned(), pool: "/mnt/pmem/a b.pool".into(), mode: 0o755, inode: 0, generation: 0 };
        mark.write(&source).expect("written");
        let other = PoolMark { mode: 0o700, ..mark };
        other.write(&source).expect("written again");
        assert_eq!(PoolMark::read(&source).expect("readable"), Some(other));
        PoolMark::remove(&source).expect("removed");
        PoolMark::remove(&source).expect("it is gone already");
        assert_eq!(PoolMark::read(&source).expect("readable"), None);
    }

    #[test]
    fn a_mark_that_was_copied_from_another_directory_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        let root = source.identity(&about(source.root()).expect("readable"));
        let (inode, generation) = (root.inode, root.generation);
        let own = PoolMark { id: "a".to_owned(), pool: "/a.pool".into(), mode: 0o755, inode, generation };
        own.write(&source).expect("written");
        assert_eq!(PoolMark::read(&source).expect("readable"), Some(own.clone()));
        PoolMark { inode: inode + 1, ..own }.write(&source).expect("written");
        assert_eq!(PoolMark::read(&source).expect("readable"), None);
    }

    #[test]
    fn a_damaged_mark_is_no_absent_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        fsetxattr(source.root(), NAME, b"{", XattrFlags::empty()).expect("this file system has attributes");
        assert!(matches!(PoolMark::read(&source), Err(MarkFailure { .. })));
    }
}
