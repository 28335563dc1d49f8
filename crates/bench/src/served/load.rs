//! Random blocks by fio's own NBD client.

use super::server::{self, Place, Rival, Server};
use crate::target::Outcome;
use anyhow::Context;
use serde_json::Value;
use std::process::Command;
use tidegate_measure::Pairs;
use tidegate_measure::medium::WALK_BYTES;
use tidegate_measure::workload::Effort;

/// What fio does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    direction: Direction,
    depth: u32,
    connections: u32,
    place: Place,
}

/// Which way the blocks go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    /// To the client.
    Read,
    /// To the server.
    Write,
}

impl Load {
    /// One request at a time on each of `connections`: client and server take turns, on one core.
    pub(super) const fn in_turn(direction: Direction, connections: u32) -> Load {
        Load { direction, depth: 1, connections, place: Place::Together }
    }

    /// One request at a time on each connection, with client and server on two cores: one request
    /// each way wakes a processor.
    pub(super) const fn across_cores(direction: Direction) -> Load {
        Load { direction, depth: 1, connections: 1, place: Place::Apart }
    }

    /// 32 requests at a time on each of `connections`: client and server work at once, on two
    /// cores.
    pub(super) const fn at_once(direction: Direction, connections: u32) -> Load {
        Load { direction, depth: 32, connections, place: Place::Apart }
    }

    /// Requests per second, after a moment that is not counted.
    fn rate(self, server: &Server) -> anyhow::Result<f64> {
        let (pattern, side) = match self.direction {
            Direction::Read => ("randread", "read"),
            Direction::Write => ("randwrite", "write"),
        };
        let mut fio = fio(server, pattern, "4k");
        fio.args(["--norandommap", "--time_based", "--runtime=500ms", "--ramp_time=150ms", "--output-format=json"]);
        fio.arg(format!("--iodepth={}", self.depth)).arg(format!("--numjobs={}", self.connections));
        parse_rate(&server::run(&mut fio)?, side)
    }
}

/// Requests per second of Tidegate over those of `rival`.
pub(super) fn compare(effort: Effort, load: Load, rival: Rival) -> anyhow::Result<Outcome> {
    if let Some(missing) = server::missing(&["fio", rival.program()], server::REMEDY) {
        return Ok(missing);
    }
    let (ours, theirs) = (Server::tidegate(load.place)?, rival.start(load.place, WALK_BYTES)?);
    for server in [&ours, &theirs] {
        server::run(fio(server, "write", "1m").arg("--iodepth=4"))?;
    }
    let pairs = Pairs::try_alternate(effort.pairs, || load.rate(&ours), || load.rate(&theirs))?;
    Ok(Outcome::ratio(&pairs, "requests/s"))
}

/// fio over the first [`WALK_BYTES`] of the export.
fn fio(server: &Server, pattern: &str, block: &str) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--name=bench", "--ioengine=nbd", "--thread", "--group_reporting"]);
    fio.arg(format!("--uri={}", server.uri())).arg(format!("--size={WALK_BYTES}"));
    fio.arg(format!("--rw={pattern}")).arg(format!("--bs={block}"));
    fio
}

/// The rate in fio's report. Remarks may stand before it.
pub(crate) fn parse_rate(report: &[u8], side: &str) -> anyhow::Result<f64> {
    let begin = report.iter().position(|byte| *byte == b'{').context("fio reported nothing")?;
    let report: Value = serde_json::from_slice(&report[begin..]).context("reading fio's report")?;
    let job = &report["jobs"][0];
    anyhow::ensure!(job["error"] == 0, "fio met error {}", job["error"]);
    let rate = job[side]["iops"].as_f64().filter(|rate| *rate > 0.0);
    rate.context("fio did nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_side_asked_for() {
        let report = br#"fio: a remark
            {"jobs": [{"error": 0, "read": {"iops": 0.0}, "write": {"iops": 1234.5}}]}"#;
        assert_eq!(parse_rate(report, "write").unwrap(), 1234.5);
        assert!(parse_rate(report, "read").is_err());
    }

    #[test]
    fn a_job_that_failed_has_no_rate() {
        assert!(parse_rate(br#"{"jobs": [{"error": 5, "write": {"iops": 9.0}}]}"#, "write").is_err());
        assert!(parse_rate(b"fio: no such engine", "write").is_err());
    }
}
