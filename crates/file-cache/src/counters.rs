//! Exact counts of a lane.

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
        }
    }
}
