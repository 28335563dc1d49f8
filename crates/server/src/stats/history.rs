//! The last hour of the volumes of a server, for its page: what they did in each of some hundred
//! intervals, in memory of bounded size.
//!
//! Samples are taken only while metrics are answered. They end with the process.

use crate::stats::latency::Latencies;
use crate::stats::snapshot::{Snapshot, VolumeCounts};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// How often a sample is taken.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// Samples that are kept: those of an hour.
const SAMPLES_MAX: usize = 720;

/// Time that samples are kept, in nanoseconds of the server's uptime.
const KEPT_NS: u64 = SAMPLES_MAX as u64 * SAMPLE_EVERY.as_secs() * 1_000_000_000;

// The guide states the memory of a volume's hour: 28,800 bytes.
const _: () = assert!(SAMPLES_MAX * size_of::<VolumeSample>() == 28_800);

/// The samples of one server.
pub(crate) struct History {
    /// Which run of a server it is, so that who kept an earlier one's samples gives them up.
    run: Uuid,
    recorded: Mutex<HourSoFar>,
}

#[derive(Default)]
struct HourSoFar {
    /// What had been counted when the last sample was taken.
    last: Option<(u64, Vec<Totals>)>,
    /// Ascending by time.
    samples: VecDeque<Sample>,
}

/// What the volumes did in one interval.
struct Sample {
    /// The interval's end, in nanoseconds of the server's uptime.
    up_ns: u64,
    /// Each volume, in the order of the exports.
    volumes: Box<[VolumeSample]>,
}

/// What one volume did in one interval. There is no time without a request; [`u64::MAX`] stands for
/// it, and for the dirty bytes of a volume without a cache.
struct VolumeSample {
    read_bytes_per_second: u64,
    written_bytes_per_second: u64,
    read_p99_ns: u64,
    write_p99_ns: u64,
    dirty_bytes: u64,
}

/// The value of a sample that has none.
const NONE: u64 = u64::MAX;

/// What a volume had counted at one time.
struct Totals {
    read: KindTotals,
    write: KindTotals,
}

/// What requests of one kind had counted.
#[derive(Default)]
struct KindTotals {
    bytes: u64,
    times: Latencies,
}

/// Samples as the page reads them: a column for each number.
#[derive(Serialize)]
struct Columns<'a> {
    run: Uuid,
    period_seconds: u64,
    up_seconds: f64,
    seconds: Vec<f64>,
    volumes: Vec<VolumeColumns<'a>>,
}

/// The columns of one volume, each as long as that of the times.
#[derive(Serialize)]
struct VolumeColumns<'a> {
    name: &'a str,
    read_bytes_per_second: Vec<u64>,
    written_bytes_per_second: Vec<u64>,
    read_p99_seconds: Vec<Option<f64>>,
    write_p99_seconds: Vec<Option<f64>>,
    dirty_bytes: Vec<Option<u64>>,
}

impl History {
    /// No samples.
    pub(crate) fn new() -> History {
        History { run: Uuid::new_v4(), recorded: Mutex::default() }
    }

    /// Adds the interval that ends with `now`, and forgets what is older than an hour. The first
    /// interval begins here.
    pub(crate) fn record(&self, now: &Snapshot) {
        let totals: Vec<Totals> = now.volumes.iter().map(Totals::of).collect();
        let mut recorded = self.recorded();
        let HourSoFar { last, samples } = &mut *recorded;
        if let Some((before_ns, before)) = last.replace((now.up_ns, totals))
            && let Some((_, totals)) = last
        {
            let interval_ns = now.up_ns.saturating_sub(before_ns).max(1);
            let changes = before.iter().zip(totals.iter()).zip(&now.volumes);
            let volumes = changes.map(|((before, after), of)| after.since(before, interval_ns, dirty_bytes(of)));
            samples.push_back(Sample { up_ns: now.up_ns, volumes: volumes.collect() });
        }
        let kept_from = now.up_ns.saturating_sub(KEPT_NS);
        while samples.len() > SAMPLES_MAX || samples.front().is_some_and(|oldest| oldest.up_ns < kept_from) {
            samples.pop_front();
        }
    }

