//! What a source said of one volume or mount at one time, in the terms of the table.

use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_file_service::MountStatus;
use tidegate_host::units::Human;
use tidegate_server::sockets::connections::ConnectionCounts;
use tidegate_server::stats::latency::Latencies;
use tidegate_server::stats::registry::Metric;
use tidegate_server::stats::snapshot::{RequestCounts, Snapshot, VolumeCounts};

/// Columns that `DiskState` has for the names of its lines.
const NAME_COLUMNS: usize = 10;

/// One volume or mount at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// The process that counts; 0 if the service does not say.
    pub(crate) pid: u32,
    /// Nanoseconds for which it has counted.
    pub(crate) up_ns: u64,
    /// What only grows.
    pub(crate) totals: Totals,
    /// How long reads and writes took.
    pub(crate) times: Option<Latencies>,
    /// Bytes that are not yet written back.
    pub(crate) dirty_bytes: Option<u64>,
    /// Reads by the tier that had the data, the nearest first: bytes of a mount, blocks of a cache.
    pub(crate) hits: Vec<(&'static str, u64)>,
    /// Every number, by name.
    pub(crate) details: Vec<Detail>,
}

/// What only grows. None: the source does not count that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    /// Requests of every kind.
    pub(crate) requests: Option<u64>,
    /// Requests that failed.
    pub(crate) errors: Option<u64>,
    /// Reads.
    pub(crate) reads: Option<u64>,
    /// Writes.
    pub(crate) writes: Option<u64>,
    /// Flushes of a volume, or syncs of files of a mount.
    pub(crate) syncs: Option<u64>,
    /// Bytes read.
    pub(crate) read_bytes: Option<u64>,
    /// Bytes written to a volume, or made durable by syncs of a mount.
    pub(crate) written_bytes: Option<u64>,
    /// Bytes that reached the medium behind the cache.
    pub(crate) written_back_bytes: Option<u64>,
}

impl Totals {
    /// What came since `before`.
    pub(crate) fn since(&self, before: &Totals) -> Totals {
        let since = |of: fn(&Totals) -> Option<u64>| Some(of(self)?.saturating_sub(of(before).unwrap_or(0)));
        Totals {
            requests: since(|of| of.requests),
            errors: since(|of| of.errors),
            reads: since(|of| of.reads),
            writes: since(|of| of.writes),
            syncs: since(|of| of.syncs),
            read_bytes: since(|of| of.read_bytes),
            written_bytes: since(|of| of.written_bytes),
            written_back_bytes: since(|of| of.written_back_bytes),
        }
    }
}

/// One number of a source, as it is shown alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Detail {
    /// Its name, as `stat --json` or `status --json` has it.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
    /// The number, if it only grows.
    pub(crate) counted: Option<f64>,
}

impl Detail {
    fn text(name: &str, value: impl ToString) -> Detail {
        Detail { name: name.to_owned(), value: value.to_string(), counted: None }
    }

    fn number(name: String, number: u64) -> Detail {
        let value = if name.ends_with("_bytes") { Human(number).to_string() } else { number.to_string() };
        Detail { name, value, counted: None }
    }

    fn counter(name: String, number: u64) -> Detail {
        Detail { counted: Some(number as f64), ..Detail::number(name, number) }
    }
}

impl Sample {
    /// Whether it was taken before `now`, of the same run of the source.
    pub(crate) fn precedes(&self, now: &Sample) -> bool {
        self.pid == now.pid && self.up_ns <= now.up_ns
    }

    /// A volume of a server.
    pub(crate) fn of_volume(server: &Snapshot, volume: &VolumeCounts) -> Sample {
        let of = |kind: &str| volume.requests.iter().find(|requests| requests.kind == kind);
        let all = |of: fn(&RequestCounts) -> u64| Some(volume.requests.iter().map(of).sum());
        let (read, write) = (of("read"), of("write"));
        let count = |of: Option<&RequestCounts>| of.map(|of| of.times.count());
        let cached = volume.disk.as_ref().filter(|disk| disk.attached);
        Sample {
            pid: server.pid,
            up_ns: server.up_ns,
            totals: Totals {
                requests: all(|of| of.times.count()),
                errors: all(|of| of.errors),
                reads: count(read),
                writes: count(write),
                syncs: count(of("flush")),
                read_bytes: read.map(|of| of.bytes),
                written_bytes: write.map(|of| of.bytes),
                written_back_bytes: written_back(volume),
            },
            times: Some(together(read, write)),
            dirty_bytes: cached.map(|disk| disk.dirty_bytes).or_else(|| waiting_in_write_cache(volume)),
            hits: cached.map_or_else(Vec::new, |disk| vec![("cache", disk.reads.hits), ("disk", disk.reads.misses)]),
            details: details_of_volume(server, volume),
        }
    }

