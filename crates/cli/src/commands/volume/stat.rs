//! `tidegate stat`: what a running server does, once or every second.

use crate::commands::watched::{INTERVAL, Since, per_second};
use crate::errors::{Exit, Failure};
use crate::grammar::Stat;
use crate::output;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use tidegate_host::columns::line;
use tidegate_host::default_paths;
use tidegate_server::control::client;
use tidegate_server::failure::ControlFailure;
use tidegate_server::sockets::connections::ConnectionCounts;
use tidegate_server::stats::snapshot::{RequestCounts, Snapshot, VolumeCounts};

/// What `stat` answers: a snapshot, with rates and percentiles.
#[derive(Serialize)]
struct StatReport {
    pid: u32,
    /// What everything that is counted is counted from.
    since: Since,
    /// How long ago that was.
    seconds: f64,
    connections: ConnectionCounts,
    volumes: Vec<VolumeStats>,
}

#[derive(Serialize)]
struct VolumeStats {
    name: String,
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    format: String,
    /// Which failures its memory survives.
    domain: String,
    requests: BTreeMap<String, Requests>,
    /// The numbers of the layers below. Names end in their unit.
    counters: BTreeMap<String, f64>,
    /// By how much a second those of them grew that only grow.
    per_second: BTreeMap<String, f64>,
    #[serde(skip)]
    shown: VolumeCounts,
}

/// Requests of one kind.
#[derive(Serialize)]
struct Requests {
    requests: u64,
    errors: u64,
    bytes: u64,
    per_second: f64,
    bytes_per_second: f64,
    latency_us: Option<Percentiles>,
}

/// Times in microseconds that this share of the requests did not exceed.
#[derive(Serialize)]
struct Percentiles {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p99_9: f64,
    p99_99: f64,
}

impl StatReport {
    fn new(snapshot: Snapshot, since: Since) -> StatReport {
        let Snapshot { pid, up_ns, connections, volumes } = snapshot;
        let seconds = up_ns as f64 / 1e9;
        let volumes = volumes.into_iter().map(|volume| VolumeStats::new(volume, seconds)).collect();
        StatReport { pid, since, seconds, connections, volumes }
    }

    /// What came between `last` and `now`.
    fn between(last: &Snapshot, now: &Snapshot) -> StatReport {
        let between = now.since(last);
        let since = if between.up_ns == now.up_ns { Since::Start } else { Since::Last };
        StatReport::new(between, since)
    }
}

impl VolumeStats {
    fn new(volume: VolumeCounts, seconds: f64) -> VolumeStats {
        let grown = volume.readings.iter().filter(|reading| reading.counted().is_some());
        VolumeStats {
            name: volume.name.clone(),
            file: volume.pmem.clone(),
            format: volume.format.clone(),
            domain: volume.domain.clone(),
            requests: volume.requests.iter().map(|of| (of.kind.clone(), Requests::new(of, seconds))).collect(),
            counters: volume.readings.iter().map(|reading| (reading.full_name(), reading.in_unit())).collect(),
            per_second: grown.map(|reading| (reading.full_name(), per_second(reading.in_unit(), seconds))).collect(),
            shown: volume,
        }
    }
}

impl Requests {
    fn new(counts: &RequestCounts, seconds: f64) -> Requests {
        let per_second = |count: u64| per_second(count as f64, seconds);
        let requests = counts.times.count();
        Requests {
            requests,
            errors: counts.errors,
            bytes: counts.bytes,
            per_second: per_second(requests),
            bytes_per_second: per_second(counts.bytes),
            latency_us: Percentiles::of(counts),
        }
    }
}

impl Percentiles {
    fn of(counts: &RequestCounts) -> Option<Percentiles> {
        let at = |permyriad| counts.times.percentile_ns(permyriad).map(|ns| ns as f64 / 1e3);
        Some(Percentiles {
            mean: counts.times.sum_ns as f64 / 1e3 / counts.times.count() as f64,
            p50: at(5_000)?,
            p90: at(9_000)?,
            p99: at(9_900)?,
            p99_9: at(9_990)?,
            p99_99: at(9_999)?,
        })
    }
}

impl fmt::Display for StatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionCounts { open, admitted, over_limit, strangers } = self.connections;
        line(f, "server", format_args!("process {}, {:.1} s {}", self.pid, self.seconds, self.since))?;
        let clients =
            format_args!("{open} open, {admitted} admitted, {over_limit} over the limit, {strangers} not allowed");
        write!(f, "{:<10} {clients}", "clients")?;
        self.volumes.iter().try_for_each(|volume| write!(f, "\n{volume}"))
    }
}

impl fmt::Display for VolumeStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "volume", format_args!("{} in {}, {}, {}", self.name, self.file.display(), self.format, self.domain))?;
        let columns = ["requests", "errors", "MiB", "per s", "MiB/s", "p50 µs", "p99 µs", "p99.99 µs"];
        write!(f, "  {:<14}", "")?;
        columns.iter().try_for_each(|column| write!(f, " {column:>10}"))?;
        for kind in self.shown.requests.iter().map(|counts| &counts.kind) {
            let Requests { requests, errors, bytes, per_second, bytes_per_second, latency_us } = &self.requests[kind];
            let mib = |bytes: f64| bytes / f64::from(1 << 20);
            write!(f, "\n  {kind:<14} {requests:>10} {errors:>10} {:>10.1}", mib(*bytes as f64))?;
            write!(f, " {per_second:>10.0} {:>10.1}", mib(*bytes_per_second))?;
            if let Some(Percentiles { p50, p99, p99_99, .. }) = latency_us {
                write!(f, " {p50:>10.1} {p99:>10.1} {p99_99:>10.1}")?;
            }
        }
        self.shown.readings.iter().try_for_each(|of| {
            let name = of.full_name();
            write!(f, "\n  {name:<32} {}", of.in_unit())?;
            self.per_second.get(&name).map_or(Ok(()), |rate| write!(f, " ({rate:.1} per s)"))
        })
    }
}

/// Runs `tidegate stat`.
pub(crate) fn run(args: &Stat, json: bool) -> Result<Exit, Failure> {
    let pmem = args.pmem.clone().unwrap_or_else(default_paths::default_volume);
    let socket = args.control.clone().unwrap_or_else(|| default_paths::control_socket(&pmem));
    let first = client::ask(&socket, Some(&pmem))?;
    output::give(&StatReport::new(first.clone(), Since::Start), json)?;
    let next = || client::ask_after(INTERVAL, &socket, Some(&pmem));
    if args.watch { watch(next, first, json) } else { Ok(Exit::Done) }
}

/// Shows what came in each interval, until the server ends or nobody reads any more.
fn watch(next: impl Fn() -> Result<Snapshot, ControlFailure>, mut last: Snapshot, json: bool) -> Result<Exit, Failure> {
    loop {
        let now = next()?;
        output::give(&StatReport::between(&last, &now), json)?;
        last = now;
    }
}
