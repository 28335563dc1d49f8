//! `tidegate status` of a mount, once or every second.

use crate::commands::watched::{INTERVAL, Since, per_second};
use crate::errors::{Exit, Failure};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_file_service::{self as file_service, FileStates, MountCounts, MountStatus, ServiceFailure};
use tidegate_host::columns::line;
use tidegate_host::units::Human;

/// What `status` answers about a mount.
#[derive(Serialize)]
struct StatusReport {
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
    /// Gauges as they are, counts since the start of the mount or the answer before.
    #[serde(flatten)]
    status: MountStatus,
    since: Since,
    seconds: f64,
    /// Mean time of a sync in persistent memory.
    sync_us: Option<f64>,
    /// Mean time of a sync of a file below.
    disk_sync_us: Option<f64>,
    /// By how much the first is shorter.
    saved_us_per_sync: Option<f64>,
    per_second: Rates,
}

/// By how much counts grew in a second.
#[derive(Serialize)]
struct Rates {
    syncs: f64,
    synced_bytes: f64,
    written_back_bytes: f64,
    read_dram_bytes: f64,
    read_pool_bytes: f64,
    read_below_bytes: f64,
}

impl Rates {
    fn of(counts: &MountCounts, seconds: f64) -> Rates {
        let rate = |count: u64| per_second(count as f64, seconds);
        Rates {
            syncs: rate(counts.syncs),
            synced_bytes: rate(counts.synced_bytes),
            written_back_bytes: rate(counts.written_back_bytes),
            read_dram_bytes: rate(counts.read_dram_bytes),
            read_pool_bytes: rate(counts.read_pool_bytes),
            read_below_bytes: rate(counts.read_below_bytes),
        }
    }
}

impl StatusReport {
    fn new(pool: &Path, status: MountStatus, since: Since) -> StatusReport {
        let counts = &status.counts;
        let seconds = counts.up_ns as f64 / 1e9;
        StatusReport {
            pool: pool.to_owned(),
            since,
            seconds,
            sync_us: counts.sync_us(),
            disk_sync_us: counts.disk_sync_us(),
            saved_us_per_sync: counts.saved_us(),
            per_second: Rates::of(counts, seconds),
            status,
        }
    }

    /// What was done between `last` and `now`.
    fn between(pool: &Path, last: &MountStatus, now: &MountStatus) -> StatusReport {
        let counts = now.counts.since(&last.counts);
        let since = if counts == now.counts { Since::Start } else { Since::Last };
        StatusReport::new(pool, MountStatus { counts, ..now.clone() }, since)
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountStatus { source, mountpoint, files, counts, .. } = &self.status;
        let (source, mountpoint, since) = (source.display(), mountpoint.display(), self.since);
        let shown = format_args!("{source} at {mountpoint}, {:.1} s {since}", self.seconds);
        line(f, "mount", shown)?;
        line(f, "pool", format_args!("{}, {}", self.pool.display(), Human(self.status.pool_bytes)))?;
        let (dram, used) = (Human(self.status.dram_bytes), Human(self.status.dram_used_bytes));
        line(f, "dram", format_args!("{used} of {dram} for writes that are not synced"))?;
        line(f, "policy", format_args!("{}: {}", self.status.policy, counts.reads_by_pattern))?;
        self.write_contexts(f)?;
        let FileStates { open, in_pool, beside_pool, bypassed, retained } = files;
        line(f, "files", format_args!("{open} open, {in_pool} in the pool, {beside_pool} for which it has no room"))?;
        if !self.status.bypass.is_empty() {
            line(f, "bypass", format_args!("{}: {bypassed} files written below", self.status.bypass.join(", ")))?;
        }
        if self.status.restarts > 0 {
            line(f, "restarts", format_args!("{} servers of the mount died and were replaced", self.status.restarts))?;
        }
        if *retained > 0 {
            let next = "which are missing or were changed by others: recover the pool after the mount";
            line(f, "retained", format_args!("data of {retained} files, {next}"))?;
        }
        line(f, "dirty", format_args!("{} not synced", Human(self.status.dirty_bytes)))?;
        line(f, "requests", format_args!("{} of the kernel", counts.requests))?;
        self.write_syncs(f)?;
        let (names, below) = (counts.names, counts.names_below);
        line(f, "names", format_args!("{names} operations recorded in the pool, {below} waited for SOURCE"))?;
        let MountCounts { read_dram_bytes, read_pool_bytes, read_below_bytes, .. } = *counts;
        let [dram, pool, below] = [read_dram_bytes, read_pool_bytes, read_below_bytes].map(Human);
        line(f, "read", format_args!("{dram} from DRAM, {pool} from the pool, {below} from the files below"))?;
        let MountCounts { reads_dram, reads_pool, reads_below, reads_kept, admitted_bytes, .. } = *counts;
        let hits = format_args!("reads found bytes {reads_dram} times in DRAM, {reads_pool} in the pool");
        line(f, "hits", format_args!("{hits}, {reads_below} only below, {reads_kept} by programs without asking"))?;
        let (clean, admitted) = (Human(self.status.clean_bytes), Human(admitted_bytes));
        line(f, "clean", format_args!("{clean} in the pool that the files have too, {admitted} admitted by reads"))?;
        let (written, waiting) = (Human(counts.written_back_bytes), Human(self.status.out_of_sync_bytes));
        let rate = bytes_per_second(self.per_second.written_back_bytes);
        write!(f, "{:<10} {written} written back ({rate}), {waiting} waiting", "write-back")?;
        match &self.status.obstacle {
            Some(obstacle) => write!(f, "\n{:<10} files are not written back: {obstacle}", "obstacle"),
            None => Ok(()),
        }
    }
}

