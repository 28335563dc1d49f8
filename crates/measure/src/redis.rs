//! Redis with its log of commands, and its own benchmark.

use crate::medium::ScratchPath;
use crate::programs::said;
use crate::testbed::{Running, Storage, Testbed, pause};
use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// The programs, and what brings them.
pub const PROGRAMS: [&str; 2] = ["redis-server", CLIENT];
/// The benchmark that comes with it.
const CLIENT: &str = "redis-benchmark";
/// What brings these programs.
pub const REMEDY: &str = "apt-get install redis-server redis-tools";

/// What a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a run of the benchmark takes at least. It counts whole milliseconds, and says that it
/// answered infinitely many commands in a second when they took less than one.
const SHORTEST: Duration = Duration::from_millis(20);

/// Bytes of a value where the benchmark is told nothing.
pub const VALUE_BYTES: u32 = 3;

/// When the log is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Before a command is answered.
    Always,
    /// Every second, by a thread of its own.
    EverySecond,
    /// Never.
    No,
}

impl Policy {
    /// Returns its name in Redis' configuration.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Always => "always",
            Policy::EverySecond => "everysec",
            Policy::No => "no",
        }
    }
}

/// Cores that a server and its clients are bound to, as lists of Redis and of `taskset`.
struct OwnCores {
    of_main_thread: String,
    of_others: String,
}

impl OwnCores {
    /// The last core that this thread may use, and all others; None if there is only one.
    fn here() -> anyhow::Result<Option<OwnCores>> {
        let allowed = sched_getaffinity(None)?;
        let cores: Vec<String> =
            (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).map(|core| core.to_string()).collect();
        let Some((last, others)) = cores.split_last().filter(|(_, others)| !others.is_empty()) else { return Ok(None) };
        Ok(Some(OwnCores { of_main_thread: last.clone(), of_others: others.join(",") }))
    }
}

/// A server that listens.
pub struct Server {
    // Fields are dropped in order: the server ends before its files go.
    running: Running,
    cores: Option<OwnCores>,
    socket: ScratchPath,
    testbed: Testbed,
}

/// Load of its benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients at once.
    pub clients: u32,
    /// Commands that a client sends together.
    pub pipeline: u32,
    /// Commands of all clients, at least: a run too short to be timed is followed by a longer one.
    pub commands: u32,
    /// Bytes of the value of each.
    pub value_bytes: u32,
}

/// What the benchmark said of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Commands that the server answered, those of runs that were too short among them.
    pub commands: u64,
    /// Commands answered in a second.
    pub per_second: f64,
    /// Milliseconds that half of the commands take at most.
    pub p50_ms: f64,
    /// Milliseconds that one in a hundred takes, or longer.
    pub p99_ms: f64,
    /// The longest time of a command in milliseconds.
    pub max_ms: f64,
}

impl Server {
    /// Starts one with its files in `storage`.
    pub fn start(storage: Storage, policy: Policy) -> anyhow::Result<Server> {
        Server::on(None, storage, policy)
    }

    /// Starts one whose main thread has a core that neither its other threads nor its clients use.
    pub fn start_on_own_core(storage: Storage, policy: Policy) -> anyhow::Result<Server> {
        Server::on(OwnCores::here()?, storage, policy)
    }

