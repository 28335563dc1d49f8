//! What a running server knows about its work at one time, as it travels over the control socket.

use crate::cached_disk::DiskState;
use crate::connections::Connections;
use crate::last_words::LastWords;
use crate::live_disk::LiveDisk;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tidegate_block_export::{Export, RequestCounters, RequestKind};
use tidegate_server::stats::latency::Latencies;
use tidegate_server::stats::registry::{Metric, MetricSource};

/// Everything at one time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Snapshot {
    /// The server's process.
    pub(crate) pid: u32,
    /// Nanoseconds since clients could connect.
    pub(crate) up_ns: u64,
    /// Its clients.
    pub(crate) connections: ConnectionCounts,
    /// Its volumes, the default export first.
    pub(crate) volumes: Vec<VolumeCounts>,
}

/// Clients.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct ConnectionCounts {
    /// Connections now.
    pub(crate) open: u64,
    /// Connections that were let in.
    pub(crate) admitted: u64,
    /// Turned away because there were too many, or no thread for one more.
    pub(crate) over_limit: u64,
    /// Turned away because of who they were.
    pub(crate) strangers: u64,
}

/// One volume.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct VolumeCounts {
    /// The export's name.
    pub(crate) name: String,
    /// The region.
    #[serde(with = "tidegate_host::json_path")]
    pub(crate) pmem: PathBuf,
    /// Its format.
    #[serde(default)]
    pub(crate) format: String,
    /// Which troubles its memory survives.
    #[serde(default)]
    pub(crate) domain: String,
    /// Requests by kind; always all kinds, in one order.
    pub(crate) requests: Vec<RequestCounts>,
    /// What the layers below count.
    pub(crate) readings: Vec<Metric>,
    /// The disk behind it, and the cache in front of that.
    #[serde(default)]
    pub(crate) disk: Option<DiskState>,
    /// Whether writes are refused.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// Where clients find it.
    #[serde(default)]
    pub(crate) uris: Vec<String>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct RequestCounts {
    /// The kind's name.
    pub(crate) kind: String,
    /// Requests that failed.
    pub(crate) errors: u64,
    /// Bytes of those that did not.
    pub(crate) bytes: u64,
    /// How long all of them took.
    pub(crate) times: Latencies,
}

/// A kind's name, for people and scripts.
fn name(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "read",
        RequestKind::Write => "write",
        RequestKind::Flush => "flush",
        RequestKind::Trim => "trim",
        RequestKind::Cache => "cache",
        RequestKind::WriteZeroes => "write_zeroes",
        RequestKind::BlockStatus => "block_status",
        RequestKind::Unknown => "unknown",
    }
}

impl RequestCounts {
    fn of(counters: &RequestCounters) -> RequestCounts {
        let RequestCounters { kind, errors, bytes, latency, .. } = counters;
        RequestCounts { kind: name(*kind).to_owned(), errors: *errors, bytes: *bytes, times: latency.into() }
    }

    /// What came since `before`.
    fn since(&self, before: &RequestCounts) -> RequestCounts {
        RequestCounts {
            kind: self.kind.clone(),
            errors: self.errors.saturating_sub(before.errors),
            bytes: self.bytes.saturating_sub(before.bytes),
            times: self.times.since(&before.times),
        }
    }
}

impl Snapshot {
    /// What came since `before`, and the time since: the differences of everything that only grows.
    /// What goes up and down is as it is now.
    pub(crate) fn since(&self, before: &Snapshot) -> Snapshot {
        // A server that was started anew counts anew.
        if self.pid != before.pid || self.up_ns < before.up_ns {
            return self.clone();
        }
        let volumes = self.volumes.iter().map(|volume| {
            let earlier = before.volumes.iter().find(|earlier| earlier.name == volume.name);
            earlier.map_or_else(|| volume.clone(), |earlier| volume.since(earlier))
        });
        Snapshot {
            pid: self.pid,
            up_ns: self.up_ns - before.up_ns,
            connections: self.connections.since(before.connections),
            volumes: volumes.collect(),
        }
    }
}

impl ConnectionCounts {
    fn since(self, before: ConnectionCounts) -> ConnectionCounts {
        ConnectionCounts {
            open: self.open,
            admitted: self.admitted.saturating_sub(before.admitted),
            over_limit: self.over_limit.saturating_sub(before.over_limit),
            strangers: self.strangers.saturating_sub(before.strangers),
        }
    }
}

