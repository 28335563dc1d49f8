//! The requests of clients to an export: their number, bytes, errors and times, counted while they
//! are served.
//!
//! Counting costs three additions to memory that few other threads write to: connections are spread
//! over stripes, and a count is the sum over all of them. Times fall into buckets, four to each
//! doubling, so that any share of the requests can be bounded to a quarter of its time.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Connections that count into the same memory share it with each this many-th other.
const STRIPES: usize = 4;

/// Buckets up to 2^37 ns, more than two minutes; longer times count in the last.
const BUCKETS: usize = 144;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// FLUSH.
    Flush,
    /// TRIM.
    Trim,
    /// CACHE.
    Cache,
    /// WRITE_ZEROES.
    WriteZeroes,
    /// BLOCK_STATUS.
    BlockStatus,
    /// A command that is not known here; always an error.
    Unknown,
}

impl RequestKind {
    /// All of them, in the order of [`ExportCounters::requests`].
    pub const ALL: [RequestKind; 8] = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Flush,
        RequestKind::Trim,
        RequestKind::Cache,
        RequestKind::WriteZeroes,
        RequestKind::BlockStatus,
        RequestKind::Unknown,
    ];
}

/// What an export's clients asked for so far. Requests that are being served count once they are
/// answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportCounters {
    /// Connections that use the export now.
    pub connections_open: u64,
    /// Connections that ever used it, these included.
    pub connections_total: u64,
    /// By kind, in the order of [`RequestKind::ALL`].
    pub requests: [RequestCounters; RequestKind::ALL.len()],
}

impl ExportCounters {
    /// The requests of one kind.
    pub fn of(&self, kind: RequestKind) -> &RequestCounters {
        &self.requests[kind as usize]
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCounters {
    /// Which kind.
    pub kind: RequestKind,
    /// How many were answered, with errors or without.
    pub requests: u64,
    /// How many were answered with an error.
    pub errors: u64,
    /// Bytes in the ranges of those answered without one.
    pub bytes: u64,
    /// How long they took.
    pub latency: Latency,
}

/// How long requests took, from the moment the server took them up until their reply was ready to
/// be sent. A write longer than the input buffer is taken up with its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// All times together, in nanoseconds.
    pub total_nanoseconds: u64,
    buckets: [u64; BUCKETS],
}

impl Latency {
    /// Each bucket that is not empty, from the shortest times on: the time that all in it stayed
    /// below, and how many there are. Times in the last bucket there can be may be longer.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let bounded = self.buckets.iter().enumerate().map(|(index, count)| (upper_bound(index), *count));
        bounded.filter(|(_, count)| *count > 0)
    }

    /// A time that at least this share of the requests stayed below (0.5: half of them); none if
    /// there were no requests.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.buckets.iter().sum();
        let mut seen = 0;
        self.buckets().find_map(|(bound, count)| {
            seen += count;
            (seen as f64 >= share * total as f64).then_some(bound)
        })
    }
}

