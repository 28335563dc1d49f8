//! The lines of the table: one for each volume, disk cache and mount, and one for each source that
//! has not said what it has.

use crate::figure::Figure;
use crate::polling::PolledSource;
use crate::rates::{Rates, seconds_between};
use crate::samples::{Detail, Sample, Totals};
use crate::sources::{ServerProcess, SourceAnswer, WatchedSource};
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tidegate_file_service::{FoundMount, MountStatus};
use tidegate_host::owned;
use tidegate_server::stats::snapshot::{Snapshot, VolumeCounts};

/// From when on a question that has no answer is shown as such.
const LATE: Duration = Duration::from_secs(2);

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RowKind {
    /// A volume in persistent memory.
    Volume,
    /// A disk with a cache in front of it.
    DiskCache,
    /// A mount.
    Mount,
    /// A server that has not said which volumes it has.
    Server,
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RowKind::Volume => "volume",
            RowKind::DiskCache => "disk cache",
            RowKind::Mount => "mount",
            RowKind::Server => "server",
        })
    }
}

/// How a line is found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowId(RowKind, String, Option<PathBuf>);

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TopRow {
    /// The export, the mountpoint, or what else is known of it.
    pub(crate) name: String,
    pub(crate) kind: RowKind,
    /// The mode of a volume, or `mounted`; `no answer` or `asked` for one that was never heard of.
    pub(crate) state: String,
    pub(crate) pid: u32,
    pub(crate) user: String,
    /// The region, or the pool.
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    pub(crate) file: Option<PathBuf>,
    /// The disk, or SOURCE.
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    pub(crate) below: Option<PathBuf>,
    /// What keeps bytes from being written back.
    pub(crate) trouble: Option<String>,
    /// Why it does not answer now.
    pub(crate) silent: Option<String>,
    /// The age of the numbers, if it does not answer now.
    pub(crate) age_seconds: Option<f64>,
    /// The time between the two answers that rates come from.
    pub(crate) interval_seconds: Option<f64>,
    #[serde(flatten)]
    pub(crate) rates: Rates,
    /// Bytes that are not yet written back.
    pub(crate) dirty_bytes: Option<u64>,
    #[serde(serialize_with = "by_tier")]
    pub(crate) hits: Vec<TierHits>,
    /// What the source counted since its start.
    pub(crate) totals: Totals,
    #[serde(skip)]
    pub(crate) details: Vec<(Detail, Figure)>,
}

/// Reads for which a tier had the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TierHits {
    #[serde(skip)]
    pub(crate) tier: &'static str,
    /// Since the start of the source: bytes of a mount, blocks of a disk cache.
    pub(crate) total: u64,
    /// Of all that were read between the two answers.
    pub(crate) share: Figure,
}

fn by_tier<S: Serializer>(hits: &[TierHits], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(hits.iter().map(|hits| (hits.tier.to_lowercase(), hits)))
}

impl TopRow {
    /// How this line is found again.
    pub(crate) fn id(&self) -> RowId {
        RowId(self.kind, self.name.clone(), self.file.clone())
    }

    /// The lines of a source as it is known `now`.
    pub(crate) fn of(polled: &PolledSource, now: Instant) -> Vec<TopRow> {
        let rows = match (&polled.last, &polled.source) {
            (Some((_, SourceAnswer::Server(server))), WatchedSource::Server(of)) => {
                let former = match &polled.former {
                    Some(SourceAnswer::Server(former)) => Some(&**former),
                    _ => None,
                };
                server.volumes.iter().map(|volume| TopRow::of_volume(of, (former, server), volume)).collect()
            }
            (Some((_, SourceAnswer::Mount(status))), WatchedSource::Mount(of)) => {
                let former = match &polled.former {
                    Some(SourceAnswer::Mount(former)) => Some(&**former),
                    _ => None,
                };
                vec![TopRow::of_mount(of, former, status)]
            }
            _ => vec![TopRow::unheard(&polled.source)],
        };
        let late = polled.asked.map(|asked| now.saturating_duration_since(asked)).filter(|waited| *waited >= LATE);
        let silent =
            polled.failure.clone().or_else(|| late.map(|waited| format!("no answer for {} s", waited.as_secs())));
        let age = polled.last.as_ref().map(|(at, _)| now.saturating_duration_since(*at).as_secs_f64());
        rows.into_iter().map(|row| row.silenced(silent.as_ref(), age)).collect()
    }

