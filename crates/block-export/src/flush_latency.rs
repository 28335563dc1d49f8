//! Flush latency: whether flushes of an export take long, learned from those that were made.
//!
//! Handing a request to another thread costs about as much as answering ten. That pays only if the
//! device is slow, and no description tells: a flush is free on persistent memory and a disk's
//! revolution below a file.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What takes longer is better done beside other requests than before them: ten wake-ups' worth.
const LONG: Duration = Duration::from_micros(50);

/// How many more of the last requests took long than did not, before the next is expected to. A
/// thread that the system interrupted looks slow once or twice.
const LONG_SCORE: u32 = 4;
const SCORE_MAX: u32 = 2 * LONG_SCORE;

/// Longer writes may take their time for their length.
const JUDGED_BYTES_MAX: u64 = 64 << 10;

/// How long an export's flushes, and its writes with FUA, took lately.
#[derive(Debug, Default)]
pub struct FlushLatency {
    flush: Score,
    fua: Score,
}

impl FlushLatency {
    /// Learns how long a flush took.
    pub fn learn_flush(&self, took: Duration) {
        self.flush.learn(took);
    }

    /// Learns how long a request of `bytes` bytes with FUA took.
    pub fn learn_fua(&self, bytes: u64, took: Duration) {
        if bytes <= JUDGED_BYTES_MAX {
            self.fua.learn(took);
        }
    }

    /// Whether the next flush is expected to take long.
    pub fn flush_is_long(&self) -> bool {
        self.flush.is_long()
    }

    /// Whether the next request with FUA is expected to take long.
    pub fn fua_is_long(&self) -> bool {
        self.fua.is_long()
    }
}

#[derive(Debug, Default)]
struct Score(AtomicU32);

// A score is a guess: an update that another thread's overwrites is no loss, and no other memory
// hangs on it. All accesses are relaxed and have no partner.
impl Score {
    fn learn(&self, took: Duration) {
        let score = self.0.load(Ordering::Relaxed);
        let next = if took > LONG { (score + 1).min(SCORE_MAX) } else { score.saturating_sub(1) };
        if next != score {
            self.0.store(next, Ordering::Relaxed);
        }
    }

    fn is_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LONG_SCORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_slow_after_a_row_of_slow_flushes_and_quick_again_after_a_row_of_quick_ones() {
        let score = Score::default();
        let learn = |micros, times| (0..times).for_each(|_| score.learn(Duration::from_micros(micros)));
        learn(1000, 3);
        assert!(!score.is_long());
        learn(1000, 100);
        assert!(score.is_long());
        learn(1, 4);
        assert!(score.is_long());
        learn(1, 1);
        assert!(!score.is_long());
    }
}
