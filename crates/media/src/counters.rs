//! Exact counts of a region's operations, cheap enough to be always on.
//!
//! Each thread counts for itself ([`ThreadLocalCounters`]).

use crate::region::LINE_BYTES;
use crate::sync::thread_local_counters::{ThreadLocalCounters, add};
use crate::sync::{AtomicU64, Ordering};
use std::ops::{Add, Sub};

/// Bytes that Optane memory writes together.
const LINE_256_BYTES: u64 = 256;

/// Stripes, the shared last one included.
const STRIPES: usize = 256;

/// What a region did since it was opened; subtract two snapshots for what it did in between.
///
/// Exact for whatever happened before the snapshot was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes stored by any verb.
    pub bytes_stored: u64,
    /// 64-byte lines covered by each flush and each stream.
    pub lines_flushed: u64,
    /// 256-byte lines covered by each flush and each stream.
    pub lines_256_touched: u64,
    /// Fences.
    pub fences: u64,
}

impl Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            bytes_stored: self.bytes_stored + other.bytes_stored,
            lines_flushed: self.lines_flushed + other.lines_flushed,
            lines_256_touched: self.lines_256_touched + other.lines_256_touched,
            fences: self.fences + other.fences,
        }
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, before: Counters) -> Counters {
        Counters {
            bytes_stored: self.bytes_stored - before.bytes_stored,
            lines_flushed: self.lines_flushed - before.lines_flushed,
            lines_256_touched: self.lines_256_touched - before.lines_256_touched,
            fences: self.fences - before.fences,
        }
    }
}

/// The counts of one region.
#[derive(Debug)]
pub(crate) struct RegionCounts {
    stripes: ThreadLocalCounters<ThreadCounts>,
}

/// The counts of one thread.
#[derive(Debug, Default)]
struct ThreadCounts {
    bytes_stored: AtomicU64,
    lines_flushed: AtomicU64,
    lines_256_touched: AtomicU64,
    fences: AtomicU64,
}

impl Default for RegionCounts {
    fn default() -> RegionCounts {
        RegionCounts { stripes: ThreadLocalCounters::new(STRIPES) }
    }
}

impl RegionCounts {
    /// Counts `bytes` stored.
    pub(crate) fn stored(&self, bytes: u64) {
        let (stripe, sole) = self.stripes.mine();
        add(sole, &stripe.bytes_stored, bytes);
    }

    /// Counts the lines that a flush of `at..at + len` covers.
    pub(crate) fn flushed(&self, at: u64, len: u64) {
        let (stripe, sole) = self.stripes.mine();
        add(sole, &stripe.lines_flushed, lines(at, len, LINE_BYTES));
        add(sole, &stripe.lines_256_touched, lines(at, len, LINE_256_BYTES));
    }

    /// Counts `len` bytes stored at `at` and their lines, which count as flushed.
    pub(crate) fn streamed(&self, at: u64, len: u64) {
        let (stripe, sole) = self.stripes.mine();
        add(sole, &stripe.bytes_stored, len);
        add(sole, &stripe.lines_flushed, lines(at, len, LINE_BYTES));
        add(sole, &stripe.lines_256_touched, lines(at, len, LINE_256_BYTES));
    }

    /// Counts a fence.
    pub(crate) fn fenced(&self) {
        let (stripe, sole) = self.stripes.mine();
        add(sole, &stripe.fences, 1);
    }

    /// The counts so far.
    pub(crate) fn snapshot(&self) -> Counters {
        // Relaxed: a number is all that is read; whoever waited for a thread's work sees its counts
        // by that waiting.
        let sum = |count: fn(&ThreadCounts) -> &AtomicU64| {
            self.stripes.iter().map(|stripe| count(stripe).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
        };
        Counters {
            bytes_stored: sum(|stripe| &stripe.bytes_stored),
            lines_flushed: sum(|stripe| &stripe.lines_flushed),
            lines_256_touched: sum(|stripe| &stripe.lines_256_touched),
            fences: sum(|stripe| &stripe.fences),
        }
    }
}

/// Lines of `line_bytes` that `at..at + len` touches.
fn lines(at: u64, len: u64, line_bytes: u64) -> u64 {
    if len == 0 { 0 } else { (at + len - 1) / line_bytes - at / line_bytes + 1 }
}
