//! What a file service counts: files by state, and what was done since the mount began.

use serde::{Deserialize, Serialize};
use std::fmt;
use tidegate_file_cache::{ByPattern, PatternCounts};
use tidegate_host::units::Human;
use tidegate_policy::placement::AccessPattern;

/// How many files are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStates {
    /// A program has the file open.
    pub open: u64,
    /// The pool has something of the file, or had when it was opened.
    pub in_pool: u64,
    /// The pool has no room for one more file: this one is written below, and synced there.
    pub beside_pool: u64,
    /// A glob of the mount says that the file bypasses the pool: it is written and synced below.
    #[serde(default)]
    pub bypassed: u64,
    /// The pool retains data of the file, which is missing or was changed by others.
    pub retained: u64,
}

/// Bytes that programs read, by how their contexts read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadsByPattern {
    /// Consecutive pages, repeated.
    pub looping: PatternReads,
    /// Pages repeated soon, not consecutive.
    pub cluster_hot: PatternReads,
    /// Consecutive pages, once.
    pub sequential: PatternReads,
    /// Anything else.
    pub random: PatternReads,
}

/// Bytes that programs read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternReads {
    /// From DRAM or the pool.
    pub hit_bytes: u64,
    /// From the files below.
    pub missed_bytes: u64,
}

impl ReadsByPattern {
    /// As a pool counted them.
    pub fn of(counts: &ByPattern) -> ReadsByPattern {
        let of = |pattern| {
            let PatternCounts { hit_bytes, missed_bytes } = counts.of(pattern);
            PatternReads { hit_bytes, missed_bytes }
        };
        ReadsByPattern {
            looping: of(AccessPattern::Looping),
            cluster_hot: of(AccessPattern::ClusterHot),
            sequential: of(AccessPattern::Sequential),
            random: of(AccessPattern::Random),
        }
    }

    fn since(&self, last: &ReadsByPattern) -> ReadsByPattern {
        let since = |now: PatternReads, last: PatternReads| PatternReads {
            hit_bytes: now.hit_bytes.saturating_sub(last.hit_bytes),
            missed_bytes: now.missed_bytes.saturating_sub(last.missed_bytes),
        };
        ReadsByPattern {
            looping: since(self.looping, last.looping),
            cluster_hot: since(self.cluster_hot, last.cluster_hot),
            sequential: since(self.sequential, last.sequential),
            random: since(self.random, last.random),
        }
    }
}

impl fmt::Display for ReadsByPattern {
    /// For people: those that there were.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [self.looping, self.cluster_hot, self.sequential, self.random];
        let read = |reads: &PatternReads| reads.hit_bytes + reads.missed_bytes > 0;
        let mut before = "";
        for (pattern, reads) in AccessPattern::ALL.into_iter().zip(all).filter(|(_, reads)| read(reads)) {
            let (hit, all) = (Human(reads.hit_bytes), Human(reads.hit_bytes + reads.missed_bytes));
            write!(f, "{before}{pattern} {hit} of {all}")?;
            before = ", ";
        }
        if before.is_empty() { f.write_str("nothing read yet") } else { f.write_str(" came from the cache") }
    }
}

