//! Replies that survive the server, in memory that the process which keeps the mount alive holds.
//!
//! Each worker has a record of its own for the request it carries out. A new server reads all
//! records at its start. Until all requests of the old server are answered, it leaves those records
//! alone and uses the second half of the memory, so that it may die as well.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use tidegate_fuse::{Former, RECORD_BYTES, RecordStore, ReplyRecord, Unique};
use tidegate_media::OutlivingMemory;

/// Threads that answer requests.
pub(crate) const WORKERS_MAX: usize = 64;
/// Records of the workers, and as many for requests that are sent again.
const RECORDS: usize = 2 * WORKERS_MAX;
/// A record's distance from the next one.
const STRIDE: u64 = RECORD_BYTES as u64;

/// Bytes of the records.
const CACHE_BYTES: usize = RECORDS * RECORD_BYTES;

/// The memory with the records.
#[derive(Debug)]
pub struct ReplyCache {
    memory: OutlivingMemory,
    /// What earlier servers left.
    left: Vec<ReplyRecord>,
}

/// Whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A worker's.
    Worker(usize),
    /// That of a request which was sent again, in the order of their arrival.
    Resent(usize),
}

impl Slot {
    fn offset(self) -> u64 {
        let index = match self {
            Slot::Worker(index) => index % WORKERS_MAX,
            Slot::Resent(index) => WORKERS_MAX + index % WORKERS_MAX,
        };
        index as u64 * STRIDE
    }
}

impl ReplyCache {
    /// Makes memory without records.
    pub fn memory() -> Result<OwnedFd, Errno> {
        rustix::fs::memfd_create("tidegate-replies", MemfdFlags::CLOEXEC)
    }

    /// Reads what earlier servers left in the memory.
    pub fn open(memory: OwnedFd) -> std::io::Result<ReplyCache> {
        // The mapping needs no descriptor.
        let memory = OutlivingMemory::of(memory.as_fd(), 0, CACHE_BYTES)?;
        let mut bytes = [0; RECORD_BYTES];
        let mut left = Vec::new();
        for index in 0..RECORDS as u64 {
            memory.load(index * STRIDE, &mut bytes)?;
            left.extend(ReplyRecord::from_bytes(&bytes));
        }
        Ok(ReplyCache { memory, left })
    }

    /// Returns what an earlier server left of a request. Of two records the one with the reply
    /// counts.
    pub(crate) fn left(&self, unique: Unique) -> Option<Former> {
        let records = self.left.iter().filter(|record| record.unique() == unique.first_sent());
        let left: Vec<_> = records.map(ReplyRecord::left).collect();
        left.iter().find(|left| matches!(left, Former::Answered(_))).or(left.first()).copied()
    }

    /// Stores a record, in place of the slot's earlier one. A kill leaves no half of it.
    pub(crate) fn store(&self, slot: Slot, record: &ReplyRecord) -> std::io::Result<()> {
        let (slot, mut former) = (slot.offset(), [0; RECORD_BYTES]);
        self.memory.load(slot, &mut former)?;
        record.stores(&former).try_for_each(|store| match store {
            RecordStore::Bytes { at, bytes } => self.memory.store(slot + at, bytes),
            RecordStore::Word { at, word } => self.memory.store_word(slot + at, word),
        })
    }

    /// Frees the slots of requests that were sent again: all are answered.
    pub(crate) fn all_answered(&self) -> std::io::Result<()> {
        self.memory.store(Slot::Resent(0).offset(), &[0; RECORD_BYTES * WORKERS_MAX])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_fuse::Reply;

    fn opened(memory: &OwnedFd) -> ReplyCache {
        ReplyCache::open(memory.try_clone().expect("a second descriptor")).expect("memory")
    }

    #[test]
    fn the_next_server_finds_the_last_record_of_each_worker() {
        let memory = ReplyCache::memory().expect("memory");
        let cache = opened(&memory);
        let store = |slot, record: ReplyRecord| cache.store(slot, &record).expect("room");
        store(Slot::Worker(0), ReplyRecord::begun(Unique(1), 11));
        store(Slot::Worker(0), ReplyRecord::begun(Unique(2), 12));
        store(Slot::Worker(63), ReplyRecord::answered(Unique(3), &Reply::error(2)).expect("short"));
        let next = opened(&memory);
        assert!(next.left(Unique(1)).is_none() && cache.left(Unique(2)).is_none());
        assert!(matches!(next.left(Unique(1 << 63 | 2)), Some(Former::Begun { witness: 12 })));
        assert!(matches!(next.left(Unique(3)), Some(Former::Answered(reply)) if reply.errno() == Some(2)));
    }

    #[test]
    fn a_reply_counts_more_than_a_beginning_until_all_is_answered() {
        let memory = ReplyCache::memory().expect("memory");
        let cache = opened(&memory);
        cache.store(Slot::Worker(5), &ReplyRecord::begun(Unique(1), 11)).expect("room");
        let answered = ReplyRecord::answered(Unique(1), &Reply::empty()).expect("short");
        cache.store(Slot::Resent(0), &answered).expect("room");
        assert!(matches!(opened(&memory).left(Unique(1)), Some(Former::Answered(_))));
        cache.all_answered().expect("room");
        assert!(matches!(opened(&memory).left(Unique(1)), Some(Former::Begun { .. })));
    }
}
