//! How long requests took: counts in buckets that grow with the time, and the percentiles read from them.
//!
//! Eight buckets to each doubling, so a percentile is at most an eighth above the truth, from nanoseconds to minutes in a fixed
//! space and without a lock.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets to each doubling of the time, as a power of two.
const SUB_BITS: u32 = 3;
const SUBS: u64 = 1 << SUB_BITS;

/// Times from here on share the last bucket: 2^40 ns are 18 minutes.
const DOUBLINGS_MAX: u32 = 40;
const BUCKETS: usize = (((DOUBLINGS_MAX - SUB_BITS + 1) << SUB_BITS) + 1) as usize;

/// Counts that any thread adds to.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

/// The counts at one time.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Latencies {
    /// The sum of all times, in nanoseconds.
    pub(crate) sum_ns: u64,
    /// The longest time of a bucket in nanoseconds, and how many are in it; empty buckets are left out. Ascending.
    pub(crate) buckets: Vec<(u64, u64)>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one time. Relaxed: numbers are all that is read, and whoever has waited for a request sees its count by that
    /// waiting.
    pub(crate) fn add(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The counts so far.
    pub(crate) fn snapshot(&self) -> Latencies {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).enumerate();
        let buckets = counts.filter(|(_, count)| *count > 0).map(|(index, count)| (longest_ns(index), count)).collect();
        Latencies { sum_ns: self.sum_ns.load(Ordering::Relaxed), buckets }
    }
}

impl Latencies {
    /// How many times were counted.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// How many took at most `ns`. Exact where a bucket ends, as it does at each power of two; elsewhere the bucket that `ns` lies in
    /// is left out.
    pub(crate) fn count_within(&self, ns: u64) -> u64 {
        self.buckets.iter().take_while(|(longest, _)| *longest <= ns).map(|(_, count)| count).sum()
    }

    /// A time in nanoseconds that `permyriad` of 10,000 requests did not exceed; None without requests.
    pub(crate) fn percentile_ns(&self, permyriad: u64) -> Option<u64> {
        let rank = (u128::from(self.count()) * u128::from(permyriad)).div_ceil(10_000).max(1);
        let mut seen = 0;
        let reached = self.buckets.iter().find(|(_, count)| {
            seen += u128::from(*count);
            seen >= rank
        });
        reached.map(|(longest, _)| *longest)
    }

    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Latencies) -> Latencies {
        let earlier = |ns| before.buckets.iter().find(|(longest, _)| *longest == ns).map_or(0, |(_, count)| *count);
        let grown = self.buckets.iter().map(|(ns, count)| (*ns, count.saturating_sub(earlier(*ns))));
        Latencies {
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            buckets: grown.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// The bucket of a time. Buckets end at round numbers: bucket 0 holds 0 and 1 ns, bucket n the times above the longest of n - 1.
fn bucket_of(ns: u64) -> usize {
    let below = ns.saturating_sub(1);
    let index = match below.checked_ilog2() {
        None | Some(0..SUB_BITS) => below,
        Some(DOUBLINGS_MAX..) => BUCKETS as u64 - 1,
        Some(doublings) => {
            let sub = (below >> (doublings - SUB_BITS)) - SUBS;
            SUBS * u64::from(doublings - SUB_BITS + 1) + sub
        }
    };
    usize::try_from(index).expect("an index of a small array")
}

/// The longest time in a bucket, in nanoseconds.
fn longest_ns(index: usize) -> u64 {
    let index = index as u64;
    match index / SUBS {
        0 => index + 1,
        _ if index == BUCKETS as u64 - 1 => u64::MAX,
        doubling => (SUBS + index % SUBS + 1) << (doubling - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_lies_in_the_first_bucket_that_is_long_enough() {
        let mut times: Vec<u64> = (0..70_000).collect();
        times.extend((10..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u64::MAX]));
        for ns in times {
            let bucket = bucket_of(ns);
            assert!(ns <= longest_ns(bucket), "{ns} in bucket {bucket}");
            assert!(bucket == 0 || ns > longest_ns(bucket - 1), "{ns} in bucket {bucket}");
        }
    }

    #[test]
    fn a_bucket_is_at_most_an_eighth_wide_and_powers_of_two_are_borders() {
        for index in 8..BUCKETS - 1 {
            let (low, high) = (longest_ns(index - 1), longest_ns(index));
            assert!((high - low) * 8 <= low, "bucket {index}");
        }
        for bit in 4..DOUBLINGS_MAX {
            assert_eq!(longest_ns(bucket_of(1 << bit)), 1 << bit);
        }
    }

    #[test]
    fn percentiles_are_those_of_a_sorted_list() {
        let (histogram, mut list) = (Histogram::default(), Vec::new());
        for step in 0..5_000_u64 {
            let ns = step * step % 977 * 100 + 1;
            histogram.add(ns);
            list.push(ns);
        }
        list.sort_unstable();
        let seen = histogram.snapshot();
        assert_eq!((seen.count(), seen.sum_ns), (5_000, list.iter().sum()));
        for permyriad in [1_u64, 5_000, 9_000, 9_900, 9_999, 10_000] {
            let rank = (5_000 * permyriad).div_ceil(10_000).max(1);
            let exact = list[usize::try_from(rank - 1).expect("a small rank")];
            assert_eq!(seen.percentile_ns(permyriad), Some(longest_ns(bucket_of(exact))), "{permyriad}");
        }
        assert_eq!(Latencies::default().percentile_ns(5_000), None);
    }

    #[test]
    fn a_difference_holds_what_came_later() {
        let histogram = Histogram::default();
        histogram.add(10);
        let before = histogram.snapshot();
        histogram.add(10);
        histogram.add(1 << 20);
        let later = histogram.snapshot().since(&before);
        assert_eq!((later.count(), later.sum_ns), (2, 10 + (1 << 20)));
        assert_eq!((later.count_within(1 << 10), later.count_within(1 << 20)), (1, 2));
    }
}
