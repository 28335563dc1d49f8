//! What lies in which tier: DRAM by its bound, clean entries by what they promise.

mod clean;
mod direct;
mod dram;
mod evicted;
mod lease_costs;
mod leases;
mod mapped_times;
mod modified;
mod placement;
mod poisoned_log;
mod tier_map;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_file_cache::{BackingFile, BackingStatus, Fallocate, FileIdentity, Refused, Sought, Stamp};

/// A file in memory, which never refuses.
pub(crate) struct InMemory {
    pub(crate) inode: u64,
    bytes: Mutex<Vec<u8>>,
    /// Goes up with each change.
    changes: AtomicU64,
    /// Bytes that were read.
    read: AtomicU64,
}

impl InMemory {
    pub(crate) fn new(inode: u64, bytes: &[u8]) -> InMemory {
        let (changes, read) = (AtomicU64::new(1), AtomicU64::new(0));
        InMemory { inode, bytes: Mutex::new(bytes.to_vec()), changes, read }
    }

    /// Bytes that were read of it so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }

    fn stamp(&self) -> Stamp {
        let changes = self.changes.load(Ordering::SeqCst);
        Stamp::of(changes, changes)
    }

    pub(crate) fn bytes<T>(&self, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        act(&mut self.bytes.lock().expect("no holder panics"))
    }
}

impl BackingFile for InMemory {
    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 1, inode: self.inode, generation: 0 }
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        Ok(BackingStatus { len: self.bytes(|bytes| bytes.len() as u64), stamp: self.stamp(), is_removed: false })
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        Ok(self.bytes(|bytes| {
            let left = bytes.get(usize::try_from(at).expect("small")..).unwrap_or_default();
            let read = left.len().min(out.len());
            out[..read].copy_from_slice(&left[..read]);
            self.read.fetch_add(read as u64, Ordering::SeqCst);
            read
        }))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        let at = usize::try_from(at).expect("small");
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.bytes(|bytes| {
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        });
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.bytes(|bytes| bytes.resize(usize::try_from(len).expect("small"), 0));
        Ok(())
    }

    fn fallocate(&self, _: u64, _: u64, _: Fallocate) -> Result<(), Refused> {
        Ok(())
    }

    fn seek(&self, at: u64, _: Sought) -> Result<Option<u64>, Refused> {
        Ok(Some(at))
    }

    fn sync(&self) -> Result<(), Refused> {
        Ok(())
    }
}
