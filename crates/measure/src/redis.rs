//! Redis with its log of commands, and its own benchmark.

use crate::medium::ScratchPath;
use crate::programs::said;
use crate::testbed::{Running, Storage, Testbed, pause};
use anyhow::Context;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// The programs, and what brings them.
pub const PROGRAMS: [&str; 2] = ["redis-server", "redis-benchmark"];
/// What brings these programs.
pub const REMEDY: &str = "apt-get install redis-server redis-tools";

/// What a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// A server that listens.
pub struct Server {
    // Fields are dropped in order: the server ends before its files go.
    running: Running,
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
    /// Commands of all clients.
    pub commands: u32,
}

/// A line of the benchmark's report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
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
        let (testbed, socket) = (Testbed::new(storage)?, ScratchPath::new());
        let mut command = testbed.command("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", policy.name()]);
        // A rewrite of the log in the middle of a sample would be measured with it.
        command.args(["--auto-aof-rewrite-percentage", "0", "--unixsocket"]).arg(socket.as_path());
        command.arg("--dir").arg(testbed.root());
        let mut running = Running::start(&mut command)?;
        let began = Instant::now();
        while UnixStream::connect(socket.as_path()).is_err() {
            anyhow::ensure!(running.runs() && began.elapsed() < PATIENCE, "redis-server does not listen");
            pause();
        }
        Ok(Server { running, socket, testbed })
    }

    /// Puts `load` on it.
    pub fn load(&self, load: Load) -> anyhow::Result<Report> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-t", "set", "--csv", "-s"]).arg(self.socket.as_path());
        for (option, value) in [("-c", load.clients), ("-P", load.pipeline), ("-n", load.commands)] {
            command.arg(option).arg(value.to_string());
        }
        report(&said(&mut command)?)
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

/// The line about SET.
fn report(said: &str) -> anyhow::Result<Report> {
    let line =
        said.lines().find_map(|line| line.strip_prefix("\"SET\",")).context("redis-benchmark said nothing of SET")?;
    let numbers: Vec<f64> = line.split(',').map(|cell| cell.trim_matches('"').parse()).collect::<Result<_, _>>()?;
    let [per_second, _, _, p50_ms, _, p99_ms, max_ms] = numbers[..] else { anyhow::bail!("not seven numbers: {line}") };
    Ok(Report { per_second, p50_ms, p99_ms, max_ms })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_set_is_read() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"23809.52\",\"0.038\",\"0.016\",\"0.039\",\"0.047\",\"0.071\",\"0.727\"";
        let Report { per_second, p50_ms, p99_ms, max_ms } = report(said).unwrap();
        assert_eq!((per_second, p50_ms, p99_ms, max_ms), (23809.52, 0.039, 0.071, 0.727));
        assert!(report("\"GET\",\"1\"").is_err() && report("\"SET\",\"1\"").is_err());
    }
}
