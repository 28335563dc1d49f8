//! How a held file is read: from the kernel's pages where they can be mapped, which takes a third
//! of the time of a system call and its copy.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use tidegate_media::MappedFile;

/// Bytes of a view at least, and at most: what lies behind is read by the system. Page tables for
/// so much take 2 MiB.
const VIEW_BYTES: (u64, u64) = (1 << 20, 1 << 30);

/// What is known of one file.
#[derive(Default)]
pub(super) struct Sight(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    view: View,
    /// Bytes that the file had at some time.
    size: u64,
}

#[derive(Default)]
enum View {
    #[default]
    NotYet,
    Mapped(MappedFile),
    /// It cannot be mapped, or what is mapped could be older than what was written.
    None,
}

impl Sight {
    /// Fills `block` from byte `at` of `file` on, behind its end with zeroes. False: the system is
    /// to read it.
    ///
    /// The size is asked if `block` ends behind that of the last time. Should the file be shorter
    /// since, whole pages behind its end are refused, and the kernel has put zeroes into the rest
    /// of its last page; only who stores to a mapping of that page could put others there.
    pub(super) fn read(&self, file: &File, at: u64, block: &mut [u8]) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = at.checked_add(block.len() as u64) else { return false };
        if end > seen.size {
            let Ok(stat) = rustix::fs::fstat(file) else { return false };
            seen.size = stat.st_size.unsigned_abs();
        }
        let inside = usize::try_from(seen.size.saturating_sub(at)).unwrap_or(usize::MAX).min(block.len());
        let (there, behind) = block.split_at_mut(inside);
        behind.fill(0);
        seen.reach(file, at + inside as u64).is_some_and(|view| view.read(at, there))
    }
}

impl Seen {
    /// A view of the first `end` bytes at least.
    fn reach(&mut self, file: &File, end: u64) -> Option<&MappedFile> {
        let has_all = match &self.view {
            View::NotYet => false,
            View::Mapped(view) => end <= view.len(),
            View::None => true,
        };
        if !has_all && end <= VIEW_BYTES.1 {
            let len = self.size.max(end).next_power_of_two().clamp(VIEW_BYTES.0, VIEW_BYTES.1);
            let view = usize::try_from(len).ok().and_then(|len| MappedFile::of(file.as_fd(), len).ok());
            self.view = view.map_or(View::None, View::Mapped);
        }
        match &self.view {
            View::Mapped(view) => Some(view),
            View::NotYet | View::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// What a sight has of `len` bytes, if it has them.
    fn read(sight: &Sight, file: &File, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut block = vec![9; len];
        sight.read(file, at, &mut block).then_some(block)
    }

    #[test]
    fn a_file_is_seen_as_it_is_when_it_grows_and_when_it_is_cut() {
        let (file, sight) = (tempfile::tempfile().expect("a file"), Sight::default());
        assert_eq!(read(&sight, &file, 0, 2), Some(vec![0, 0]), "nothing is there");
        file.write_all_at(&[7; 5000], 0).expect("written");
        assert_eq!(read(&sight, &file, 4998, 4), Some(vec![7, 7, 0, 0]));
        let far = VIEW_BYTES.0 * 3;
        file.write_all_at(&[8; 10], far).expect("written");
        assert_eq!(read(&sight, &file, far + 8, 4), Some(vec![8, 8, 0, 0]), "the view is longer now");
        assert_eq!(read(&sight, &file, 4999, 2), Some(vec![7, 0]));
        file.set_len(4999).expect("cut");
        assert_eq!(read(&sight, &file, 4998, 4), Some(vec![7, 0, 0, 0]));
        assert_eq!(read(&sight, &file, far, 1), None, "the system says that this is behind the end");
        assert_eq!(read(&sight, &file, u64::MAX, 2), None);
    }

    #[test]
    fn what_lies_far_behind_or_cannot_be_mapped_is_left_to_the_system() {
        let (file, sight) = (tempfile::tempfile().expect("a file"), Sight::default());
        file.set_len(VIEW_BYTES.1 + 8192).expect("longer");
        assert_eq!(read(&sight, &file, VIEW_BYTES.1 - 1, 2), None);
        assert_eq!(read(&sight, &file, VIEW_BYTES.1 - 1, 1), Some(vec![0]));
        let (other, sight) = (File::open("/proc/self/maps").expect("a file of the kernel's"), Sight::default());
        assert_eq!(read(&sight, &other, 0, 1), None);
    }
}
