//! Reads that are admitted to the pool: noted when they were answered from below, and carried out
//! by a thread of its own a few times a second.
//!
//! Of a file of which the pool has a record, its placement decides. Of any other:
//!
//! | read | is admitted |
//! | --- | --- |
//! | of bytes that were not read from below lately | no |
//! | as part of a run of more than [`RUN_BLOCKS_MAX`] blocks, as by a scan or a copy | no |
//! | of a file that the service may not write to | no |
//! | while half of the pool's records are those of open files, of a file without a record | no |
//! | when [`WAITING_MAX`] others wait | no |
//! | another one | yes |

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;
use tidegate_file_cache::{FileIdentity, GRANULE_BYTES};
use tidegate_host::threads::Periodic;
use tidegate_policy::admit::{Admit, Doorkeeper, Sequential};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Bytes of a block, by which runs are measured, and the blocks of the longest run.
const BLOCK_BYTES: u64 = 4096;
const RUN_BLOCKS_MAX: u32 = 1024;

/// Granules that wait at most.
pub(crate) const WAITING_MAX: usize = 256;

/// Granules that were read once and are remembered: those of 1 GiB.
const REMEMBERED: u32 = 1 << 14;

/// Reads that were answered from below.
pub(crate) struct ReadAdmission {
    inner: Mutex<Reads>,
}

struct Reads {
    doorkeeper: Doorkeeper,
    sequential: Sequential,
    waiting: VecDeque<(FileIdentity, Range<u64>)>,
}

impl ReadAdmission {
    pub(crate) fn new() -> ReadAdmission {
        let (doorkeeper, sequential) =
            (Doorkeeper::new(Admit::SecondMiss, REMEMBERED), Sequential::new(RUN_BLOCKS_MAX));
        ReadAdmission { inner: Mutex::new(Reads { doorkeeper, sequential, waiting: VecDeque::new() }) }
    }

    /// Notes a read. If another thread notes one, this one is forgotten: nobody waits for that.
    pub(crate) fn note(&self, identity: FileIdentity, at: u64, len: usize) {
        let mut reads = match self.inner.try_lock() {
            Ok(reads) => reads,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        reads.note(identity, at..at.saturating_add(len as u64));
    }

    /// Notes what the placement wants of a file.
    pub(crate) fn want(&self, identity: FileIdentity, ranges: Vec<Range<u64>>) {
        if ranges.is_empty() {
            return;
        }
        let mut reads = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for range in ranges {
            let wish = (identity, range);
            if reads.waiting.len() < WAITING_MAX && !reads.waiting.contains(&wish) {
                reads.waiting.push_back(wish);
            }
        }
    }

    /// What is to be admitted next.
    pub(crate) fn next(&self) -> Option<(FileIdentity, Range<u64>)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

impl Reads {
    fn note(&mut self, identity: FileIdentity, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let file = hash_of(&identity);
        // Files lie far apart in the numbers of blocks.
        let first = file.wrapping_add(range.start / BLOCK_BYTES);
        let blocks = range.end.div_ceil(BLOCK_BYTES) - range.start / BLOCK_BYTES;
        if self.sequential.is_sequential(first, u32::try_from(blocks).unwrap_or(u32::MAX)) {
            return;
        }
        for granule in range.start / GRANULE_BYTES..range.end.div_ceil(GRANULE_BYTES) {
            let admitted = self.doorkeeper.admits(hash_of(&(file, granule)));
            if admitted && self.waiting.len() < WAITING_MAX {
                self.waiting.push_back((identity, granule * GRANULE_BYTES..(granule + 1) * GRANULE_BYTES));
            }
        }
    }
}

pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Starts the thread that calls `admit`.
pub(crate) fn start(admit: impl FnMut() + Send + 'static) -> std::io::Result<Periodic> {
    Periodic::start("read-admission", LOOK_EVERY, admit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileIdentity {
        FileIdentity { device: 1, inode, generation: 0 }
    }

    fn waiting(admission: &ReadAdmission) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| admission.next()).map(|(identity, range)| (identity.inode, range.start)).collect()
    }

    #[test]
    fn what_is_read_twice_is_admitted_once() {
        let admission = ReadAdmission::new();
        admission.note(file(1), 70_000, 100);
        assert_eq!(waiting(&admission), []);
        admission.note(file(2), 70_000, 100);
        admission.note(file(1), 130_000, 2000);
        assert_eq!(waiting(&admission), [(1, GRANULE_BYTES)], "another file's bytes are others");
    }

    #[test]
    fn a_scan_is_not_admitted_however_often_it_is_made() {
        let admission = ReadAdmission::new();
        let bytes = 4 * u64::from(RUN_BLOCKS_MAX) * BLOCK_BYTES;
        for _ in 0..3 {
            (0..bytes).step_by(128 << 10).for_each(|at| admission.note(file(1), at, 128 << 10));
        }
        let admitted = waiting(&admission).len() as u64 * GRANULE_BYTES;
        assert!(admitted <= u64::from(RUN_BLOCKS_MAX) * BLOCK_BYTES, "its beginning at most: {admitted}");
    }
}
