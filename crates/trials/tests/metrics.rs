//! What Prometheus' own tool, promtool, says of the metrics of servers and mounts, of the alert
//! rules of the guide, and of the queries of the dashboard; and whether the metrics of a mount are
//! the numbers of its status.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tidegate_trials::artefacts::{MissingError, cache, run};
use tidegate_trials::mount_folders::{MountFolders, shell, tidegate};
use tidegate_trials::scraped::{MetricsProgram, samples};
use tidegate_trials::served::Volume;

const GUIDE: &str = include_str!("../../../docs/guide/monitoring.md");
const DASHBOARD: &str = include_str!("../../cli/systemd/grafana-dashboard.json");

/// The package that has promtool; of its 96 MB only that program is unpacked.
const PACKAGE: &str = "prometheus";

/// The promtool that Debian has, fetched unless the cache has it.
fn promtool() -> Result<PathBuf, MissingError> {
    let cache = cache()?;
    let (tool, lock) = (cache.join("promtool"), File::create(cache.join("promtool.lock")).unwrap());
    lock.lock().unwrap();
    if !tool.exists() {
        let fresh = tempfile::tempdir_in(&cache).unwrap();
        let shell = |line: &str| run(Command::new("sh").args(["-e", "-c", line]).current_dir(fresh.path()), "dpkg");
        run(Command::new("apt-get").args(["download", "--quiet", PACKAGE]).current_dir(fresh.path()), "apt")?;
        shell("dpkg --fsys-tarfile prometheus_*.deb >tar; tar -xf tar ./usr/bin/promtool")?;
        fs::rename(fresh.path().join("usr/bin/promtool"), &tool).unwrap();
    }
    Ok(tool)
}

/// What promtool says of `input`.
fn said_of(words: &[&str], input: &str) -> Output {
    let mut tool = Command::new(promtool().unwrap_or_else(|missing| panic!("{missing}")));
    tool.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = tool.spawn().unwrap();
    let given = tool.stdin.take().unwrap().write_all(input.as_bytes());
    let said = tool.wait_with_output().unwrap();
    given.unwrap_or_else(|error| panic!("{error}: {said:?}"));
    said
}

/// What the server answers that has a volume with a write cache, one in front of a disk and a
/// mirror.
fn metrics() -> String {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    Volume::create(folder.path(), "written", "32M");
    File::create(at("disk")).unwrap().set_len(32 << 20).unwrap();
    Volume::create_with(folder.path(), "cached", "8M", &["--disk", &at("disk"), "--accept-volatile"]);
    Volume::create_with(folder.path(), "side", "24M", &["--mirror", &at("other")]);
    let volumes = [
        "pmem = \"written\"\nwrite_cache = \"1M\"\nwear_leveling = 100",
        "pmem = \"cached\"\ndisk = \"disk\"\naccept_volatile = true",
        "pmem = \"side\"\nmirror = \"other\"",
    ];
    let volumes = volumes.map(|keys| format!("[[volume]]\n{keys}\n")).concat();
    fs::write(at("c.toml"), format!("listen = \"unix:s\"\nmetrics = \"tcp:127.0.0.1:0\"\n{volumes}")).unwrap();
    let server = MetricsProgram::begin(&["serve", "--config", &at("c.toml")]);
    let metrics = server.metrics();
    server.end();
    metrics
}

#[test]
fn promtool_finds_no_fault_with_the_metrics() {
    let metrics = metrics();
    for layer in ["request_duration", "cache_dirty_slots", "disk_cache_dirty", "mirror_sides", "table_moved"] {
        assert!(metrics.contains(&format!("\ntidegate_{layer}")), "{layer} is missing: {metrics}");
    }
    let said = said_of(&["check", "metrics"], &metrics);
    assert!(said.status.success() && said.stdout.is_empty() && said.stderr.is_empty(), "{said:?}");
    let said = said_of(&["check", "metrics"], &metrics.replace("_errors_total", "_errors"));
    assert!(!said.status.success(), "it finds a counter without its ending: {said:?}");
}

