//! `tidegate stat`: what a running server does, once or every second.

use crate::answer;
use crate::control;
use crate::failure::{Exit, Failure};
use crate::grammar::Stat;
use crate::places;
use crate::readings::{Reading, Unit};
use crate::snapshot::{ConnectionCounts, RequestCounts, Snapshot, VolumeCounts};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks of `--watch`.
const INTERVAL: Duration = Duration::from_secs(1);

/// What `stat` answers: a snapshot, with rates and percentiles.
#[derive(Serialize)]
struct Answer {
    pid: u32,
    /// What the requests below came in: the server's life, or an interval.
    seconds: f64,
    connections: ConnectionCounts,
    volumes: Vec<Volume>,
}

#[derive(Serialize)]
struct Volume {
    name: String,
    #[serde(with = "crate::json_path")]
    file: PathBuf,
    format: String,
    /// Which troubles its memory survives.
    domain: String,
    requests: BTreeMap<String, Requests>,
    /// What the layers below count, since the server's start. Names end in their unit.
    counters: BTreeMap<String, f64>,
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

impl Answer {
    fn new(snapshot: Snapshot) -> Answer {
        let Snapshot { pid, up_ns, connections, volumes } = snapshot;
        let seconds = up_ns as f64 / 1e9;
        let volumes = volumes.into_iter().map(|volume| Volume::new(volume, seconds)).collect();
        Answer { pid, seconds, connections, volumes }
    }
}

impl Volume {
    fn new(volume: VolumeCounts, seconds: f64) -> Volume {
        Volume {
            name: volume.name.clone(),
            file: volume.pmem.clone(),
            format: volume.format.clone(),
            domain: volume.domain.clone(),
            requests: volume.requests.iter().map(|of| (of.kind.clone(), Requests::new(of, seconds))).collect(),
            counters: volume.readings.iter().map(|reading| (reading.full_name(), reading.in_unit())).collect(),
            shown: volume,
        }
    }
}

impl Requests {
    fn new(counts: &RequestCounts, seconds: f64) -> Requests {
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
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

impl Reading {
    /// The name with its unit: `region_stored_bytes`.
    pub(crate) fn name_with_unit(&self) -> String {
        match self.unit {
            Unit::Count => self.name.clone(),
            Unit::Bytes => format!("{}_bytes", self.name),
            Unit::Nanoseconds => format!("{}_seconds", self.name),
        }
    }

    /// The same, and which of several it is: `disk_errors_write`.
    fn full_name(&self) -> String {
        let name = self.name_with_unit();
        self.label.as_ref().map_or(name.clone(), |(_, of)| format!("{name}_{of}"))
    }

    /// The number in the unit that the full name says.
    pub(crate) fn in_unit(&self) -> f64 {
        match self.unit {
            Unit::Count | Unit::Bytes => self.value as f64,
            Unit::Nanoseconds => self.value as f64 / 1e9,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionCounts { open, admitted, over_limit, strangers } = self.connections;
        answer::line(f, "server", format_args!("process {}, {:.1} s", self.pid, self.seconds))?;
        let clients =
            format_args!("{open} open, {admitted} admitted, {over_limit} over the limit, {strangers} strangers");
        write!(f, "{:<10} {clients}", "clients")?;
        self.volumes.iter().try_for_each(|volume| write!(f, "\n{volume}"))
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        answer::line(
            f,
            "volume",
            format_args!("{} in {}, {}, {}", self.name, self.file.display(), self.format, self.domain),
        )?;
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
        let numbers = self.shown.readings.iter();
        numbers.into_iter().try_for_each(|of| write!(f, "\n  {:<32} {}", of.full_name(), of.in_unit()))
    }
}

/// Runs `tidegate stat`.
pub(crate) fn run(wish: &Stat, json: bool) -> Result<Exit, Failure> {
    let beside = || places::control_socket(&wish.pmem.clone().unwrap_or_else(places::default_volume));
    let socket = wish.control.clone().unwrap_or_else(beside);
    let first = control::ask(&socket)?;
    answer::give(&Answer::new(first.clone()), json)?;
    if wish.watch { watch(&socket, first, json) } else { Ok(Exit::Done) }
}

/// Shows what came in each interval, until the server ends or nobody reads any more.
fn watch(socket: &Path, mut last: Snapshot, json: bool) -> Result<Exit, Failure> {
    loop {
        std::thread::sleep(INTERVAL);
        let now = control::ask(socket)?;
        answer::give(&Answer::new(now.since(&last)), json)?;
        last = now;
    }
}
