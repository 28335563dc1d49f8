//! The page in which this process says when it stored to the mapped pages of a file: see
//! [`StoreTimes`].

use crate::PAGE_BYTES;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tidegate_layout::file_cache::{LoggedTime, StoreTimes, later_modified_word, modified_word};
use tidegate_media::MappedRuns;

/// When a program changes a file, as the pool has it.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    modified_word(LoggedTime { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) })
}

/// The time page of a file, as this process has it mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Times {
    at: usize,
    /// Which page of the pool it is; 0: the service has none for the file.
    page: u32,
    /// Whether this process is one of those that the page counts.
    is_counted: bool,
}

impl Times {
    /// None.
    pub const NONE: Times = Times { at: 0, page: 0, is_counted: false };

    /// Maps the page of this number, and locks it.
    pub fn map(pool: BorrowedFd<'_>, page: u32) -> Result<Times, Errno> {
        if page == 0 {
            return Ok(Times::NONE);
        }
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        // SAFETY: a new mapping overlaps no other.
        let runs = unsafe { MappedRuns::reserve(std::ptr::null_mut(), PAGE_BYTES, MapFlags::empty()) };
        let runs = runs.map_err(failed)?;
        let place = (u64::from(page) * PAGE_BYTES as u64, PAGE_BYTES);
        if let Err(error) = runs.put(0, pool, place, ProtFlags::READ | ProtFlags::WRITE) {
            // SAFETY: nobody was told.
            unsafe { runs.give_up() };
            return Err(failed(error));
        }
        let times = Times { at: runs.base().expose_provenance(), page, is_counted: true };
        // Relaxed: the service looks when the lock is gone, which orders it.
        times.mappers().fetch_add(1, Ordering::Relaxed);
        Ok(times)
    }

    /// Whether it is this page of the pool.
    pub fn is_page(&self, page: u32) -> bool {
        self.page == page
    }

    /// Whether this process is to say when it ends.
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Whether it is the same mapping.
    pub fn is_at(&self, other: &Times) -> bool {
        self.at == other.at
    }

    /// Says that mapped pages were stored to, now: durable after this thread's next fence.
    pub fn say(&self) {
        if self.at == 0 {
            return;
        }
        let stored: &AtomicU64 = self.word(StoreTimes::STORED_AT);
        // Relaxed: the word is all that is said. If two processes say it at once, either time is
        // right.
        let before = u64::from_le(stored.load(Ordering::Relaxed));
        stored.store(later_modified_word(before, now()).to_le(), Ordering::Relaxed);
        // SAFETY: L4.
        unsafe { MappedRuns::flush(std::ptr::with_exposed_provenance_mut(self.at), size_of::<u64>()) };
    }

    /// Says that all was said: this process stores to these pages no more, or says so anew.
    pub fn has_said_all(&self) {
        if self.is_counted {
            self.mappers().fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// This process is none of those that the page counts: it has said all, or is a child of the
    /// one that mapped it.
    pub fn uncount(&mut self) {
        self.is_counted = false;
    }

    /// Gives the page back, which is used no more.
    pub fn end(self) {
        if self.at == 0 {
            return;
        }
        self.has_said_all();
        // SAFETY: nothing names it any more.
        let _ = unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(self.at), PAGE_BYTES) };
    }

    fn mappers(&self) -> &AtomicU32 {
        self.word(StoreTimes::MAPPERS_AT)
    }

    /// A word of the page, which is mapped.
    fn word<T>(&self, within: u64) -> &T {
        let at = self.at + usize::try_from(within).unwrap_or(0);
        // SAFETY: L4.
        unsafe { &*std::ptr::with_exposed_provenance(at) }
    }
}