    fn silenced(self, silent: Option<&String>, age_seconds: Option<f64>) -> TopRow {
        let Some(silent) = silent else { return self };
        let state = if age_seconds.is_some() { self.state } else { "no answer".to_owned() };
        TopRow { state, silent: Some(silent.clone()), age_seconds, ..self }
    }

    fn of_volume(
        of: &ServerProcess,
        (former, server): (Option<&Snapshot>, &Snapshot),
        volume: &VolumeCounts,
    ) -> TopRow {
        let same = |former: &Snapshot| former.volumes.iter().find(|earlier| earlier.name == volume.name).cloned();
        let before = former.and_then(|former| Some(Sample::of_volume(former, &same(former)?)));
        let kind = if volume.disk.is_some() { RowKind::DiskCache } else { RowKind::Volume };
        TopRow {
            file: Some(volume.pmem.clone()),
            below: volume.disk.as_ref().map(|disk| disk.disk.clone()),
            trouble: volume.disk.as_ref().and_then(|disk| disk.trouble.clone()),
            ..TopRow::new((&volume.name, kind, volume.mode()), (of.pid, of.user))
        }
        .counting(before.as_ref(), Sample::of_volume(server, volume))
    }

    fn of_mount(of: &FoundMount, former: Option<&MountStatus>, status: &MountStatus) -> TopRow {
        let before = former.map(Sample::of_mount);
        let name = status.mountpoint.display().to_string();
        TopRow {
            file: Some(of.pool.clone()),
            below: Some(status.source.clone()),
            trouble: status.obstacle.clone(),
            ..TopRow::new((&name, RowKind::Mount, "mounted"), (of.pid, of.user))
        }
        .counting(before.as_ref(), Sample::of_mount(status))
    }

    /// A source that has never answered.
    fn unheard(source: &WatchedSource) -> TopRow {
        match source {
            WatchedSource::Server(ServerProcess { pid, user, locked }) => {
                let name = locked.first().map_or_else(|| format!("process {pid}"), |file| file.display().to_string());
                let row = TopRow::new((&name, RowKind::Server, "asked"), (*pid, *user));
                TopRow { file: locked.first().cloned(), ..row }
            }
            WatchedSource::Mount(mount) => {
                let name = mount.pool.display().to_string();
                let row = TopRow::new((&name, RowKind::Mount, "asked"), (mount.pid, mount.user));
                TopRow { file: Some(mount.pool.clone()), below: mount.recorded_source(), ..row }
            }
        }
    }

    fn new((name, kind, state): (&str, RowKind, &str), (pid, user): (u32, u32)) -> TopRow {
        TopRow {
            name: name.to_owned(),
            kind,
            state: state.to_owned(),
            pid,
            user: owned::named(user),
            file: None,
            below: None,
            trouble: None,
            silent: None,
            age_seconds: None,
            interval_seconds: None,
            rates: Rates::default(),
            dirty_bytes: None,
            hits: Vec::new(),
            totals: Totals::default(),
            details: Vec::new(),
        }
    }

    /// This line with the numbers of its last sample, and what happened since the one `before`.
    fn counting(self, before: Option<&Sample>, now: Sample) -> TopRow {
        let seconds = before.and_then(|before| seconds_between(before, &now));
        let since = before.filter(|before| before.precedes(&now));
        TopRow {
            interval_seconds: seconds,
            rates: Rates::between(before, &now),
            dirty_bytes: now.dirty_bytes,
            hits: hits_between(seconds.map(|_| since), &now),
            totals: now.totals,
            details: details_between(seconds, since, now.details),
            ..self
        }
    }
}

/// Hits by tier, and the share of each since an earlier sample; None: there is no earlier answer.
fn hits_between(before: Option<Option<&Sample>>, now: &Sample) -> Vec<TierHits> {
    let earlier =
        |index: usize| before.flatten().and_then(|before| before.hits.get(index)).map_or(0, |(_, hits)| *hits);
    let grown: Vec<u64> =
        now.hits.iter().enumerate().map(|(index, (_, hits))| hits.saturating_sub(earlier(index))).collect();
    let all: u64 = grown.iter().sum();
    let share = |grown: u64| match (before, all) {
        (None, _) => Figure::Awaited,
        (_, 0) => Figure::Absent,
        _ => Figure::Known(grown as f64 / all as f64),
    };
    let hits = now.hits.iter().zip(grown);
    hits.map(|((tier, total), grown)| TierHits { tier, total: *total, share: share(grown) }).collect()
}

