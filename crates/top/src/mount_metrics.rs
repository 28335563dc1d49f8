//! The numbers of mounts as metrics: each with its name, unit and meaning, by the labels `mount`,
//! the mountpoint, and `pool`.

use std::path::PathBuf;
use tidegate_file_service::{FileStates, MountCounts, MountStatus, ReadsByPattern};
use tidegate_server::stats::prometheus::{Measured, MetricsText};
use tidegate_server::stats::registry::{Metric, Unit};

/// A mount that runs, and what it says of itself.
#[derive(Clone, Debug)]
pub struct AskedMount {
    /// The pool, which no other mount has.
    pub pool: PathBuf,
    /// Where the files are shown; None: that is not known, as the mount does not answer.
    pub mountpoint: Option<PathBuf>,
    /// The user, by number, whose processes have the mount.
    pub uid: u32,
    /// Its state; None: it said nothing for 1 s.
    pub status: Option<MountStatus>,
}

/// What `mounts` say of themselves, in Prometheus's text format. One that does not answer is known
/// by `tidegate_mount_up` alone.
pub fn text(mounts: &[AskedMount]) -> String {
    let mut text = MetricsText::default();
    text.family("tidegate_mounts", "gauge", "Mounts whose processes run");
    text.sample("tidegate_mounts", &[], mounts.len());
    let name = "tidegate_mount_up";
    text.family(name, "gauge", "1: the mount answered; 0: it said nothing for 1 s");
    for mount in mounts {
        let [at, pool] = [shown(mount.mountpoint.as_ref()), shown(Some(&mount.pool))];
        text.sample(name, &[("mount", &at), ("pool", &pool)], u8::from(mount.status.is_some()));
    }
    let name = "tidegate_mount_info";
    text.family(name, "gauge", "What a mount is: its SOURCE, its user, and the placement of its pool");
    for mount in mounts {
        let Some(status) = &mount.status else { continue };
        let [at, pool, source] = [mount.mountpoint.as_ref(), Some(&mount.pool), Some(&status.source)].map(shown);
        let uid = mount.uid.to_string();
        let known = [("mount", &*at), ("pool", &pool), ("source", &source), ("uid", &uid)];
        text.sample(name, &[&known[..], &[("policy", &status.policy)]].concat(), 1);
    }
    let numbers = |mount: &AskedMount| {
        let labels = vec![("mount", shown(mount.mountpoint.as_ref())), ("pool", shown(Some(&mount.pool)))];
        Some(Measured { labels, metrics: metrics_of(mount.status.as_ref()?) })
    };
    text.readings(&mounts.iter().filter_map(numbers).collect::<Vec<_>>());
    text.into_string()
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// Every number of a mount, always the same ones in the same order.
fn metrics_of(status: &MountStatus) -> Vec<Metric> {
    let MountStatus {
        pool_bytes,
        dram_bytes,
        dram_used_bytes,
        restarts,
        files,
        dirty_bytes,
        out_of_sync_bytes,
        clean_bytes,
        names_bytes,
        leases,
        mapped_bytes,
        pinned_bytes,
        pinned_bytes_max,
        obstacle,
        counts,
        // Texts, of which the family of facts has those that tell mounts apart.
        source: _,
        mountpoint: _,
        policy: _,
        bypass: _,
        contexts: _,
    } = status;
    let bytes = |name, help, value: &u64| Metric::gauge(name, help, Unit::Bytes, *value);
    let obstructed = u64::from(obstacle.is_some());
    let mut metrics = vec![
        Metric::gauge("mount_uptime", "Time since the server of the mount began", Unit::Nanoseconds, counts.up_ns),
        counter("mount_restarts", "Servers of the mount that died and were replaced", *restarts),
        Metric::gauge(
            "mount_write_back_obstructed",
            "1: something keeps files from being written back, as `tidegate status` tells",
            Unit::Count,
            obstructed,
        ),
        bytes("mount_dirty", "Bytes of unsynced writes, which are in DRAM alone", dirty_bytes),
        bytes("mount_out_of_sync", "Bytes that are durable in the pool, and newer than SOURCE", out_of_sync_bytes),
        bytes("mount_clean", "Bytes that the pool has and SOURCE has too", clean_bytes),
        bytes("mount_names", "Bytes of records of operations on names that SOURCE may lack", names_bytes),
        bytes("mount_mapped", "Bytes of the pool that programs have mapped", mapped_bytes),
        bytes("mount_pinned", "Bytes of the pool that programs have pinned", pinned_bytes),
        bytes("mount_pinned_max", "Bytes of the pool that programs may pin", pinned_bytes_max),
        bytes("mount_pool", "Bytes of the pool's blocks", pool_bytes),
        bytes("mount_dram", "Bytes of DRAM for unsynced writes", dram_bytes),
        bytes("mount_dram_used", "Bytes of those in use: in blocks, which may be filled in part", dram_used_bytes),
        Metric::gauge("mount_leases", "Leases of files whose memory was not taken back yet", Unit::Count, *leases),
    ];
    metrics.extend(of_files(files));
    metrics.extend(of_counts(counts));
    metrics.extend(of_patterns(&counts.reads_by_pattern));
    metrics
}

fn counter(name: &str, help: &str, value: u64) -> Metric {
    Metric::counter(name, help, Unit::Count, value)
}

/// One number for each of several things, told apart by a label.
fn each<const N: usize>(metric: Metric, label: &str, values: [(&str, u64); N]) -> [Metric; N] {
    values.map(|(of, value)| Metric { value, ..metric.clone() }.labelled(label, of))
}

fn of_files(files: &FileStates) -> impl Iterator<Item = Metric> + use<> {
    let FileStates { open, in_pool, beside_pool, bypassed, retained } = *files;
    let help = "Files by state, of which one may have several: open by programs, in the pool, without room there, \
                bypassing it by a glob, or retained there because SOURCE lacks the file or others changed it";
    let states = [
        ("open", open),
        ("in_pool", in_pool),
        ("beside_pool", beside_pool),
        ("bypassed", bypassed),
        ("retained", retained),
    ];
    each(Metric::gauge("mount_files", help, Unit::Count, 0), "state", states).into_iter()
}

/// What was done since the server of the mount began.
fn of_counts(counts: &MountCounts) -> Vec<Metric> {
    let MountCounts {
        requests,
        names,
        names_below,
        syncs,
        syncs_below,
        groups,
        adopted_bytes,
        synced_bytes,
        written_back_bytes,
        direct_bytes,
        held_back,
        admitted_bytes,
        placed_by_stack,
        placed_by_thread,
        mappings_upgraded,
        mappings_recalled,
        lines_flushed,
        fences,
        // Those of a tier, of leases and of a pattern, and a gauge.
        ..
    } = *counts;
    let bytes = |name, help, value| Metric::counter(name, help, Unit::Bytes, value);
    let synced = counter("mount_syncs", "Syncs and synchronous writes, by the tier that they waited for", 0);
    let leases = counter(
        "mount_lease_events",
        "Leases of files granted to programs, joined by others, given blocks, ended, reaped",
        0,
    );
    let upgrades =
        counter("mount_mapping_upgrades", "Shared mappings of programs upgraded to direct ones, and recalled", 0);
    let help = "Requests whose program contexts are call stacks, or no more than thread and file";
    let placed = counter("mount_placed_requests", help, 0);
    let mut metrics = vec![
        counter("mount_requests", "Requests of the kernel", requests),
        counter("mount_name_operations", "Operations on names that were recorded in the pool", names),
        counter("mount_name_operations_below", "Those that waited for a sync of SOURCE", names_below),
        counter("mount_atomic_groups", "Atomic groups of writes among the syncs of the pool", groups),
        bytes("mount_synced", "Bytes that syncs made durable in the pool", synced_bytes),
        bytes("mount_written_back", "Bytes written back to SOURCE", written_back_bytes),
        bytes("mount_direct", "Bytes of direct writes that went to SOURCE at once", direct_bytes),
        counter("mount_held_back_writes", "Writes that made room first, as little was left", held_back),
        bytes("mount_admitted", "Bytes that the pool admitted after they were read from SOURCE", admitted_bytes),
        bytes("mount_adopted", "Bytes that programs wrote by leases", adopted_bytes),
        counter("mount_flushed_lines", "Lines of 64 bytes stored to the pool durably", lines_flushed),
        counter("mount_fences", "Fences behind these stores", fences),
    ];
    metrics.extend(each(synced, "tier", [("pool", syncs), ("below", syncs_below)]));
    metrics.extend(each(leases, "event", lease_events(counts)));
    metrics.extend(each(upgrades, "event", [("upgraded", mappings_upgraded), ("recalled", mappings_recalled)]));
    metrics.extend(each(placed, "context", [("stack", placed_by_stack), ("thread", placed_by_thread)]));
    metrics.extend(by_tier(counts));
    metrics
}

fn lease_events(counts: &MountCounts) -> [(&'static str, u64); 5] {
    let MountCounts { leases_granted, leases_joined, leases_extended, leases_ended, leases_reaped, .. } = *counts;
    [
        ("granted", leases_granted),
        ("joined", leases_joined),
        ("extended", leases_extended),
        ("ended", leases_ended),
        ("reaped", leases_reaped),
    ]
}

/// What was done by each tier.
fn by_tier(counts: &MountCounts) -> Vec<Metric> {
    let MountCounts {
        reads_dram,
        reads_pool,
        reads_below,
        reads_kept,
        read_dram_bytes,
        read_pool_bytes,
        read_below_bytes,
        timed_syncs,
        timed_syncs_ns,
        disk_syncs,
        disk_syncs_ns,
        ..
    } = *counts;
    let reads = "Reads by the nearest tier that had bytes, of those that the kernel's page cache did not answer";
    let read_bytes = "Bytes of these reads, by the tier that had them";
    let reads = counter("mount_reads", reads, 0);
    let read_bytes = Metric::counter("mount_read", read_bytes, Unit::Bytes, 0);
    let timed = counter("mount_timed_syncs", "Syncs that were timed: in the pool, or of files below", 0);
    let times = Metric::counter("mount_timed_sync", "Time of these", Unit::Nanoseconds, 0);
    let mut metrics = Vec::new();
    let tiers = [("program", reads_kept), ("dram", reads_dram), ("pool", reads_pool), ("below", reads_below)];
    metrics.extend(each(reads, "tier", tiers));
    let values = [("dram", read_dram_bytes), ("pool", read_pool_bytes), ("below", read_below_bytes)];
    metrics.extend(each(read_bytes, "tier", values));
    metrics.extend(each(timed, "tier", [("pool", timed_syncs), ("below", disk_syncs)]));
    metrics.extend(each(times, "tier", [("pool", timed_syncs_ns), ("below", disk_syncs_ns)]));
    metrics
}

/// Bytes read, by how program contexts read.
fn of_patterns(reads: &ReadsByPattern) -> Vec<Metric> {
    let ReadsByPattern { looping, cluster_hot, sequential, random } = *reads;
    let of = [("looping", looping), ("cluster_hot", cluster_hot), ("sequential", sequential), ("random", random)];
    let hit = "Bytes read from DRAM or the pool, by how the program context reads";
    let hit = Metric::counter("mount_pattern_hit", hit, Unit::Bytes, 0);
    let missed = "Bytes read from SOURCE, by how the program context reads";
    let missed = Metric::counter("mount_pattern_missed", missed, Unit::Bytes, 0);
    let hits = each(hit, "pattern", of.map(|(pattern, reads)| (pattern, reads.hit_bytes)));
    let misses = each(missed, "pattern", of.map(|(pattern, reads)| (pattern, reads.missed_bytes)));
    hits.into_iter().chain(misses).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(pool: &str, status: Option<MountStatus>) -> AskedMount {
        let mountpoint = Some(PathBuf::from(format!("/srv{pool}")));
        AskedMount { pool: pool.into(), mountpoint, uid: 7, status }
    }

    #[test]
    fn a_mount_that_does_not_answer_is_down_and_has_no_numbers_and_the_others_have_theirs() {
        let counts = MountCounts { read_pool_bytes: 7, disk_syncs_ns: 1_500_000_000, ..MountCounts::default() };
        let status = MountStatus {
            source: "/s".into(),
            out_of_sync_bytes: 5,
            obstacle: Some("full".to_owned()),
            counts,
            ..MountStatus::default()
        };
        let text = text(&[mount("/a", Some(status)), mount("/b", None)]);
        let lines = [
            r#"tidegate_mounts 2"#,
            r#"tidegate_mount_up{mount="/srv/a",pool="/a"} 1"#,
            r#"tidegate_mount_up{mount="/srv/b",pool="/b"} 0"#,
            r#"tidegate_mount_info{mount="/srv/a",pool="/a",source="/s",uid="7",policy=""} 1"#,
            r#"tidegate_mount_out_of_sync_bytes{mount="/srv/a",pool="/a"} 5"#,
            r#"tidegate_mount_write_back_obstructed{mount="/srv/a",pool="/a"} 1"#,
            r#"tidegate_mount_read_bytes_total{mount="/srv/a",pool="/a",tier="pool"} 7"#,
            r#"tidegate_mount_timed_sync_seconds_total{mount="/srv/a",pool="/a",tier="below"} 1.5"#,
        ];
        for line in lines {
            assert!(text.lines().any(|there| there == line), "{line} is missing: {text}");
        }
        assert_eq!(text.matches("/srv/b").count(), 1, "{text}");
    }

    #[test]
    fn no_sample_comes_twice_and_no_number_of_a_mount_is_left_out() {
        let text = text(&[mount("/a", Some(MountStatus::default()))]);
        let mut series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup_by_key(|line| line.rsplit_once(' ').map(|(series, _)| series));
        assert_eq!(series.len(), all);
        let json = serde_json::to_value(MountStatus::default()).expect("JSON");
        let numbers = numbers(&json);
        // The number of mounts; that this one is up, its facts, and that nothing obstructs it.
        assert_eq!(all, numbers + 4, "{text}");
    }

    fn numbers(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Object(object) => object.values().map(numbers).sum(),
            other => usize::from(other.is_number()),
        }
    }
}
