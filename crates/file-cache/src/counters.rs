//! Exact counts of a lane.

use tidegate_policy::placement::AccessPattern;

/// What was done since the lane was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Syncs and synchronous writes that ended in persistent memory.
    pub commits: u64,
    /// Those among them that put bytes behind others in their block.
    pub lengthened: u64,
    /// Syncs and synchronous writes that ended in the file below: those that are not atomic.
    pub below: u64,
    /// Bytes committed.
    pub bytes_committed: u64,
    /// Bytes written back.
    pub bytes_written_back: u64,
    /// Syncs of files below.
    pub syncs_below: u64,
    /// Bytes that processes wrote by leases, and the lane took over.
    pub bytes_adopted: u64,
    /// Bytes of direct writes that went to files below at once.
    pub bytes_written_direct: u64,
    /// Bytes of unsynced writes that left DRAM for files below, without a sync.
    pub bytes_passed_below: u64,
    /// Bytes that became clean entries after they were read from below.
    pub bytes_admitted: u64,
    /// Reads, each counted at every tier that had bytes for it: DRAM.
    pub reads_dram: u64,
    /// Reads for which the pool had bytes.
    pub reads_pool: u64,
    /// Reads for which only the file below had some bytes.
    pub reads_below: u64,
    /// Bytes read whose newest copy was in DRAM.
    pub bytes_read_dram: u64,
    /// Bytes read whose newest copy was in an entry.
    pub bytes_read_pool: u64,
    /// Bytes read from below, and of holes.
    pub bytes_read_below: u64,
    /// Bytes read of which the placement was told, by how their programs read.
    pub by_pattern: ByPattern,
}

impl Counters {
    pub(crate) fn plus(self, other: Counters) -> Counters {
        Counters {
            commits: self.commits + other.commits,
            lengthened: self.lengthened + other.lengthened,
            below: self.below + other.below,
            bytes_committed: self.bytes_committed + other.bytes_committed,
            bytes_written_back: self.bytes_written_back + other.bytes_written_back,
            syncs_below: self.syncs_below + other.syncs_below,
            bytes_adopted: self.bytes_adopted + other.bytes_adopted,
            bytes_written_direct: self.bytes_written_direct + other.bytes_written_direct,
            bytes_passed_below: self.bytes_passed_below + other.bytes_passed_below,
            bytes_admitted: self.bytes_admitted + other.bytes_admitted,
            reads_dram: self.reads_dram + other.reads_dram,
            reads_pool: self.reads_pool + other.reads_pool,
            reads_below: self.reads_below + other.reads_below,
            bytes_read_dram: self.bytes_read_dram + other.bytes_read_dram,
            bytes_read_pool: self.bytes_read_pool + other.bytes_read_pool,
            bytes_read_below: self.bytes_read_below + other.bytes_read_below,
            by_pattern: self.by_pattern.plus(other.by_pattern),
        }
    }
}

/// Bytes that programs read, by how their context reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatternCounts {
    /// Bytes that DRAM or the pool had.
    pub hit_bytes: u64,
    /// Bytes that came from below, or of holes.
    pub missed_bytes: u64,
}

/// Counts for each pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByPattern([PatternCounts; AccessPattern::ALL.len()]);

impl ByPattern {
    /// Those of one pattern.
    pub fn of(&self, pattern: AccessPattern) -> PatternCounts {
        self.0[pattern.number()]
    }

    pub(crate) fn of_mut(&mut self, pattern: AccessPattern) -> &mut PatternCounts {
        &mut self.0[pattern.number()]
    }

    fn plus(self, other: ByPattern) -> ByPattern {
        let sum = |number: usize| PatternCounts {
            hit_bytes: self.0[number].hit_bytes + other.0[number].hit_bytes,
            missed_bytes: self.0[number].missed_bytes + other.0[number].missed_bytes,
        };
        ByPattern(std::array::from_fn(sum))
    }
}
