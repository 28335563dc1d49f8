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
