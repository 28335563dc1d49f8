//! A file mapped for loads: its pages in the page cache are read without a system call.

use crate::memory::{Instructions, Mapping, Sharing};
use rustix::fd::BorrowedFd;
use rustix::fs::fstatfs;
use std::io;

/// File systems whose files have one cache for `write` and for mappings (the magic numbers of
/// `statfs`): ext2 to ext4, XFS, Btrfs, F2FS, tmpfs. Where that is not so, or not known to be so, a
/// mapping may be older than what was written.
const ONE_CACHE: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// A view of the first bytes of a file in the page cache, which other processes write, cut and
/// lengthen meanwhile. If a page is stored to while it is read, any of its bytes may be old and
/// others new, as with `read`.
pub struct MappedFile {
    mapping: Mapping,
    instructions: Instructions,
}

impl MappedFile {
    /// A view of the first `len` bytes of `file`, which is open for reading and may be shorter, or
    /// closed while the view is there. Children that are forked do not have it. EOPNOTSUPP if the
    /// file system is none whose views are known to show what was written.
    pub fn of(file: BorrowedFd<'_>, len: usize) -> io::Result<MappedFile> {
        if !ONE_CACHE.contains(&(fstatfs(file)?.f_type as u64)) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let mapping = Mapping::of_file(file, len, Sharing::ReadOnly)?;
        mapping.keep_from_children()?;
        mapping.expect_no_order()?;
        Ok(MappedFile { mapping, instructions: Instructions::best(false) })
    }

    /// How many bytes of the file it shows, if the file has as many.
    pub fn len(&self) -> u64 {
        self.mapping.len()
    }

    /// Whether it shows none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` from byte `at` on. False: it cannot be read here, be it that it ends behind the
    /// view or the file's last page, or that the disk refuses it; what `out` has then means
    /// nothing. Bytes behind the file's end, in its last page, may be any.
    pub fn read(&self, at: u64, out: &mut [u8]) -> bool {
        let inside = at.checked_add(out.len() as u64).is_some_and(|end| end <= self.len());
        inside && self.mapping.read(self.instructions, at, out).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_view_shows_what_was_written_as_far_as_the_file_goes() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(6000).expect("longer");
        let view = MappedFile::of(file.as_fd(), 1 << 20).expect("a view");
        let read = |at, len| {
            let mut out = vec![9; len];
            view.read(at, &mut out).then_some(out)
        };
        assert_eq!((view.len(), view.is_empty()), (1 << 20, false));
        file.write_all_at(&[5; 100], 4090).expect("written");
        assert_eq!(read(4089, 3), Some(vec![0, 5, 5]));
        assert_eq!((read(8192, 1), read(4096, 4097)), (None, None), "the file's last page ends at 8192");
        file.write_all_at(&[6; 1], 8192).expect("written");
        assert_eq!(read(8191, 2), Some(vec![0, 6]), "the file is longer now");
        file.set_len(10).expect("shorter");
        assert_eq!((read(0, 1), read(4096, 1)), (Some(vec![0]), None));
        assert_eq!((read(1 << 20, 0), read(1 << 20, 1), read(u64::MAX, 2)), (Some(vec![]), None, None));
    }

    #[test]
    fn files_of_other_systems_have_none() {
        let file = File::open("/proc/self/maps").expect("a file of the kernel's");
        let error = MappedFile::of(file.as_fd(), 4096).err().expect("no view");
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
