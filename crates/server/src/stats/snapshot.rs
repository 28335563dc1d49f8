//! The numbers of a running server at one time, as they travel over the control socket.

use crate::cached_disk::online::OnlineDisk;
use crate::cached_disk::state::DiskState;
use crate::control::last_words::LastWords;
use crate::sockets::connections::{ConnectionCounts, Connections};
use crate::stats::latency::Latencies;
use crate::stats::registry::{Metric, MetricSource};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tidegate_block_export::{Export, RequestCounters, RequestKind};

/// Everything at one time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Snapshot {
    /// The server's process.
    pub pid: u32,
    /// Nanoseconds since clients could connect.
    pub up_ns: u64,
    /// Its clients.
    pub connections: ConnectionCounts,
    /// Its volumes, the default export first.
    pub volumes: Vec<VolumeCounts>,
}

/// One volume.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct VolumeCounts {
    /// The export's name.
    pub name: String,
    /// The region.
    #[serde(with = "tidegate_host::json_path")]
    pub pmem: PathBuf,
    /// Its format.
    #[serde(default)]
    pub format: String,
    /// Which failures its memory survives.
    #[serde(default)]
    pub domain: String,
    /// Requests by kind; always all kinds, in one order.
    pub requests: Vec<RequestCounts>,
    /// What the layers below count.
    pub readings: Vec<Metric>,
    /// The disk behind it, and the cache in front of that.
    #[serde(default)]
    pub disk: Option<DiskState>,
    /// Whether writes are refused.
    #[serde(default)]
    pub read_only: bool,
    /// Where clients find it.
    #[serde(default)]
    pub uris: Vec<String>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct RequestCounts {
    /// The kind's name.
    pub kind: String,
    /// Requests that failed.
    pub errors: u64,
    /// Bytes of those that did not.
    pub bytes: u64,
    /// How long all of them took.
    pub times: Latencies,
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
    pub fn since(&self, before: &Snapshot) -> Snapshot {
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

impl VolumeCounts {
    /// The number of this name that a layer below counts, if the volume has the layer.
    pub fn reading(&self, name: &str) -> Option<u64> {
        self.readings.iter().find(|reading| reading.name == name).map(|reading| reading.value)
    }

    /// What is done with reads and writes: the mode of a disk cache, or whether there are writes.
    pub fn mode(&self) -> &str {
        match &self.disk {
            Some(disk) if disk.attached => &disk.mode,
            Some(_) => "detached",
            None if self.read_only => "read-only",
            None => "read-write",
        }
    }

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
    pub connections: Arc<Connections>,
    /// Its volumes, in the order of the exports.
    pub volumes: Vec<ObservedVolume>,
    /// When clients could connect.
    pub since: Instant,
    /// Who waits for its end.
    pub last_words: Arc<LastWords>,
}

/// A volume being served.
pub(crate) struct ObservedVolume {
    /// The region.
    pub pmem: PathBuf,
    /// Its format.
    pub format: String,
    /// Which failures its memory survives.
    pub domain: String,
    /// Its layers that keep numbers.
    pub layers: Vec<Arc<dyn MetricSource>>,
    /// The disk behind it, if it caches one.
    pub disk: Option<Arc<OnlineDisk>>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Where clients find it now.
    pub uris: Mutex<Vec<String>>,
}

impl Observed {
    /// Nanoseconds since clients could connect.
    pub(crate) fn up_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Everything as it is now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            pid: std::process::id(),
            up_ns: self.up_ns(),
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
            uris: self.uris.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::registry::Unit;

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
