//! Atomic groups of writes: F2FS's `ioctl`s, which SQLite looks for
//! (`SQLITE_ENABLE_BATCH_ATOMIC_WRITE`), and how their bytes stay out of the kernel's page cache.
//!
//! The kernel drops a page when the answer to its write is short, or an error. So a write that may
//! leave a page whole is answered short by one byte; the program writes that byte next, which
//! leaves the page dropped. A write of a single byte cannot be short: it is interrupted, which
//! drops the page, and the program writes it again. A write past the page cache (`O_DIRECT`) is
//! taken whole: the kernel drops its pages by itself.

use crate::operation::Write;
use crate::reply::Reply;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// `F2FS_FEATURE_ATOMIC_WRITE`.
const FEATURE_GROUPS: u32 = 4;

/// An `ioctl` of F2FS about atomic groups of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommand {
    /// `F2FS_IOC_GET_FEATURES`.
    Features,
    /// `F2FS_IOC_START_ATOMIC_WRITE`.
    Begin,
    /// `F2FS_IOC_COMMIT_ATOMIC_WRITE`.
    Commit,
    /// `F2FS_IOC_ABORT_ATOMIC_WRITE`.
    Abort,
}

impl GroupCommand {
    /// Returns the command with this number, if it is one.
    pub fn of(number: u32) -> Option<GroupCommand> {
        Some(match number {
            0x8004_f50c => GroupCommand::Features,
            0xf501 => GroupCommand::Begin,
            0xf502 => GroupCommand::Commit,
            0xf505 => GroupCommand::Abort,
            _ => return None,
        })
    }
}

impl<'a> Reply<'a> {
    /// Answers [`GroupCommand::Features`]: there are groups. `None`: `buffer` is too short.
    pub fn group_features(buffer: &'a mut [u8]) -> Option<Reply<'a>> {
        let output = buffer.first_chunk_mut()?;
        *output = FEATURE_GROUPS.to_ne_bytes();
        Some(Reply::ioctl(0, output))
    }
}

/// The pages of a file that the kernel has dropped for a group.
#[derive(Clone, Debug)]
pub struct DroppedPages {
    page_bytes: usize,
    pages: BTreeSet<u64>,
}

impl DroppedPages {
    /// Returns the pages of a group that begins.
    pub fn none(page_bytes: usize) -> DroppedPages {
        DroppedPages { page_bytes, pages: BTreeSet::new() }
    }

    /// Returns how many bytes of a write are taken, so that the kernel drops its pages; `None`: it
    /// is interrupted (`EINTR`).
    pub fn take(&mut self, write: &Write<'_>) -> Option<usize> {
        let (at, len) = (write.offset, write.data.len());
        if write.past_page_cache {
            self.pages.extend(self.pages_of(at, len));
            return Some(len);
        }
        let behind = usize::try_from(at % self.page_bytes as u64).unwrap_or(0);
        let in_page = len.min(self.page_bytes - behind);
        let was_dropped = !self.pages.insert(self.page_of(at));
        let stays_dropped = was_dropped && in_page < self.page_bytes;
        let taken = if stays_dropped { in_page } else { in_page.saturating_sub(1) };
        (taken > 0).then_some(taken)
    }

    /// Whether a range has bytes in one of the pages.
    pub fn has_any(&self, at: u64, len: usize) -> bool {
        self.pages.range(self.pages_of(at, len)).next().is_some()
    }

    /// Pages that a range touches, at least one.
    fn pages_of(&self, at: u64, len: usize) -> RangeInclusive<u64> {
        self.page_of(at)..=self.page_of(at + (len as u64).max(1) - 1)
    }

    fn page_of(&self, at: u64) -> u64 {
        at / self.page_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;

    const PAGE: usize = 4096;

    /// A write through the page cache.
    fn write(offset: u64, len: usize) -> Write<'static> {
        const BYTES: &[u8] = &[1; 3 * PAGE];
        Write {
            handle: Handle(1),
            offset,
            data: &BYTES[..len],
            flags: 0,
            from_page_cache: false,
            past_page_cache: false,
            kill_privileges: false,
        }
    }

    #[test]
    fn no_write_leaves_a_page_whole_in_the_kernel() {
        let mut pages = DroppedPages::none(PAGE);
        assert_eq!(pages.take(&write(0, 3 * PAGE)), Some(PAGE - 1));
        assert_eq!(pages.take(&write(PAGE as u64 - 1, 1)), Some(1));
        assert_eq!(pages.take(&write(0, PAGE)), Some(PAGE - 1), "a whole page is short each time");
        assert_eq!(pages.take(&write(100, PAGE)), Some(PAGE - 100), "up to the page's end");
        assert_eq!(pages.take(&write(9 * PAGE as u64, 1)), None, "it cannot be short");
        assert_eq!(pages.take(&write(9 * PAGE as u64, 1)), Some(1), "it was dropped");
        assert_eq!(pages.take(&write(20 * PAGE as u64 + 5, 2)), Some(1));
    }

    #[test]
    fn a_write_past_the_page_cache_is_taken_whole() {
        let mut pages = DroppedPages::none(PAGE);
        assert_eq!(pages.take(&Write { past_page_cache: true, ..write(100, 2 * PAGE) }), Some(2 * PAGE));
        assert!(pages.has_any(0, 1) && pages.has_any(2 * PAGE as u64, 1) && !pages.has_any(3 * PAGE as u64, 1));
        assert_eq!(pages.take(&write(2 * PAGE as u64 + 8, 1)), Some(1), "its page was dropped");
    }

    #[test]
    fn a_range_has_pages_that_it_touches() {
        let mut pages = DroppedPages::none(PAGE);
        pages.take(&write(PAGE as u64, 10));
        assert!(!pages.has_any(0, PAGE) && !pages.has_any(2 * PAGE as u64, PAGE));
        assert!(pages.has_any(0, PAGE + 1) && pages.has_any(2 * PAGE as u64 - 1, 0));
    }

    #[test]
    fn numbers_of_other_commands_are_none() {
        assert_eq!(GroupCommand::of(0xf502), Some(GroupCommand::Commit));
        assert_eq!(GroupCommand::of(0xf503), None);
    }
}