/// The bucket of a time in nanoseconds: its leading bit and the two after it.
fn bucket(nanoseconds: u64) -> usize {
    let index = match nanoseconds {
        0..4 => nanoseconds,
        _ => {
            let octave = nanoseconds.ilog2();
            u64::from(4 * (octave - 1)) + (nanoseconds >> (octave - 2) & 3)
        }
    };
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// What all times in a bucket are shorter than.
fn upper_bound(bucket: usize) -> Duration {
    let (octave, quarter) = (bucket as u64 / 4 + 1, bucket as u64 % 4);
    Duration::from_nanos(if bucket < 4 { bucket as u64 + 1 } else { (5 + quarter) << (octave - 2) })
}

/// The counters of an export.
pub(crate) struct Counters {
    open: AtomicU64,
    total: AtomicU64,
    stripes: Box<[Stripe]>,
}

/// Counters of some connections, on cache lines of their own.
#[repr(align(128))]
struct Stripe([Cells; RequestKind::ALL.len()]);

struct Cells {
    buckets: [AtomicU64; BUCKETS],
    errors: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

// Counts are read while others add to them; nothing is concluded from one count about another or
// about other memory, so all accesses here are relaxed and have no partner.
impl Counters {
    pub(crate) fn new() -> Counters {
        let zero = || AtomicU64::new(0);
        let cells = || Cells { buckets: from_fn(|_| zero()), errors: zero(), bytes: zero(), nanoseconds: zero() };
        let stripes = (0..STRIPES).map(|_| Stripe(from_fn(|_| cells()))).collect();
        Counters { open: zero(), total: zero(), stripes }
    }

    pub(crate) fn read(&self) -> ExportCounters {
        ExportCounters {
            connections_open: self.open.load(Ordering::Relaxed),
            connections_total: self.total.load(Ordering::Relaxed),
            requests: RequestKind::ALL.map(|kind| self.sum(kind)),
        }
    }

    fn sum(&self, kind: RequestKind) -> RequestCounters {
        let sum = |cell: &dyn Fn(&Cells) -> &AtomicU64| -> u64 {
            self.stripes.iter().map(|stripe| cell(&stripe.0[kind as usize]).load(Ordering::Relaxed)).sum()
        };
        let buckets = from_fn(|bucket| sum(&|cells| &cells.buckets[bucket]));
        RequestCounters {
            kind,
            requests: buckets.iter().sum(),
            errors: sum(&|cells| &cells.errors),
            bytes: sum(&|cells| &cells.bytes),
            latency: Latency { total_nanoseconds: sum(&|cells| &cells.nanoseconds), buckets },
        }
    }

    /// Counts a connection, which is open until the result is dropped.
    pub(crate) fn open(&self) -> ConnectionCounters<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        let number = self.total.fetch_add(1, Ordering::Relaxed);
        let stripe = &self.stripes[usize::try_from(number).unwrap_or_default() % STRIPES];
        ConnectionCounters { counters: self, stripe }
    }
}

/// The counters that one open connection adds to.
pub struct ConnectionCounters<'c> {
    counters: &'c Counters,
    stripe: &'c Stripe,
}

impl ConnectionCounters<'_> {
    /// Counts an answered request: the bytes it was about if it succeeded, and how long it took.
    pub fn answered(&self, kind: RequestKind, bytes: Option<u64>, took: Duration) {
        let cells = &self.stripe.0[kind as usize];
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        cells.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        cells.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        match bytes {
            Some(bytes) => cells.bytes.fetch_add(bytes, Ordering::Relaxed),
            None => cells.errors.fetch_add(1, Ordering::Relaxed),
        };
    }
}

impl Drop for ConnectionCounters<'_> {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_below_the_bound_of_its_bucket_and_not_below_the_one_before() {
        let times = (0..200).chain((0..37).flat_map(|shift| [(1 << shift) - 1, 1 << shift, (1 << shift) + 1]));
        for nanoseconds in times {
            let index = bucket(nanoseconds);
            assert!(Duration::from_nanos(nanoseconds) < upper_bound(index), "{nanoseconds}");
            assert!(index == 0 || Duration::from_nanos(nanoseconds) >= upper_bound(index - 1), "{nanoseconds}");
        }
        assert_eq!(bucket((1 << 37) - 1), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_bounds_its_share() {
        let counters = Counters::new();
        let tally = counters.open();
        for nanoseconds in 1..=1000 {
            tally.answered(RequestKind::Read, Some(1), Duration::from_nanos(nanoseconds));
        }
        let latency = &counters.read().requests[0].latency;
        assert_eq!(latency.total_nanoseconds, 500_500);
        assert_eq!(latency.quantile(0.5), Some(Duration::from_nanos(512)));
        assert_eq!(latency.quantile(1.0), Some(Duration::from_nanos(1024)));
        assert_eq!(latency.quantile(0.001), Some(Duration::from_nanos(2)));
        assert_eq!(counters.read().of(RequestKind::Flush).latency.quantile(0.5), None);
    }
}
