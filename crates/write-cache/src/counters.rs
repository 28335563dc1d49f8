//! What a cache did, in exact numbers.

/// Counts since the cache was made; all but the last two only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks written into slots.
    pub cached: u64,
    /// Of these, blocks that took the place of an older version not yet evicted.
    pub replaced: u64,
    /// Blocks sent straight to the device, whether it took them or not, because no slot was free,
    /// or because they were [turned away](crate::WriteCache::turn_away).
    pub bypassed: u64,
    /// Blocks sent straight to the device because they had to be durable at once.
    pub forced: u64,
    /// Blocks evicted to the device.
    pub evicted: u64,
    /// Times that a request had to evict blocks before it could go on.
    pub stalled: u64,
    /// How long that took, in nanoseconds of the clock that was
    /// [set](crate::WriteCache::set_clock); 0 without one.
    pub stalled_ns: u64,
    /// Blocks read from slots.
    pub read_hits: u64,
    /// Times the doorbell was rung.
    pub wake_ups: u64,
    /// Flushes.
    pub flushes: u64,
    /// Slots that hold a block now.
    pub slots_used: u64,
    /// Slots that may be used now: see [`WriteCache::limit_slots`](crate::WriteCache::limit_slots).
    pub slots_limit: u64,
}
