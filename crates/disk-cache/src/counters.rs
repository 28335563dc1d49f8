//! What a cache did, in exact numbers.

use crate::index::Index;
use tidegate_media::sync::{AtomicU64, Ordering};

/// Counts since the cache was opened; all only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks read that were cached.
    pub read_hits: u64,
    /// Blocks read from the disk.
    pub read_misses: u64,
    /// Blocks committed that were cached before.
    pub write_hits: u64,
    /// Blocks committed that were not.
    pub write_misses: u64,
    /// Commits.
    pub commits: u64,
    /// Commits of several blocks that another thread made beside its own.
    pub joined: u64,
    /// Blocks put into the cache because they were read.
    pub fills: u64,
    /// Clean blocks given up for others.
    pub evictions: u64,
    /// Blocks written to the disk by destaging, whether they turned clean then or not.
    pub destaged: u64,
    /// Writes to the disk that this took.
    pub destage_writes: u64,
    /// Flushes of the disk that succeeded.
    pub disk_flushes: u64,
    /// Blocks read that were not taken in because the reads were a long run.
    pub past_in_runs: u64,
    /// Blocks read that the admission policy turned away.
    pub turned_away: u64,
    /// Times that a block did not fit its checksum.
    pub damaged: u64,
    /// Times that a writer found no free block and destaged some itself.
    pub helps: u64,
}

/// A count that threads add to, off the paths of hits.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Relaxed: nothing is concluded from a count.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is not counted under a stripe's lock.
#[derive(Default)]
pub(crate) struct UnlockedCounts {
    pub(crate) destaged: Count,
    pub(crate) destage_writes: Count,
    pub(crate) disk_flushes: Count,
    pub(crate) helps: Count,
    pub(crate) joined: Count,
    pub(crate) past_in_runs: Count,
    pub(crate) turned_away: Count,
    pub(crate) damaged: Count,
}

impl UnlockedCounts {
    pub(crate) fn counters(&self, index: &Index) -> Counters {
        let mut counters = Counters {
            destaged: self.destaged.get(),
            destage_writes: self.destage_writes.get(),
            disk_flushes: self.disk_flushes.get(),
            helps: self.helps.get(),
            joined: self.joined.get(),
            past_in_runs: self.past_in_runs.get(),
            turned_away: self.turned_away.get(),
            damaged: self.damaged.get(),
            ..Counters::default()
        };
        for stripe in 0..index.stripes() {
            let counts = index.lock(stripe).counts;
            counters.read_hits += counts.read_hits;
            counters.read_misses += counts.read_misses;
            counters.write_hits += counts.write_hits;
            counters.write_misses += counts.write_misses;
            counters.commits += counts.commits;
            counters.fills += counts.fills;
            counters.evictions += counts.evictions;
        }
        counters
    }
}