/// What was done since the mount began, or since an earlier answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountCounts {
    /// Nanoseconds since then.
    pub up_ns: u64,
    /// Requests of the kernel.
    #[serde(default)]
    pub requests: u64,
    /// Operations on names that were recorded in the pool.
    pub names: u64,
    /// Those that waited for a sync of SOURCE.
    pub names_below: u64,
    /// Syncs and synchronous writes that completed in persistent memory.
    pub syncs: u64,
    /// Those that waited for the files below, with all syncs of files beside the pool.
    pub syncs_below: u64,
    /// Atomic groups of writes among the first.
    #[serde(default)]
    pub groups: u64,
    /// Leases of files that programs were granted.
    #[serde(default)]
    pub leases_granted: u64,
    /// How often a program got a share in the lease of others.
    #[serde(default)]
    pub leases_joined: u64,
    /// Those that a request ended.
    #[serde(default)]
    pub leases_ended: u64,
    /// How often a lease was given new blocks.
    #[serde(default)]
    pub leases_extended: u64,
    /// Leases whose memory was taken back.
    #[serde(default)]
    pub leases_reaped: u64,
    /// How often a program's mapping of the kernel's pages was upgraded to a direct one.
    #[serde(default)]
    pub mappings_upgraded: u64,
    /// How often such a one became a mapping of the kernel's pages again.
    #[serde(default)]
    pub mappings_recalled: u64,
    /// Bytes that programs wrote by leases.
    #[serde(default)]
    pub adopted_bytes: u64,
    /// Bytes that these syncs made durable in the pool.
    pub synced_bytes: u64,
    /// Bytes that were written back.
    pub written_back_bytes: u64,
    /// Reads for which DRAM had bytes, of those that the kernel's page cache did not answer.
    pub reads_dram: u64,
    /// Reads for which the pool had bytes.
    pub reads_pool: u64,
    /// Reads for which only the file below had some bytes.
    pub reads_below: u64,
    /// Reads of leased files for which programs made no request: what they keep had the bytes, or
    /// they knew where in the pool these lie.
    #[serde(default)]
    pub reads_kept: u64,
    /// Bytes of direct writes that went to the files below at once.
    #[serde(default)]
    pub direct_bytes: u64,
    /// Writes that made room first: their programs had written much, and little room was left.
    #[serde(default)]
    pub held_back: u64,
    /// Bytes that the pool admitted after they were read below.
    pub admitted_bytes: u64,
    /// Bytes read from unsynced writes in DRAM. What the kernel's page cache answers is not here.
    pub read_dram_bytes: u64,
    /// Bytes read from the pool.
    pub read_pool_bytes: u64,
    /// Bytes read from the files below.
    pub read_below_bytes: u64,
    /// Syncs that completed in persistent memory and were timed: synchronous writes are not.
    pub timed_syncs: u64,
    /// Their nanoseconds.
    pub timed_syncs_ns: u64,
    /// Syncs of files below.
    pub disk_syncs: u64,
    /// Their nanoseconds.
    pub disk_syncs_ns: u64,
    /// Bytes of these reads by how their program contexts read; placements that do not ask have
    /// none.
    #[serde(default)]
    pub reads_by_pattern: ReadsByPattern,
    /// Requests whose program contexts are the call stacks of programs with the direct path.
    #[serde(default)]
    pub placed_by_stack: u64,
    /// Those whose contexts are no more than thread and file.
    #[serde(default)]
    pub placed_by_thread: u64,
    /// Lines of 64 bytes that were stored to the pool durably.
    pub lines_flushed: u64,
    /// Fences behind these stores.
    pub fences: u64,
}

impl MountCounts {
    /// What was done since `last`. After a restart of the service, what was done since its start.
    pub fn since(&self, last: &MountCounts) -> MountCounts {
        if self.up_ns < last.up_ns {
            return *self;
        }
        let reads_by_pattern = self.reads_by_pattern.since(&last.reads_by_pattern);
        // Each count is named, so that the compiler misses one that is not here.
        macro_rules! grown {
            ($($count:ident),*) => {
                MountCounts { $($count: self.$count.saturating_sub(last.$count),)* reads_by_pattern }
            };
        }
        grown! {
            up_ns, requests, names, names_below, syncs, syncs_below, groups, leases_granted, leases_joined, leases_ended,
            leases_extended, leases_reaped, mappings_upgraded, mappings_recalled, adopted_bytes, synced_bytes, written_back_bytes, reads_dram, reads_pool,
            reads_below, reads_kept, direct_bytes, held_back, admitted_bytes, read_dram_bytes, read_pool_bytes,
            read_below_bytes, timed_syncs, timed_syncs_ns, disk_syncs, disk_syncs_ns, placed_by_stack,
            placed_by_thread, lines_flushed, fences
        }
    }

    /// Mean microseconds of a sync in persistent memory, if there was one.
    pub fn sync_us(&self) -> Option<f64> {
        mean_us(self.timed_syncs_ns, self.timed_syncs)
    }

    /// Mean microseconds of a sync of a file below, if there was one.
    pub fn disk_sync_us(&self) -> Option<f64> {
        mean_us(self.disk_syncs_ns, self.disk_syncs)
    }

    /// By how many microseconds a sync in persistent memory was shorter.
    pub fn saved_us(&self) -> Option<f64> {
        Some(self.disk_sync_us()? - self.sync_us()?)
    }
}

fn mean_us(ns: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| ns as f64 / count as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_give_rates_and_a_restart_begins_anew() {
        let last = MountCounts { up_ns: 10, syncs: 5, ..MountCounts::default() };
        let now = MountCounts { up_ns: 30, syncs: 9, ..MountCounts::default() };
        assert_eq!(now.since(&last), MountCounts { up_ns: 20, syncs: 4, ..MountCounts::default() });
        assert_eq!(last.since(&now), last);
    }

    #[test]
    fn a_sync_saves_the_difference_of_the_means() {
        let counts = MountCounts {
            timed_syncs: 4,
            timed_syncs_ns: 40_000,
            disk_syncs: 2,
            disk_syncs_ns: 4_000_000,
            ..MountCounts::default()
        };
        assert_eq!(counts.saved_us(), Some(1990.0));
        assert_eq!(MountCounts { disk_syncs: 0, ..counts }.saved_us(), None);
    }
}