/// Each detail with its rate, if it only grows.
fn details_between(seconds: Option<f64>, before: Option<&Sample>, details: Vec<Detail>) -> Vec<(Detail, Figure)> {
    let rate = |detail: &Detail| match (detail.counted, seconds) {
        (None, _) => Figure::Absent,
        (_, None) => Figure::Awaited,
        (Some(now), Some(seconds)) => {
            let earlier = before.and_then(|before| before.details.iter().find(|earlier| earlier.name == detail.name));
            let earlier = earlier.and_then(|earlier| earlier.counted).unwrap_or(0.0);
            Figure::Known((now - earlier).max(0.0) / seconds)
        }
    };
    details
        .into_iter()
        .map(|detail| {
            let rate = rate(&detail);
            (detail, rate)
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tidegate_server::sockets::connections::ConnectionCounts;
    use tidegate_server::stats::latency::Latencies;
    use tidegate_server::stats::registry::{Metric, Unit};
    use tidegate_server::stats::snapshot::RequestCounts;

    /// A volume that was looked at once, after so many writes.
    pub(crate) fn volume(name: &str, writes: u64) -> TopRow {
        let polled = heard(server_with(name, 1, writes));
        TopRow::of(&polled, Instant::now()).remove(0)
    }

    /// A mount that was looked at once, with so many dirty bytes.
    pub(crate) fn mount(mountpoint: &str, dirty_bytes: u64) -> TopRow {
        let mut polled = PolledSource::new(of_mount());
        polled.hear(Ok(Some(status(mountpoint, 1, dirty_bytes))));
        TopRow::of(&polled, Instant::now()).remove(0)
    }

    fn of_server() -> WatchedSource {
        WatchedSource::Server(ServerProcess { pid: 7, user: 0, locked: vec!["/pm/v".into()] })
    }

    fn of_mount() -> WatchedSource {
        WatchedSource::Mount(FoundMount { pid: 8, user: 0, pool: "/pm/pool".into() })
    }

    fn heard(answer: SourceAnswer) -> PolledSource {
        let mut polled = PolledSource::new(of_server());
        polled.hear(Ok(Some(answer)));
        polled
    }

    fn server_with(name: &str, seconds: u64, writes: u64) -> SourceAnswer {
        let times = Latencies { sum_ns: 0, buckets: vec![(8_000, writes)] };
        let volume = VolumeCounts {
            name: name.to_owned(),
            pmem: format!("/pm/{name}").into(),
            format: "btt".to_owned(),
            domain: "power-fail".to_owned(),
            requests: vec![RequestCounts { kind: "write".to_owned(), errors: 1, bytes: 4096 * writes, times }],
            readings: vec![
                Metric::gauge("cache_dirty_slots", "", Unit::Count, 3),
                Metric::gauge("cache_block", "", Unit::Bytes, 4096),
                Metric::counter("cache_evicted_blocks", "", Unit::Count, writes),
            ],
            disk: None,
            read_only: false,
            uris: vec!["nbd+unix:///?socket=s".to_owned()],
        };
        let (connections, volumes) = (ConnectionCounts::default(), vec![volume]);
        SourceAnswer::Server(Box::new(Snapshot { pid: 7, up_ns: seconds * 1_000_000_000, connections, volumes }))
    }

    fn status(mountpoint: &str, seconds: u64, dirty_bytes: u64) -> SourceAnswer {
        let counts = tidegate_file_service::MountCounts {
            up_ns: seconds * 1_000_000_000,
            read_dram_bytes: 3_000 * seconds,
            read_below_bytes: 1_000 * seconds,
            syncs: 5 * seconds,
            synced_bytes: 500 * seconds,
            ..Default::default()
        };
        let status = MountStatus {
            source: "/srv/files".into(),
            mountpoint: mountpoint.into(),
            pool_bytes: 1 << 30,
            dram_bytes: 1 << 20,
            dram_used_bytes: 0,
            restarts: 0,
            policy: "tidegate".to_owned(),
            bypass: Vec::new(),
            files: Default::default(),
            dirty_bytes: 0,
            mapped_bytes: 0,
            pinned_bytes: 0,
            pinned_bytes_max: 0,
            out_of_sync_bytes: dirty_bytes,
            clean_bytes: 0,
            names_bytes: 0,
            leases: 0,
            contexts: None,
            obstacle: None,
            counts,
        };
        SourceAnswer::Mount(Box::new(status))
    }

    #[test]
    fn a_volume_has_its_rates_and_what_its_write_cache_lacks() {
        let mut polled = heard(server_with("db", 10, 100));
        polled.hear(Ok(Some(server_with("db", 12, 120))));
        let rows = TopRow::of(&polled, Instant::now());
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((&*row.name, row.kind, &*row.state, row.pid), ("db", RowKind::Volume, "read-write", 7));
        assert_eq!((row.rates.writes_per_second, row.interval_seconds), (Figure::Known(10.0), Some(2.0)));
        assert_eq!((row.dirty_bytes, row.totals.errors), (Some(3 * 4096), Some(1)));
        assert_eq!(row.rates.written_back_bytes_per_second, Figure::Known(40_960.0));
        let detail = |name: &str| row.details.iter().find(|(detail, _)| detail.name == name).expect(name).clone();
        assert_eq!(detail("requests.write").1, Figure::Known(10.0));
        assert_eq!(detail("cache_evicted_blocks").0.value, "120");
        assert_eq!(detail("cache_block_bytes"), (detail("cache_block_bytes").0, Figure::Absent));
        assert_eq!(detail("region").0.value, "/pm/db");
    }

    #[test]
    fn a_mount_has_its_hits_by_tier_and_every_number_of_its_status() {
        let mut polled = PolledSource::new(of_mount());
        polled.hear(Ok(Some(status("/srv/app", 10, 0))));
        polled.hear(Ok(Some(status("/srv/app", 12, 4096))));
        let row = &TopRow::of(&polled, Instant::now())[0];
        assert_eq!((&*row.name, row.kind, row.dirty_bytes), ("/srv/app", RowKind::Mount, Some(4096)));
        assert_eq!((row.rates.syncs_per_second, row.rates.reads_per_second), (Figure::Known(5.0), Figure::Absent));
        let json = serde_json::to_value(row).expect("numbers and strings");
        assert_eq!(json["hits"]["dram"], serde_json::json!({"total": 36_000, "share": 0.75}));
        assert_eq!((&json["kind"], &json["below"]), (&"mount".into(), &"/srv/files".into()));
        let rate = |name: &str| row.details.iter().find(|(detail, _)| detail.name == name).expect(name).1;
        assert_eq!((rate("synced_bytes"), rate("pool_bytes")), (Figure::Known(500.0), Figure::Absent));
        assert_eq!(rate("reads_by_pattern.looping.hit_bytes"), Figure::Known(0.0));
    }

    #[test]
    fn a_source_that_does_not_answer_is_shown_with_its_last_numbers_and_their_age() {
        let mut polled = heard(server_with("db", 10, 100));
        let at = polled.last.as_ref().expect("an answer").0;
        polled.asked = Some(at);
        let after = |seconds| TopRow::of(&polled, at + Duration::from_secs(seconds)).remove(0);
        assert_eq!((after(1).silent, after(1).age_seconds), (None, None), "it may take a moment");
        assert_eq!((after(9).silent.as_deref(), after(9).age_seconds), (Some("no answer for 9 s"), Some(9.0)));
        assert_eq!((after(9).totals.writes, &*after(9).state), (Some(100), "read-write"));
    }

    #[test]
    fn a_source_that_was_never_heard_of_is_named_by_what_is_known() {
        for (source, kind, name) in [(of_server(), RowKind::Server, "/pm/v"), (of_mount(), RowKind::Mount, "/pm/pool")]
        {
            let mut polled = PolledSource::new(source);
            let row = TopRow::of(&polled, Instant::now()).remove(0);
            assert_eq!((row.kind, &*row.name, &*row.state), (kind, name, "asked"));
            polled.hear(Err(crate::sources::tests::silent()));
            let row = TopRow::of(&polled, Instant::now()).remove(0);
            assert_eq!((&*row.state, row.silent.as_deref()), ("no answer", Some("no answer within 10 s")));
        }
    }
}