    /// The samples that were taken after `after_ns` of the server's uptime and within the hour
    /// before `up_ns`, which is now, as JSON. `names` are those of the volumes.
    pub(crate) fn json<'n>(&self, up_ns: u64, names: impl Iterator<Item = &'n str>, after_ns: u64) -> String {
        let recorded = self.recorded();
        let from_ns = up_ns.saturating_sub(KEPT_NS);
        let shown: Vec<&Sample> =
            recorded.samples.iter().filter(|of| of.up_ns > after_ns && of.up_ns >= from_ns).collect();
        let columns = Columns {
            run: self.run,
            period_seconds: SAMPLE_EVERY.as_secs(),
            up_seconds: seconds(up_ns),
            seconds: shown.iter().map(|sample| seconds(sample.up_ns)).collect(),
            volumes: names.enumerate().map(|(nth, name)| VolumeColumns::of(name, nth, &shown)).collect(),
        };
        serde_json::to_string(&columns).unwrap_or_default()
    }

    fn recorded(&self) -> MutexGuard<'_, HourSoFar> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    fn of(volume: &VolumeCounts) -> Totals {
        let of_kind = |kind: &str| {
            let found = volume.requests.iter().find(|requests| requests.kind == kind);
            found.map_or_else(KindTotals::default, |of| KindTotals { bytes: of.bytes, times: of.times.clone() })
        };
        Totals { read: of_kind("read"), write: of_kind("write") }
    }

    fn since(&self, before: &Totals, interval_ns: u64, dirty_bytes: Option<u64>) -> VolumeSample {
        VolumeSample {
            read_bytes_per_second: self.read.bytes_per_second_since(&before.read, interval_ns),
            written_bytes_per_second: self.write.bytes_per_second_since(&before.write, interval_ns),
            read_p99_ns: self.read.p99_ns_since(&before.read),
            write_p99_ns: self.write.p99_ns_since(&before.write),
            dirty_bytes: dirty_bytes.unwrap_or(NONE),
        }
    }
}

impl KindTotals {
    fn bytes_per_second_since(&self, before: &KindTotals, interval_ns: u64) -> u64 {
        let grown = u128::from(self.bytes.saturating_sub(before.bytes));
        u64::try_from(grown * 1_000_000_000 / u128::from(interval_ns)).unwrap_or(NONE - 1)
    }

    fn p99_ns_since(&self, before: &KindTotals) -> u64 {
        self.times.since(&before.times).percentile_ns(9_900).unwrap_or(NONE)
    }
}

impl VolumeColumns<'_> {
    fn of<'a>(name: &'a str, nth: usize, samples: &[&Sample]) -> VolumeColumns<'a> {
        let column = |value: fn(&VolumeSample) -> u64| -> Vec<Option<u64>> {
            let all = samples.iter().map(|sample| sample.volumes.get(nth).map(value));
            all.map(|value| value.filter(|value| *value != NONE)).collect()
        };
        let counted = |value| column(value).into_iter().map(Option::unwrap_or_default).collect();
        let times = |value| column(value).into_iter().map(|ns| ns.map(seconds)).collect();
        VolumeColumns {
            name,
            read_bytes_per_second: counted(|of| of.read_bytes_per_second),
            written_bytes_per_second: counted(|of| of.written_bytes_per_second),
            read_p99_seconds: times(|of| of.read_p99_ns),
            write_p99_seconds: times(|of| of.write_p99_ns),
            dirty_bytes: column(|of| of.dirty_bytes),
        }
    }
}

