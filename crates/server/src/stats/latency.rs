//! How long requests took, as it travels over the control socket: counts in buckets, and the
//! percentiles read from them.

use serde::{Deserialize, Serialize};
use tidegate_block_export::Latency;

/// Times at one moment, or between two.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// The sum of all times, in nanoseconds.
    pub sum_ns: u64,
    /// The time in nanoseconds that all in a bucket stayed below, and how many are in it; empty
    /// buckets are left out. Ascending.
    pub buckets: Vec<(u64, u64)>,
}

impl From<&Latency> for Latencies {
    fn from(latency: &Latency) -> Latencies {
        let ns = |bound: std::time::Duration| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let buckets = latency.buckets().map(|(bound, count)| (ns(bound), count)).collect();
        Latencies { sum_ns: latency.total_nanoseconds, buckets }
    }
}

impl Latencies {
    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// How many stayed below `ns`. Exact where a bucket ends, as it does at each power of two;
    /// elsewhere the bucket that `ns` lies in is left out.
    pub fn count_below(&self, ns: u64) -> u64 {
        self.buckets.iter().take_while(|(bound, _)| *bound <= ns).map(|(_, count)| count).sum()
    }

    /// A time in nanoseconds that `permyriad` of 10,000 requests stayed below; None without
    /// requests.
    pub fn percentile_ns(&self, permyriad: u64) -> Option<u64> {
        let rank = (u128::from(self.count()) * u128::from(permyriad)).div_ceil(10_000).max(1);
        let mut seen = 0;
        let reached = self.buckets.iter().find(|(_, count)| {
            seen += u128::from(*count);
            seen >= rank
        });
        reached.map(|(bound, _)| *bound)
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Latencies) -> Latencies {
        let earlier = |ns| before.buckets.iter().find(|(bound, _)| *bound == ns).map_or(0, |(_, count)| *count);
        let grown = self.buckets.iter().map(|(ns, count)| (*ns, count.saturating_sub(earlier(*ns))));
        Latencies {
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            buckets: grown.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_bounds_of_the_buckets_that_hold_them() {
        let times = Latencies { sum_ns: 9, buckets: vec![(8, 50), (16, 49), (1 << 20, 1)] };
        assert_eq!(times.count(), 100);
        let at = |permyriad| times.percentile_ns(permyriad);
        assert_eq!((at(1), at(5_000), at(5_001)), (Some(8), Some(8), Some(16)));
        assert_eq!((at(9_900), at(9_901), at(10_000)), (Some(16), Some(1 << 20), Some(1 << 20)));
        assert_eq!(Latencies::default().percentile_ns(5_000), None);
        assert_eq!((times.count_below(8), times.count_below(15), times.count_below(16)), (50, 50, 99));
    }

    #[test]
    fn a_difference_holds_what_came_later() {
        let before = Latencies { sum_ns: 10, buckets: vec![(16, 1)] };
        let after = Latencies { sum_ns: 50, buckets: vec![(8, 2), (16, 2), (32, 1)] };
        let expected = Latencies { sum_ns: 40, buckets: vec![(8, 2), (16, 1), (32, 1)] };
        assert_eq!(after.since(&before), expected);
        assert_eq!(after.since(&after), Latencies::default());
    }
}