    /// A mount.
    pub(crate) fn of_mount(status: &MountStatus) -> Sample {
        let counts = &status.counts;
        let read = [("DRAM", counts.read_dram_bytes), ("pool", counts.read_pool_bytes)];
        let hits: Vec<_> = read.into_iter().chain([("below", counts.read_below_bytes)]).collect();
        Sample {
            pid: 0,
            up_ns: counts.up_ns,
            totals: Totals {
                requests: Some(counts.requests),
                syncs: Some(counts.syncs + counts.syncs_below),
                read_bytes: Some(hits.iter().map(|(_, bytes)| bytes).sum()),
                written_bytes: Some(counts.synced_bytes),
                written_back_bytes: Some(counts.written_back_bytes),
                ..Totals::default()
            },
            times: None,
            dirty_bytes: Some(status.dirty_bytes + status.out_of_sync_bytes),
            hits,
            details: details_of_mount(status),
        }
    }
}

/// How long reads and writes took, together.
fn together(read: Option<&RequestCounts>, write: Option<&RequestCounts>) -> Latencies {
    let mut both = Latencies::default();
    let mut buckets = std::collections::BTreeMap::new();
    for times in [read, write].into_iter().flatten().map(|of| &of.times) {
        both.sum_ns += times.sum_ns;
        times.buckets.iter().for_each(|(bound, count)| *buckets.entry(*bound).or_insert(0) += count);
    }
    both.buckets = buckets.into_iter().collect();
    both
}

/// Bytes of the blocks that left a cache for the medium behind it.
fn written_back(volume: &VolumeCounts) -> Option<u64> {
    let bytes = |blocks, size| Some(volume.reading(blocks)? * volume.reading(size)?);
    bytes("disk_cache_destaged_blocks", "disk_cache_block").or_else(|| bytes("cache_evicted_blocks", "cache_block"))
}

/// Bytes that only the write cache has.
fn waiting_in_write_cache(volume: &VolumeCounts) -> Option<u64> {
    Some(volume.reading("cache_dirty_slots")? * volume.reading("cache_block")?)
}

fn details_of_volume(server: &Snapshot, volume: &VolumeCounts) -> Vec<Detail> {
    let ConnectionCounts { open, admitted, over_limit, strangers } = server.connections;
    let mut details = vec![
        Detail::text("region", volume.pmem.display()),
        Detail::text("format", &volume.format),
        Detail::text("domain", &volume.domain),
    ];
    details.extend(volume.uris.iter().map(|uri| Detail::text("uri", uri)));
    let disk = volume.disk.iter().flat_map(|disk| disk.to_string().lines().map(str::to_owned).collect::<Vec<_>>());
    details.extend(disk.filter_map(|line| {
        let (name, value) = line.split_at_checked(NAME_COLUMNS)?;
        Some(Detail::text(name.trim(), value.trim()))
    }));
    details.push(Detail::number("connections_open".to_owned(), open));
    let connections = [("admitted", admitted), ("over_limit", over_limit), ("strangers", strangers)];
    details.extend(connections.map(|(of, number)| Detail::counter(format!("connections_{of}"), number)));
    details.extend(volume.requests.iter().map(of_kind));
    details.extend(volume.readings.iter().map(of_metric));
    details
}

/// Requests of one kind: how many, and how long those took that came since the server's start.
fn of_kind(requests: &RequestCounts) -> Detail {
    let RequestCounts { kind, errors, bytes, times } = requests;
    let count = times.count();
    let latencies = [("p50", 5_000), ("p99", 9_900), ("p99.99", 9_999)].map(|(name, permyriad)| {
        let ns = times.percentile_ns(permyriad);
        ns.map_or(String::new(), |ns| format!(", {name} {}", crate::notation::microseconds(ns as f64 / 1e3)))
    });
    let value = format!("{count} requests, {errors} errors, {}{}", Human(*bytes), latencies.concat());
    Detail { name: format!("requests.{kind}"), value, counted: Some(count as f64) }
}

fn of_metric(metric: &Metric) -> Detail {
    let name = metric.full_name();
    match metric.counted() {
        _ if name.ends_with("_seconds") => Detail::text(&name, format!("{:.3}", metric.in_unit())),
        Some(number) => Detail::counter(name, number),
        None => Detail::number(name, metric.value),
    }
}

/// Everything that a mount says, by the names of `status --json`.
fn details_of_mount(status: &MountStatus) -> Vec<Detail> {
    let object = |value: serde_json::Result<Value>| match value {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    };
    let counts = object(serde_json::to_value(status.counts));
    let mut gauges = object(serde_json::to_value(status));
    gauges.retain(|name, _| !counts.contains_key(name));
    let mut details = Vec::new();
    gauges.iter().for_each(|(name, value)| flatten(name, value, Detail::number, &mut details));
    counts.iter().for_each(|(name, value)| flatten(name, value, Detail::counter, &mut details));
    details
}

/// Adds what `value` has; each number by `of`.
fn flatten(name: &str, value: &Value, of: fn(String, u64) -> Detail, details: &mut Vec<Detail>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(key, value)| flatten(&format!("{name}.{key}"), value, of, details));
        }
        Value::Number(number) => details.extend(number.as_u64().map(|number| of(name.to_owned(), number))),
        Value::String(text) => details.push(Detail::text(name, text)),
        _ => {}
    }
}