    fn on(cores: Option<OwnCores>, storage: Storage, policy: Policy) -> anyhow::Result<Server> {
        let (testbed, socket) = (Testbed::new(storage)?, ScratchPath::new());
        let mut command = testbed.command("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", policy.name()]);
        // A rewrite of the log in the middle of a sample would be measured with it.
        command.args(["--auto-aof-rewrite-percentage", "0", "--unixsocket"]).arg(socket.as_path());
        command.arg("--dir").arg(testbed.root());
        if let Some(OwnCores { of_main_thread, of_others }) = &cores {
            command.args(["--server_cpulist", of_main_thread, "--bio_cpulist", of_others]);
        }
        let mut running = Running::start(&mut command)?;
        let began = Instant::now();
        while UnixStream::connect(socket.as_path()).is_err() {
            anyhow::ensure!(running.runs() && began.elapsed() < PATIENCE, "redis-server does not listen");
            pause();
        }
        Ok(Server { running, cores, socket, testbed })
    }

    /// Puts `load` on it.
    pub fn load(&self, load: Load) -> anyhow::Result<Report> {
        timed(load, |load| self.run(load))
    }

    fn run(&self, load: Load) -> anyhow::Result<Report> {
        let mut command = Command::new(if self.cores.is_some() { "taskset" } else { CLIENT });
        if let Some(cores) = &self.cores {
            command.args(["--cpu-list", &cores.of_others, CLIENT]);
        }
        command.args(["-t", "set", "--csv", "-s"]).arg(self.socket.as_path());
        for (option, value) in
            [("-c", load.clients), ("-P", load.pipeline), ("-n", load.commands), ("-d", load.value_bytes)]
        {
            command.arg(option).arg(value.to_string());
        }
        report(&said(&mut command)?, load.commands)
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Where its files are.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }
}

/// Runs `load`, and again with ten times the commands until they take long enough to be timed.
fn timed(mut load: Load, run: impl Fn(Load) -> anyhow::Result<Report>) -> anyhow::Result<Report> {
    let mut commands = 0;
    loop {
        let report = run(load)?;
        commands += report.commands;
        let is_timed = report.per_second * SHORTEST.as_secs_f64() <= f64::from(load.commands);
        if is_timed || load.commands == u32::MAX {
            anyhow::ensure!(report.per_second.is_finite(), "redis-benchmark could not time {} commands", load.commands);
            return Ok(Report { commands, ..report });
        }
        load.commands = load.commands.saturating_mul(10);
    }
}

/// The line about SET of a run of `commands`.
fn report(said: &str, commands: u32) -> anyhow::Result<Report> {
    let line =
        said.lines().find_map(|line| line.strip_prefix("\"SET\",")).context("redis-benchmark said nothing of SET")?;
    let numbers: Vec<f64> = line.split(',').map(|cell| cell.trim_matches('"').parse()).collect::<Result<_, _>>()?;
    let [per_second, _, _, p50_ms, _, p99_ms, max_ms] = numbers[..] else { anyhow::bail!("not seven numbers: {line}") };
    Ok(Report { commands: commands.into(), per_second, p50_ms, p99_ms, max_ms })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    const ONE: Load = Load { clients: 1, pipeline: 1, commands: 1, value_bytes: VALUE_BYTES };

    #[test]
    fn the_line_about_set_is_read() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"23809.52\",\"0.038\",\"0.016\",\"0.039\",\"0.047\",\"0.071\",\"0.727\"";
        let Report { commands, per_second, p50_ms, p99_ms, max_ms } = report(said, 7).unwrap();
        assert_eq!((commands, per_second, p50_ms, p99_ms, max_ms), (7, 23809.52, 0.039, 0.071, 0.727));
        assert!(report("\"GET\",\"1\"", 1).is_err() && report("\"SET\",\"1\"", 1).is_err());
    }

    #[test]
    fn a_run_too_short_to_be_timed_is_followed_by_a_longer_one() {
        // A server that answers a million commands in a second, timed in whole milliseconds.
        let run = |load: Load| {
            let seconds = f64::from(load.commands / 1000) / 1000.0;
            let line = format!("\"SET\",{},1,1,1,1,1,1", f64::from(load.commands) / seconds);
            report(&line, load.commands)
        };
        let of = |commands| {
            let report = timed(Load { commands, ..ONE }, run).unwrap();
            (report.per_second, report.commands)
        };
        assert_eq!([of(500), of(2000), of(20_000)], [(1e6, 55_500), (1e6, 22_000), (1e6, 20_000)]);
        let endless = |load: Load| report("\"SET\",inf,1,1,1,1,1,1", load.commands);
        assert!(timed(ONE, endless).is_err());
    }
}
