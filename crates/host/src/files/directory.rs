//! Reading directories.
//!
//! The offset of an entry is the file system's own cookie: it stays right while other entries come
//! and go, and after the directory was closed.

use rustix::fd::AsFd;
use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Result;

/// Bytes that the kernel fills with entries at a time.
const BUFFER_BYTES: usize = 32 << 10;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// The number of its inode.
    pub inode: u64,
    /// What it is, if the file system says so.
    pub kind: FileType,
    /// Where the entries behind this one begin.
    pub next: u64,
}

/// Calls `each` with the entries from `offset` on, until it answers false or there are no more.
pub fn for_each_entry(directory: impl AsFd, offset: u64, mut each: impl FnMut(Entry) -> Result<bool>) -> Result<()> {
    seek(&directory, SeekFrom::Start(offset))?;
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut entries = RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let entry = Entry {
            name: entry.file_name().to_bytes().to_vec(),
            inode: entry.ino(),
            kind: entry.file_type(),
            next: entry.next_entry_cookie(),
        };
        if !each(entry)? {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with the name, inode and kind of every entry but `.` and `..`.
pub fn for_each_name(directory: impl AsFd, mut each: impl FnMut(&[u8], u64, FileType)) -> Result<()> {
    for_each_entry(directory, 0, |entry| {
        if !is_dots(&entry.name) {
            each(&entry.name, entry.inode, entry.kind);
        }
        Ok(true)
    })
}

/// Whether a name is `.` or `..`.
pub fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn entries_go_on_where_the_last_one_said() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..100 {
            std::fs::write(folder.path().join(format!("file {number}")), b"").expect("made");
        }
        let directory = File::open(folder.path()).expect("a directory");
        let mut all = Vec::new();
        for_each_entry(&directory, 0, |entry| {
            all.push(entry);
            Ok(true)
        })
        .expect("readable");
        assert_eq!(all.len(), 102);
        let mut rest = Vec::new();
        for_each_entry(&directory, all[49].next, |entry| {
            rest.push(entry);
            Ok(rest.len() < 10)
        })
        .expect("readable");
        assert_eq!(rest, all[50..60]);
    }
}