/// Bytes of a volume that only its disk cache or its write cache has, if it has one of them.
fn dirty_bytes(volume: &VolumeCounts) -> Option<u64> {
    let in_slots = || Some(volume.reading("cache_dirty_slots")? * volume.reading("cache_block")?);
    volume.reading("disk_cache_dirty").or_else(in_slots)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::registry::{Metric, Unit};
    use crate::stats::snapshot::RequestCounts;
    use serde_json::Value;

    const SECOND: u64 = 1_000_000_000;

    /// A server with a volume that wrote so many bytes, in requests of 4096 bytes that took `ns`.
    fn snapshot(up_ns: u64, written: u64, ns: u64, readings: Vec<Metric>) -> Snapshot {
        let times = Latencies { sum_ns: 0, buckets: vec![(ns, written / 4096)] };
        let requests = vec![RequestCounts { kind: "write".to_owned(), errors: 0, bytes: written, times }];
        let volume = VolumeCounts {
            name: "v".to_owned(),
            pmem: "/v".into(),
            format: String::new(),
            domain: String::new(),
            requests,
            readings,
            disk: None,
            read_only: false,
            uris: Vec::new(),
        };
        Snapshot { pid: 7, up_ns, connections: Default::default(), volumes: vec![volume] }
    }

    fn plain(up_ns: u64, written: u64) -> Snapshot {
        snapshot(up_ns, written, 8192, Vec::new())
    }

    fn told(history: &History, now: &Snapshot, after_ns: u64) -> Value {
        let names = now.volumes.iter().map(|volume| volume.name.as_str());
        serde_json::from_str(&history.json(now.up_ns, names, after_ns)).expect("it is JSON")
    }

    #[test]
    fn an_interval_tells_what_came_in_it_and_no_time_without_a_request() {
        let history = History::new();
        history.record(&plain(3 * SECOND, 8 << 20));
        assert_eq!(told(&history, &plain(4 * SECOND, 8 << 20), 0)["seconds"], serde_json::json!([]));
        history.record(&plain(5 * SECOND, 10 << 20));
        history.record(&plain(9 * SECOND, 10 << 20));
        let told = told(&history, &plain(10 * SECOND, 10 << 20), 0);
        assert_eq!((&told["seconds"], &told["up_seconds"]), (&serde_json::json!([5.0, 9.0]), &10.0.into()));
        let of = &told["volumes"][0];
        assert_eq!(of["name"], "v");
        assert_eq!(of["written_bytes_per_second"], serde_json::json!([1 << 20, 0]));
        assert_eq!(of["read_bytes_per_second"], serde_json::json!([0, 0]));
        assert_eq!(of["write_p99_seconds"], serde_json::json!([0.000008192, null]));
        assert_eq!(of["dirty_bytes"], serde_json::json!([null, null]));
    }

    #[test]
    fn dirty_bytes_are_those_of_the_cache_that_there_is() {
        let gauge = |name, value| Metric::gauge(name, "", Unit::Bytes, value);
        let caches = [
            (vec![gauge("cache_dirty_slots", 3), gauge("cache_block", 512)], 1536),
            (vec![gauge("disk_cache_dirty", 70)], 70),
        ];
        for (readings, dirty) in caches {
            let history = History::new();
            history.record(&snapshot(0, 0, 1, readings.clone()));
            let now = snapshot(SECOND, 0, 1, readings);
            history.record(&now);
            assert_eq!(told(&history, &now, 0)["volumes"][0]["dirty_bytes"], serde_json::json!([dirty]));
        }
    }

    #[test]
    fn no_more_than_an_hour_is_kept_and_told_and_who_has_some_gets_the_rest() {
        let history = History::new();
        for nth in 0..2000 {
            history.record(&plain(nth * 5 * SECOND, 0));
        }
        assert_eq!(history.recorded().samples.len(), SAMPLES_MAX);
        // Two of the same interval, as when the port of the metrics is exchanged.
        history.record(&plain(1999 * 5 * SECOND + 1, 0));
        assert_eq!(history.recorded().samples.len(), SAMPLES_MAX);
        let count =
            |now: &Snapshot, after_ns| told(&history, now, after_ns)["seconds"].as_array().expect("a column").len();
        let last = 1999 * 5 * SECOND;
        assert_eq!(count(&plain(last, 0), last - 10 * SECOND), 3);
        assert_eq!(count(&plain(last, 0), last + 1), 0);
        // Metrics were answered no more, and are again an hour later.
        assert_eq!(count(&plain(last + KEPT_NS + 2, 0), 0), 0);
        history.record(&plain(last + KEPT_NS + 2, 0));
        assert_eq!(history.recorded().samples.len(), 1);
    }
}
