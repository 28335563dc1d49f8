//! The folders above a file, made durable, so that a power cut leaves the file where the journal of
//! holds says that it is.

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Syncs each folder above `path`, as far up as its file system reaches; `below` is the file at
/// `path`, or its folder.
///
/// Which folder was renamed since it was durable cannot be told, and few file systems make that
/// durable with a sync of what lies below. If a folder may not be read, or takes no sync, all of
/// the file system is synced instead.
pub(super) fn sync_above(path: &Path, below: impl AsFd) -> io::Result<()> {
    for folder in path.ancestors().skip(1) {
        match sync(folder) {
            Ok(Reach::FileSystem) => return Ok(()),
            Ok(Reach::Folder) => {}
            Err(Errno::ACCESS | Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Ok(rustix::fs::syncfs(below)?);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What a folder is the top of.
enum Reach {
    Folder,
    FileSystem,
}

fn sync(folder: &Path) -> rustix::io::Result<Reach> {
    let folder = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::retry_on_intr(|| rustix::fs::fsync(&folder))?;
    let stat = rustix::fs::statx(&folder, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    // Kernels that do not say so have it go on to the root.
    let is_top = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(if is_top { Reach::FileSystem } else { Reach::Folder })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn folders_above_a_file_are_synced_as_long_as_they_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("a/b");
        std::fs::create_dir_all(&below).expect("folders");
        let path = below.join("file");
        let file = File::create(&path).expect("a file");
        sync_above(&path, &file).expect("every folder can be synced");
        std::fs::rename(folder.path().join("a"), folder.path().join("c")).expect("renamed");
        let moved = sync_above(&path, &file).expect_err("it is at another path");
        assert_eq!(moved.kind(), io::ErrorKind::NotFound);
        // Those of the kernel take no sync.
        let boot = Path::new("/proc/sys/kernel/random/boot_id");
        sync_above(boot, &file).expect("the file system is synced instead");
    }
}
