//! Counts of what is not counted under a set's lock.

use tidegate_media::sync::{AtomicU64, Ordering};
use tidegate_media::thread_local_counters::{ThreadLocalCounters, add};

/// Counts of what went past the cache: of 32 threads, and of all others together.
const STRIPES: usize = 33;

/// All counts but those of the sets. On lines of its own, as whoever adds to it takes the line from
/// everyone else.
#[repr(align(128))]
pub(crate) struct Tally {
    pub(crate) replaced: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) forced: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) stalled_ns: AtomicU64,
    pub(crate) wake_ups: AtomicU64,
    pub(crate) flushes: AtomicU64,
    bypassed: ThreadLocalCounters<AtomicU64>,
}

impl Default for Tally {
    fn default() -> Tally {
        let zero = AtomicU64::default;
        Tally {
            replaced: zero(),
            evicted: zero(),
            forced: zero(),
            stalled: zero(),
            stalled_ns: zero(),
            wake_ups: zero(),
            flushes: zero(),
            bypassed: ThreadLocalCounters::new(STRIPES),
        }
    }
}

impl Tally {
    /// Counts a block that went past the cache. Writers on several cores do so at the same time,
    /// and a locked instruction would wait for what the writer streamed before.
    pub(crate) fn count_bypassed(&self) {
        let (count, sole) = self.bypassed.mine();
        add(sole, count, 1);
    }

    /// Blocks that went past the cache.
    pub(crate) fn bypassed(&self) -> u64 {
        self.bypassed.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}
