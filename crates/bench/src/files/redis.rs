//! Redis with its log of commands, and its own benchmark.

use super::testbed::{Running, Storage, Testbed, missing, socket};
use crate::served::server;
use crate::target::Outcome;
use anyhow::Context;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};
use tidegate_measure::Pairs;
use tidegate_measure::medium::ScratchPath;
use tidegate_measure::workload::Effort;

/// What a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Most commands in a sample of many clients, and of one.
const COMMANDS: u32 = 40_000;
const COMMANDS_OF_ONE: u32 = 4_000;

/// When the log is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Before a command is answered.
    Always,
    /// Never.
    No,
}

/// A server that listens.
struct Server {
    // Fields are dropped in order: the server ends before its files go.
    _running: Running,
    socket: ScratchPath,
    _site: Testbed,
}

/// Load of its benchmark.
#[derive(Clone, Copy)]
struct Load {
    clients: u32,
    pipeline: u32,
    commands: u32,
}

/// A line of the benchmark's report.
struct Report {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Server {
    fn start(storage: Storage, policy: Policy) -> anyhow::Result<Server> {
        let (testbed, socket) = (Testbed::new(storage)?, socket());
        let sync = if policy == Policy::Always { "always" } else { "no" };
        let mut command = testbed.command("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", sync]);
        // A rewrite of the log in the middle of a sample would be measured with it.
        command.args(["--auto-aof-rewrite-percentage", "0", "--unixsocket"]).arg(socket.as_path());
        command.arg("--dir").arg(testbed.root());
        let mut running = Running::start(&mut command)?;
        let began = Instant::now();
        while UnixStream::connect(socket.as_path()).is_err() {
            anyhow::ensure!(running.runs() && began.elapsed() < PATIENCE, "redis-server does not listen");
            server::pause();
        }
        Ok(Server { _running: running, socket, _site: testbed })
    }

    fn load(&self, load: Load, effort: Effort) -> anyhow::Result<Report> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-t", "set", "--csv", "-s"]).arg(self.socket.as_path());
        for (option, value) in
            [("-c", load.clients), ("-P", load.pipeline), ("-n", load.commands.min(effort.steps * load.pipeline))]
        {
            command.arg(option).arg(value.to_string());
        }
        report(&tidegate_measure::programs::said(&mut command)?)
    }

    fn rate(&self, load: Load, effort: Effort) -> anyhow::Result<f64> {
        Ok(self.load(load, effort)?.per_second)
    }
}

/// The line about SET.
fn report(said: &str) -> anyhow::Result<Report> {
    let line =
        said.lines().find_map(|line| line.strip_prefix("\"SET\",")).context("redis-benchmark said nothing of SET")?;
    let numbers: Vec<f64> = line.split(',').map(|cell| cell.trim_matches('"').parse()).collect::<Result<_, _>>()?;
    let [per_second, _, _, p50_ms, _, p99_ms, ..] = numbers[..] else { anyhow::bail!("too few numbers: {line}") };
    Ok(Report { per_second, p50_ms, p99_ms })
}

fn many(pipeline: u32) -> Load {
    Load { clients: 50, pipeline, commands: COMMANDS * pipeline }
}

const ONE: Load = Load { clients: 1, pipeline: 1, commands: COMMANDS_OF_ONE };

fn rates(effort: Effort, over: &Server, under: &Server, load: Load) -> anyhow::Result<Outcome> {
    let pairs = Pairs::try_alternate(effort.pairs, || over.rate(load, effort), || under.rate(load, effort))?;
    Ok(Outcome::ratio(&pairs, "SET/s"))
}

fn no_redis() -> Option<Outcome> {
    missing(&["redis-server", "redis-benchmark"])
}

/// 50 clients, with a sync for each batch of commands, over the same without any on the disk.
pub(crate) fn always_over_no(effort: Effort, storage: Storage, pipeline: u32) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let kept = Server::start(storage, Policy::Always)?;
    let plain = Server::start(Storage::Disk, Policy::No)?;
    rates(effort, &kept, &plain, many(pipeline))
}

/// 50 clients without any sync: requests in the first storage over those in the second.
pub(super) fn never_synced(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let (over, under) = (Server::start(at[0], Policy::No)?, Server::start(at[1], Policy::No)?);
    rates(effort, &over, &under, many(1))
}

/// The median time of a command of one client, with a sync for each, in the first storage over that
/// in the second. The rate would say how long other processes had the cores.
pub(crate) fn always_median(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let (over, under) = (Server::start(at[0], Policy::Always)?, Server::start(at[1], Policy::Always)?);
    let median = |server: &Server| Ok(server.load(ONE, effort)?.p50_ms * 1000.0);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || median(&over), || median(&under))?;
    Ok(Outcome::ratio(&pairs, "µs"))
}

/// The 99th percentile of one client in a storage, over the same with the files in memory.
pub(super) fn p99_over_memory(effort: Effort, storage: Storage) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let kept = Server::start(storage, Policy::Always)?;
    let memory = Server::start(Storage::Memory, Policy::Always)?;
    let p99 = |server: &Server| Ok(server.load(ONE, effort)?.p99_ms * 1000.0);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || p99(&kept), || p99(&memory))?;
    Ok(Outcome::ratio(&pairs, "µs"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_set_is_read() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"23809.52\",\"0.038\",\"0.016\",\"0.039\",\"0.047\",\"0.071\",\"0.727\"";
        let Report { per_second, p50_ms, p99_ms } = report(said).unwrap();
        assert_eq!((per_second, p50_ms, p99_ms), (23809.52, 0.039, 0.071));
        assert!(report("\"GET\",\"1\"").is_err() && report("\"SET\",\"1\"").is_err());
    }
}
