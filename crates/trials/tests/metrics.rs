//! What Prometheus' own tool, promtool, says of the metrics that a server answers, of the alert
//! rules of the guide, and of the queries of the dashboard.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tidegate_trials::artefacts::{MissingError, cache, run};
use tidegate_trials::served::{Volume, program};

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

/// A server that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
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
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let volumes = [
        "pmem = \"written\"\nwrite_cache = \"1M\"\nwear_leveling = 100",
        "pmem = \"cached\"\ndisk = \"disk\"\naccept_volatile = true",
        "pmem = \"side\"\nmirror = \"other\"",
    ];
    let volumes = volumes.map(|keys| format!("[[volume]]\n{keys}\n")).concat();
    fs::write(at("c.toml"), format!("listen = \"unix:s\"\nmetrics = \"tcp:{port}\"\n{volumes}")).unwrap();
    let serve =
        Command::new(program()).args(["serve", "--json", "--config", &at("c.toml")]).stdout(Stdio::piped()).spawn();
    let mut server = Killed(serve.unwrap());
    // It says so once it listens.
    server.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
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
