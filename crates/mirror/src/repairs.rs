//! Which lines of side 0 were stored anew.

use tidegate_media::sync::{AtomicU64, Mutex, Ordering};

/// Lines repaired in one opening, at most: each fence compares them.
pub(crate) const REPAIRED_LINES_MAX: usize = 256;

/// The lines repaired since the opening.
#[derive(Default)]
pub(crate) struct Repairs {
    /// Their number: written under the lock, and read by fences with Acquire before they take it.
    count: AtomicU64,
    pub(crate) lines: Mutex<Vec<u64>>,
}

impl Repairs {
    /// Notes their number.
    pub(crate) fn counted(&self, lines: usize) {
        self.count.store(lines as u64, Ordering::Release);
    }

    /// Their number.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}
