//! The pool of a mount, found by a directory: by MOUNTPOINT or SOURCE.

use crate::lifecycle::found::FoundMount;
use crate::pool::default_pool;
use crate::pool::record::path_of;
use std::path::{Path, PathBuf};
use tidegate_host::files::mount_table::{self, MountedFileSystem};
use tidegate_host::processes;
use tidegate_mount_transport::KIND;
use tidegate_source_files::SourceDirectory;
use tidegate_source_files::mark::PoolMark;

/// The pool that `path` means: that of the mount, if it is a mountpoint or a SOURCE; else itself.
pub fn pool_of(path: &Path) -> PathBuf {
    // A mountpoint is not looked at, as its service may not answer.
    let mountpoint = mount_table::resolved(path).ok().filter(|path| shown_at(path).is_some());
    let directory = mountpoint.or_else(|| if path.is_dir() { path.canonicalize().ok() } else { None });
    directory
        .and_then(|directory| pool_at(&directory, shown_at(&directory).as_ref()))
        .unwrap_or_else(|| path.to_owned())
}

/// The pool of the mount that shows `file`, or whose SOURCE has it, and the path of the file there.
pub(crate) fn mount_with(file: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut above = file.ancestors().skip(1);
    above.find_map(|folder| {
        let shown = shown_at(folder);
        let pool = pool_at(folder, shown.as_ref())?;
        let below = file.strip_prefix(folder).ok()?;
        // A bind mount shows a folder of the mount.
        let root = shown.as_ref().and_then(|mount| mount.root.strip_prefix("/").ok());
        Some((pool, root.map_or_else(|| below.to_owned(), |root| root.join(below))))
    })
}

/// The pool of the mount that is `shown` at `directory`, or whose SOURCE that is.
fn pool_at(directory: &Path, shown: Option<&MountedFileSystem>) -> Option<PathBuf> {
    let Some(mount) = shown else { return pool_of_source(directory) };
    let source = Path::new(&mount.source_name);
    // A mount over SOURCE itself covers the mark: its service tells by what it has open.
    pool_of_source(source).or_else(|| {
        let (mounts, _) = FoundMount::among(processes::of_this_user());
        let is_of = |mount: &FoundMount| mount.recorded_source().is_some_and(|recorded| recorded == source);
        mounts.into_iter().find(is_of).map(|mount| mount.pool)
    })
}

/// The mount of ours at `directory`, if there is one.
fn shown_at(directory: &Path) -> Option<MountedFileSystem> {
    mount_table::at(directory).filter(|mounted| mounted.kind == KIND)
}

/// The pool that SOURCE is marked with, or the default one if that is in use for a mount. A mount
/// over SOURCE itself covers the mark.
pub(crate) fn pool_of_source(source: &Path) -> Option<PathBuf> {
    let mark = SourceDirectory::open(source).ok().and_then(|opened| PoolMark::read(&opened).ok().flatten());
    let default = || Some(default_pool(source)).filter(|pool| path_of(pool).exists());
    mark.map(|mark| mark.pool).or_else(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_leads_to_the_pool_it_is_marked_with_and_a_file_to_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(pool_of(folder.path()), folder.path());
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        let pool = "/mnt/pmem/a.pool".into();
        let mark = PoolMark { id: "a".to_owned(), pool, mode: 0o755, inode: 0, generation: 0 };
        mark.write(&source).expect("written");
        assert_eq!(pool_of(folder.path()), Path::new("/mnt/pmem/a.pool"));
        assert_eq!(pool_of(Path::new("/mnt/pmem/a.pool")), Path::new("/mnt/pmem/a.pool"));
    }
}
