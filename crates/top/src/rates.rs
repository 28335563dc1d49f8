//! What happened between two samples of one volume or mount: rates, latencies, and how long
//! write-back goes on. Pure: the time that passed is the difference of what the source says.

use crate::figure::Figure;
use crate::samples::{Sample, Totals};
use serde::Serialize;

/// What happened between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Requests of every kind in a second.
    pub(crate) requests_per_second: Figure,
    /// Reads in a second.
    pub(crate) reads_per_second: Figure,
    /// Writes in a second.
    pub(crate) writes_per_second: Figure,
    /// Flushes of a volume, or syncs of files of a mount, in a second.
    pub(crate) syncs_per_second: Figure,
    /// Bytes read in a second.
    pub(crate) read_bytes_per_second: Figure,
    /// Bytes written to a volume, or made durable by syncs of a mount, in a second.
    pub(crate) written_bytes_per_second: Figure,
    /// Half of the reads and writes took no longer.
    pub(crate) p50_us: Figure,
    /// Of 100 reads and writes, 99 took no longer.
    pub(crate) p99_us: Figure,
    /// Bytes in a second that reached the medium behind the cache.
    pub(crate) written_back_bytes_per_second: Figure,
    /// Until the bytes that are dirty now are written back at this rate.
    pub(crate) eta_seconds: Figure,
}

impl Rates {
    /// What happened between `before` and `now`. A source that was started anew counts from its
    /// start.
    pub(crate) fn between(before: Option<&Sample>, now: &Sample) -> Rates {
        let awaited = |total: Option<u64>| total.map_or(Figure::Absent, |_| Figure::Awaited);
        let Some(seconds) = before.and_then(|before| seconds_between(before, now)) else {
            return Rates::of(&now.totals, now, awaited);
        };
        let none = Sample::default();
        let before = before.filter(|before| before.precedes(now)).unwrap_or(&none);
        let grown = now.totals.since(&before.totals);
        let per_second =
            |grown: Option<u64>| grown.map_or(Figure::Absent, |grown| Figure::Known(grown as f64 / seconds));
        let mut rates = Rates::of(&grown, now, per_second);
        let times = now.times.as_ref().map(|times| times.since(before.times.as_ref().unwrap_or(&Default::default())));
        let at = |permyriad| {
            let ns = times.as_ref().and_then(|times| times.percentile_ns(permyriad));
            ns.map_or(Figure::Absent, |ns| Figure::Known(ns as f64 / 1e3))
        };
        (rates.p50_us, rates.p99_us) = (at(5_000), at(9_900));
        rates.eta_seconds = eta(now.dirty_bytes, rates.written_back_bytes_per_second);
        rates
    }

    /// Each total by `of`; what needs two samples is awaited.
    fn of(totals: &Totals, now: &Sample, of: impl Fn(Option<u64>) -> Figure) -> Rates {
        let times = now.times.as_ref().map_or(Figure::Absent, |_| Figure::Awaited);
        Rates {
            requests_per_second: of(totals.requests),
            reads_per_second: of(totals.reads),
            writes_per_second: of(totals.writes),
            syncs_per_second: of(totals.syncs),
            read_bytes_per_second: of(totals.read_bytes),
            written_bytes_per_second: of(totals.written_bytes),
            p50_us: times,
            p99_us: times,
            written_back_bytes_per_second: of(totals.written_back_bytes),
            eta_seconds: totals.written_back_bytes.map_or(Figure::Absent, |_| Figure::Awaited),
        }
    }
}

/// The time between two samples; None: none has passed.
pub(crate) fn seconds_between(before: &Sample, now: &Sample) -> Option<f64> {
    let from = if before.precedes(now) { before.up_ns } else { 0 };
    let ns = now.up_ns.saturating_sub(from);
    (ns > 0).then(|| ns as f64 / 1e9)
}

/// The time until `dirty` bytes are written back at `rate`, if nothing is added.
fn eta(dirty: Option<u64>, rate: Figure) -> Figure {
    match (dirty, rate) {
        (Some(0), Figure::Known(_)) => Figure::Known(0.0),
        (Some(dirty), Figure::Known(rate)) if rate > 0.0 => Figure::Known(dirty as f64 / rate),
        _ => Figure::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_server::stats::latency::Latencies;

    /// A sample after so many seconds, with `counted` of everything.
    fn sample(seconds: u64, counted: u64) -> Sample {
        let totals = Totals {
            requests: Some(3 * counted),
            reads: Some(counted),
            read_bytes: Some(4096 * counted),
            written_back_bytes: Some(1000 * counted),
            ..Totals::default()
        };
        let times = Latencies { sum_ns: 0, buckets: vec![(1_000, 10), (8_000, counted)] };
        let dirty_bytes = Some(6_000);
        Sample { pid: 7, up_ns: seconds * 1_000_000_000, totals, times: Some(times), dirty_bytes, ..Sample::default() }
    }

    #[test]
    fn rates_are_differences_over_the_time_of_the_source() {
        let rates = Rates::between(Some(&sample(10, 100)), &sample(14, 108));
        assert_eq!(rates.requests_per_second, Figure::Known(6.0));
        assert_eq!((rates.reads_per_second, rates.writes_per_second), (Figure::Known(2.0), Figure::Absent));
        assert_eq!(rates.read_bytes_per_second, Figure::Known(8192.0));
        assert_eq!((rates.p50_us, rates.p99_us), (Figure::Known(8.0), Figure::Known(8.0)), "those since then");
    }

    #[test]
    fn the_first_sample_has_no_rates_yet_but_says_which_will_come() {
        let rates = Rates::between(None, &sample(10, 100));
        assert_eq!((rates.reads_per_second, rates.writes_per_second), (Figure::Awaited, Figure::Absent));
        assert_eq!((rates.p99_us, rates.eta_seconds), (Figure::Awaited, Figure::Awaited));
        let same = Rates::between(Some(&sample(10, 100)), &sample(10, 100));
        assert_eq!(same.reads_per_second, Figure::Awaited, "no time has passed");
    }

    #[test]
    fn a_source_that_was_started_anew_counts_from_its_start() {
        let anew = sample(2, 8);
        let other = Sample { pid: 8, ..sample(20, 8) };
        for (before, now, seconds) in [(sample(10, 100), anew, 2.0), (sample(10, 5), other, 20.0)] {
            assert_eq!(Rates::between(Some(&before), &now).reads_per_second, Figure::Known(8.0 / seconds));
        }
    }

    #[test]
    fn write_back_ends_when_its_rate_has_brought_what_is_dirty() {
        let between = |dirty_bytes, counted| {
            let now = Sample { dirty_bytes, ..sample(14, counted) };
            Rates::between(Some(&sample(10, 100)), &now).eta_seconds
        };
        assert_eq!(between(Some(6_000), 108), Figure::Known(3.0));
        assert_eq!(between(Some(0), 108), Figure::Known(0.0));
        assert_eq!(between(Some(6_000), 100), Figure::Absent, "nothing moves");
        assert_eq!(between(None, 108), Figure::Absent);
    }

    #[test]
    fn without_requests_there_is_no_latency() {
        let rates = Rates::between(Some(&sample(10, 100)), &sample(14, 100));
        assert_eq!((rates.p50_us, rates.reads_per_second), (Figure::Absent, Figure::Known(0.0)));
    }
}
