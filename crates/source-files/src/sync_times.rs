//! How long syncs take: what each sync in persistent memory saves is the difference between the two
//! means.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How many syncs of a kind there were, and how long they took together.
#[derive(Debug, Default)]
pub struct SyncTimes {
    syncs: AtomicU64,
    ns: AtomicU64,
}

impl SyncTimes {
    /// Counts a sync that began then and ends now.
    pub fn count(&self, began: Instant) {
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: the two are read for people, who compare nothing with them.
        self.ns.fetch_add(ns, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were, and their nanoseconds.
    pub fn read(&self) -> (u64, u64) {
        (self.syncs.load(Ordering::Relaxed), self.ns.load(Ordering::Relaxed))
    }
}