impl VolumeCounts {
    fn since(&self, before: &VolumeCounts) -> VolumeCounts {
        let requests = self.requests.iter().map(|requests| {
            let earlier = before.requests.iter().find(|earlier| earlier.kind == requests.kind);
            earlier.map_or_else(|| requests.clone(), |earlier| requests.since(earlier))
        });
        let readings = self.readings.iter().map(|reading| {
            let earlier = before.readings.iter().find(|earlier| earlier.name == reading.name);
            earlier.map_or_else(|| reading.clone(), |earlier| reading.since(earlier))
        });
        VolumeCounts { requests: requests.collect(), readings: readings.collect(), ..self.clone() }
    }
}

/// A running server, to be looked at.
pub(crate) struct Observed {
    /// Its clients.
    pub(crate) connections: Arc<Connections>,
    /// Its volumes, in the order of the exports.
    pub(crate) volumes: Vec<ObservedVolume>,
    /// When clients could connect.
    pub(crate) since: Instant,
    /// Who waits for its end.
    pub(crate) last_words: Arc<LastWords>,
}

/// A volume being served.
pub(crate) struct ObservedVolume {
    /// The region.
    pub(crate) pmem: PathBuf,
    /// Its format, and which troubles its memory survives.
    pub(crate) format: String,
    pub(crate) domain: String,
    /// Its layers that keep numbers.
    pub(crate) layers: Vec<Arc<dyn MetricSource>>,
    /// The disk behind it, if it caches one.
    pub(crate) disk: Option<Arc<LiveDisk>>,
    /// Whether writes are refused.
    pub(crate) read_only: bool,
    /// Where clients find it.
    pub(crate) uris: Vec<String>,
}

impl Observed {
    /// Everything as it is now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            pid: std::process::id(),
            up_ns: u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX),
            connections: self.connections.counts(),
            volumes: self.connections.exports().zip(&self.volumes).map(|(export, of)| of.counts(export)).collect(),
        }
    }
}

impl ObservedVolume {
    fn counts(&self, export: &Export) -> VolumeCounts {
        VolumeCounts {
            name: export.name().to_owned(),
            pmem: self.pmem.clone(),
            format: self.format.clone(),
            domain: self.domain.clone(),
            requests: export.counters().requests.iter().map(RequestCounts::of).collect(),
            readings: self.layers.iter().flat_map(|layer| layer.metrics()).collect(),
            disk: self.disk.as_ref().map(|disk| disk.state()),
            read_only: self.read_only,
            uris: self.uris.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_server::stats::registry::Unit;

    fn snapshot(pid: u32, up_ns: u64, names: &[&str], counted: u64) -> Snapshot {
        let readings = vec![
            Metric::counter("grows", "", Unit::Count, counted),
            Metric::gauge("moves", "", Unit::Count, 100 - counted),
        ];
        let times = Latencies { sum_ns: counted, buckets: vec![(8, counted)] };
        let requests = vec![RequestCounts { kind: "read".to_owned(), errors: counted, bytes: counted, times }];
        let volume = |name: &&str| VolumeCounts {
            name: (*name).to_owned(),
            pmem: PathBuf::new(),
            format: String::new(),
            domain: String::new(),
            requests: requests.clone(),
            readings: readings.clone(),
            disk: None,
            read_only: false,
            uris: Vec::new(),
        };
        let connections =
            ConnectionCounts { open: counted, admitted: counted, over_limit: counted, strangers: counted };
        Snapshot { pid, up_ns, connections, volumes: names.iter().map(volume).collect() }
    }

    fn numbers(snapshot: &Snapshot) -> Vec<(&str, u64, u64, u64)> {
        let volumes = snapshot.volumes.iter();
        volumes
            .map(|VolumeCounts { name, requests, readings, .. }| {
                (name.as_str(), requests[0].times.count(), readings[0].value, readings[1].value)
            })
            .collect()
    }

    #[test]
    fn what_only_grows_is_a_difference_and_what_moves_is_not() {
        let (before, after) = (snapshot(7, 1000, &["a", "b"], 40), snapshot(7, 4000, &["b", "c"], 60));
        let between = after.since(&before);
        assert_eq!((between.pid, between.up_ns), (7, 3000));
        let connections = ConnectionCounts { open: 60, admitted: 20, over_limit: 20, strangers: 20 };
        assert_eq!(between.connections, connections);
        assert_eq!(numbers(&between), [("b", 20, 20, 40), ("c", 60, 60, 40)]);
    }

    #[test]
    fn a_server_that_was_started_anew_counts_from_its_start() {
        let before = snapshot(7, 5000, &["a"], 90);
        for anew in [snapshot(8, 9000, &["a"], 3), snapshot(7, 100, &["a"], 3)] {
            let since = anew.since(&before);
            assert_eq!((since.up_ns, numbers(&since)), (anew.up_ns, vec![("a", 3, 3, 97)]));
        }
    }
}
