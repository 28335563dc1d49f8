//! What a running server knows about its work at one time, as it travels over the control socket.

use crate::cached_disk::DiskState;
use crate::connections::Connections;
use crate::latency::Latencies;
use crate::live_disk::LiveDisk;
use crate::readings::{Reading, Watched};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tidegate_nbd::{Export, RequestCounters, RequestKind};

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
    #[serde(with = "crate::json_path")]
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
    pub(crate) readings: Vec<Reading>,
    /// The disk behind it, and the cache in front of that.
    #[serde(default)]
    pub(crate) disk: Option<DiskState>,
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
    /// The requests that came since `before`, and the time since; everything else as it is now.
    pub(crate) fn since(&self, before: &Snapshot) -> Snapshot {
        let mut later = self.clone();
        later.up_ns = self.up_ns.saturating_sub(before.up_ns);
        for (volume, earlier) in later.volumes.iter_mut().zip(&before.volumes) {
            for (requests, earlier) in volume.requests.iter_mut().zip(&earlier.requests) {
                *requests = requests.since(earlier);
            }
        }
        later
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
}

/// A volume being served.
pub(crate) struct ObservedVolume {
    /// The region.
    pub(crate) pmem: PathBuf,
    /// Its format, and which troubles its memory survives.
    pub(crate) format: String,
    pub(crate) domain: String,
    /// Its layers that keep numbers.
    pub(crate) layers: Vec<Arc<dyn Watched>>,
    /// The disk behind it, if it caches one.
    pub(crate) disk: Option<Arc<LiveDisk>>,
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
            readings: self.layers.iter().flat_map(|layer| layer.readings()).collect(),
            disk: self.disk.as_ref().map(|disk| disk.state()),
        }
    }
}
