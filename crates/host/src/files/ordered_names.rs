//! File systems that lose operations on names in their order only: after a power loss, whoever
//! finds an operation done finds all earlier ones done too.

use rustix::fd::AsFd;
use rustix::fs::{FsWord, fstat, fstatfs, major, minor};
use rustix::io::Result;
use std::path::Path;

/// What `statfs` calls ext4, and with it ext2 and ext3.
const EXT_MAGIC: FsWord = 0xef53;

/// What `statfs` calls XFS.
const XFS_MAGIC: FsWord = 0x5846_5342;

/// Whether the file system of `directory` is such a one: XFS, or ext4 with a journal. Others are
/// not known to be.
pub fn has_ordered_names(directory: impl AsFd) -> Result<bool> {
    match fstatfs(&directory)?.f_type {
        XFS_MAGIC => Ok(true),
        EXT_MAGIC => Ok(has_journal(fstat(&directory)?.st_dev)),
        _ => Ok(false),
    }
}

/// Whether the ext4 file system of a device has a journal: it has a thread then.
fn has_journal(device: u64) -> bool {
    let device = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let Ok(device) = std::fs::read_link(device) else { return false };
    let Some(name) = device.file_name() else { return false };
    let task = std::fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("journal_task"));
    task.is_ok_and(|task| task.trim().parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn memory_is_not_known_to_keep_the_order() {
        assert_eq!(has_ordered_names(File::open("/proc").expect("it is there")), Ok(false));
        assert_eq!(has_ordered_names(File::open("/dev/shm").expect("it is there")), Ok(false));
    }
}