/// Metrics of a mount, each with what `tidegate status --json` calls the number.
const OF_STATUS: [(&str, &str); 14] = [
    ("restarts_total", "restarts"),
    ("dirty_bytes", "dirty_bytes"),
    ("out_of_sync_bytes", "out_of_sync_bytes"),
    ("clean_bytes", "clean_bytes"),
    ("pool_bytes", "pool_bytes"),
    ("files,state=in_pool", "files.in_pool"),
    ("files,state=bypassed", "files.bypassed"),
    ("syncs_total,tier=pool", "syncs"),
    ("syncs_total,tier=below", "syncs_below"),
    ("synced_bytes_total", "synced_bytes"),
    ("written_back_bytes_total", "written_back_bytes"),
    ("read_bytes_total,tier=pool", "read_pool_bytes"),
    ("timed_syncs_total,tier=pool", "timed_syncs"),
    ("fences_total", "fences"),
];

#[test]
fn the_metrics_of_a_mount_are_the_numbers_of_its_status_and_promtool_finds_no_fault_with_them() {
    let (bed, other) = (MountFolders::new(), MountFolders::new());
    let mut services = [bed.mount_with(&bed.pool(), &["--bypass", "*.tmp"]), other.mount()];
    let mnt = bed.at("mnt");
    shell(&mnt, "echo one > file; sync file; echo two >> file; sync file; echo x > a.tmp; sync a.tmp");
    shell(&mnt, "echo 3 > /proc/sys/vm/drop_caches; cat file");
    assert!(bed.tidegate("flush", &bed.pool()).status.success());
    let port = MetricsProgram::begin(&["top", "--metrics", "tcp:127.0.0.1:0"]);
    let metrics = port.metrics();
    let status = tidegate("status", &bed.pool(), &["--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let samples = samples(&metrics);
    let (at, pool) = (mnt.display(), bed.pool());
    let labels = format!("mount=\"{at}\",pool=\"{}\"", pool.display());
    let mut above_0 = 0;
    for (metric, key) in OF_STATUS {
        let (name, more) = metric.split_once(',').unwrap_or((metric, ""));
        let more = more.split_once('=').map_or(String::new(), |(label, of)| format!(",{label}=\"{of}\""));
        let sample = samples.get(&format!("tidegate_mount_{name}{{{labels}{more}}}"));
        let number = key.split('.').fold(&status, |value, key| &value[key]).as_f64();
        assert!(number.is_some() && sample.copied() == number, "{metric}: {sample:?}; {status} {metrics}");
        above_0 += usize::from(number > Some(0.0));
    }
    assert!(above_0 >= 9, "most of them have a number: {status}");
    let source = status["source"].as_str().unwrap();
    let facts = format!("tidegate_mount_info{{{labels},source=\"{source}\",uid=\"0\",policy=");
    assert!(metrics.lines().any(|line| line.starts_with(&facts)), "{facts}: {metrics}");
    let up = |bed: &MountFolders| {
        let labels = format!("mount=\"{}\",pool=\"{}\"", bed.at("mnt").display(), bed.pool().display());
        samples.get(&format!("tidegate_mount_up{{{labels}}}")).copied()
    };
    assert_eq!((up(&bed), up(&other)), (Some(1.0), Some(1.0)), "{metrics}");
    assert!(samples["tidegate_mounts"] >= 2.0, "{metrics}");
    let said = said_of(&["check", "metrics"], &metrics);
    assert!(said.status.success() && said.stdout.is_empty() && said.stderr.is_empty(), "{said:?}");
    for bed in [&bed, &other] {
        assert_eq!(bed.tidegate("umount", &bed.at("mnt")).status.code(), Some(0));
    }
    services.iter_mut().for_each(|service| assert!(service.wait().unwrap().success()));
    assert!(!port.metrics().contains(&labels), "a mount that has ended is gone");
    assert!(port.asked("/").starts_with("HTTP/1.1 404 "), "only servers have a page");
    port.end();
}

#[test]
fn promtool_reads_the_alert_rules_and_every_query_of_the_dashboard() {
    let rules = GUIDE.split_once("## Alert rules").unwrap().1;
    let rules = rules.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut recorded = String::new();
    for (nth, target) in targets.enumerate() {
        // What Grafana puts in place of its variables.
        let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m").replace('$', "");
        recorded += &format!("      - record: query{nth}\n        expr: '{query}'\n");
    }
    assert!(recorded.contains("histogram_quantile(") && recorded.contains("rate("), "{recorded}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yml");
    let check = |rules: &str| {
        fs::write(&path, rules).unwrap();
        said_of(&["check", "rules", path.to_str().unwrap()], "")
    };
    let all = format!("{rules}\n  - name: dashboard\n    rules:\n{recorded}");
    let said = check(&all);
    assert!(said.status.success(), "{said:?}");
    assert!(!check(&all.replace("[5m]", "[5]")).status.success());
}