impl StatusReport {
    fn write_syncs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountCounts { syncs, syncs_below, groups, synced_bytes, disk_syncs, .. } = self.status.counts;
        let (rate, bytes) = (self.per_second.syncs, Human(synced_bytes));
        let below = format_args!("{syncs_below} waited for the files below");
        line(f, "syncs", format_args!("{syncs} in persistent memory ({rate:.1} per s, {bytes}), {below}"))?;
        line(f, "groups", format_args!("{groups} (atomic groups of writes, which count as syncs)"))?;
        self.write_leases(f)?;
        let MountCounts { mappings_upgraded, mappings_recalled, .. } = self.status.counts;
        if self.status.mapped_bytes > 0 || mappings_upgraded > 0 {
            let upgrades = format_args!("{mappings_upgraded} mappings upgraded, {mappings_recalled} recalled");
            line(f, "mapped", format_args!("{} of the pool by programs, {upgrades}", Human(self.status.mapped_bytes)))?;
            let [pinned, most] = [self.status.pinned_bytes, self.status.pinned_bytes_max].map(Human);
            line(f, "pinned", format_args!("{pinned} of the pool by programs, which may pin {most}"))?;
        }
        if let (Some(sync), Some(disk), Some(saved)) = (self.sync_us, self.disk_sync_us, self.saved_us_per_sync) {
            let times = format_args!("{sync:.1} µs a sync, {disk:.1} µs a sync of a file below ({disk_syncs})");
            match saved < 0.0 {
                true => line(f, "saved", format_args!("nothing: {times}"))?,
                false => line(f, "saved", format_args!("{saved:.1} µs by each sync: {times}"))?,
            }
        }
        Ok(())
    }
}

impl StatusReport {
    /// What the placement knows of programs.
    fn write_contexts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountCounts { placed_by_stack: stack, placed_by_thread: thread, .. } = self.status.counts;
        match stack {
            0 => Ok(()),
            _ => line(f, "contexts", format_args!("{stack} requests by call stack, {thread} by thread and file")),
        }
    }

    /// Files that programs write without a request.
    fn write_leases(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountCounts {
            leases_granted,
            leases_joined,
            leases_ended,
            leases_extended,
            leases_reaped,
            adopted_bytes,
            ..
        } = self.status.counts;
        if leases_granted == 0 && self.status.leases == 0 {
            return Ok(());
        }
        let granted =
            format_args!("{leases_granted} granted, {leases_joined} joined, {leases_ended} ended by requests");
        let memory = format_args!("{leases_extended} times extended, {leases_reaped} taken back");
        let (now, bytes) = (self.status.leases, Human(adopted_bytes));
        line(f, "leases", format_args!("{now} now, {granted}, {memory}, {bytes} written by them"))
    }
}

/// Bytes in a second.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is no negative number")]
fn bytes_per_second(bytes: f64) -> String {
    format!("{} per s", Human(bytes as u64))
}

/// Tells the state of the mount with `pool`.
pub(crate) fn show(pool: &Path, json: bool) -> Result<Exit, Failure> {
    let status = found(pool, file_service::status_of(pool)?)?;
    output::give(&StatusReport::new(pool, status, Since::Start), json)?;
    Ok(Exit::Done)
}

/// Tells the state of the mount with `pool`, and then every second what was added, until the mount
/// ends or nobody reads any more.
pub(crate) fn watch(pool: &Path, json: bool) -> Result<Exit, Failure> {
    let mut last = found(pool, file_service::status_of(pool)?)?;
    output::give(&StatusReport::new(pool, last.clone(), Since::Start), json)?;
    loop {
        let now = found(pool, file_service::status_after(INTERVAL, pool)?)?;
        output::give(&StatusReport::between(pool, &last, &now), json)?;
        last = now;
    }
}

fn found(pool: &Path, status: Option<MountStatus>) -> Result<MountStatus, ServiceFailure> {
    status.ok_or_else(|| ServiceFailure::NotInUse { pool: pool.to_owned() })
}
