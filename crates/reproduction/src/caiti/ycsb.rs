//! LevelDB on a file system on each subject: the workloads of its own db_bench (Fig. 8), and YCSB's
//! (Fig. 9).
//!
//! The client is a program of its own, because it needs LevelDB's library. It is built before
//! anything is measured.

use super::applications::{by_value_size, frame, sampled};
use super::stacks::Kind;
use crate::Scale;
use crate::figure::{Chart, Figure, Point, Series};
use crate::keys::Spread;
use anyhow::Context;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_measure::programs::built;
use tidegate_measure::programs::said;

/// What a client is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadSize {
    /// Which records it asks for.
    pub spread: Spread,
    /// Records that it loads first.
    pub records: u64,
    /// Operations of each workload after that.
    pub operations: u64,
}

/// What a workload took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Operations a second.
    pub per_second: f64,
    /// Microseconds that one in so many operations exceeds, by [`SHARES`].
    pub microseconds: Vec<f64>,
    /// Its first moment and its last one, by [`crate::recorded::clock_ns`].
    pub span_ns: (u64, u64),
}

/// Points of the distribution of latencies, and of how many operations one exceeds them.
pub const SHARES: [(&str, usize); 6] =
    [("50 %", 2), ("90 %", 10), ("99 %", 100), ("99.9 %", 1000), ("99.99 %", 10_000), ("all", usize::MAX)];

const SPREADS: [(Spread, &str, &str); 3] = [
    (Spread::Uniform, "fig-9b", "Fig. 9b"),
    (Spread::Zipfian, "fig-9c", "Fig. 9c"),
    (Spread::Latest, "fig-9d", "Fig. 9d"),
];

pub(super) const WORKLOADS: [&str; 3] = ["load", "A", "F"];

/// Fig. 8: fills, overwrites and reads.
pub fn leveldb(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let workloads = [
        ("fillrandom", "fig-8a", "Fig. 8a", "LevelDB: random fills"),
        ("overwrite", "fig-8b", "Fig. 8b", "LevelDB: random overwrites"),
        ("readrandom", "fig-8c", "Fig. 8c", "LevelDB: random reads"),
        ("readhot", "fig-8d", "Fig. 8d", "LevelDB: random reads of a hundredth of the keys"),
    ];
    let client = client()?;
    let count = if scale == Scale::SMOKE { 10_000 } else { 50_000 }.to_string();
    let mut figures = by_value_size(scale, workloads, |root, size| {
        let taken = run(&client, root, &count, &["--values", &size.to_string()])?;
        Ok(taken.iter().map(|taken| 1e6 / taken.per_second).collect())
    })?;
    figures.iter_mut().for_each(|figure| {
        figure.notes.push(format!("{count} operations of each kind; the paper does ten million."));
    });
    Ok(figures)
}

/// Fig. 9.
pub fn ycsb(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let client = client()?;
    let mut latencies = frame("fig-9a", "Fig. 9a", "LevelDB: latencies of random fills of 4 KiB", "µs");
    latencies.chart = Chart::Lines;
    latencies.notes.push("Places are shares of the operations that took no longer.".to_owned());
    let mut figures = SPREADS.map(|(spread, id, paper)| {
        let mut figure = frame(id, paper, &format!("YCSB on LevelDB, {spread} keys"), "operations per second");
        figure
            .notes
            .push("Load does not draw keys, it makes each once; what differs between its bars is the run.".to_owned());
        figure
    });
    let count = u64::from(scale.requests / 4).max(if scale == Scale::SMOKE { 10_000 } else { 50_000 }).to_string();
    for (kind, samples) in sampled(scale, |root| clients_of(&client, root, &count))? {
        let label = kind.label().to_owned();
        let of_all = |value: &dyn Fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<_>>();
        let time = |(nth, (place, _)): (usize, &(&str, usize))| {
            Point::of(*place, &of_all(&|sample| sample.filled.microseconds[nth]), None)
        };
        let points = SHARES.iter().enumerate().map(time).collect();
        latencies.series.push(Series { label: label.clone(), points });
        for (of_spread, ((spread, ..), figure)) in SPREADS.iter().zip(&mut figures).enumerate() {
            let bar = |(nth, workload): (usize, &&str)| {
                let published = (*workload == "load" && *spread == Spread::Zipfian).then(|| published_fig_9c(kind));
                Point::of(*workload, &of_all(&|sample| sample.spreads[of_spread][nth].per_second), published.flatten())
            };
            let points = WORKLOADS.iter().enumerate().map(bar).collect();
            figure.series.push(Series { label: label.clone(), points });
        }
    }
    Ok(std::iter::once(latencies).chain(figures).collect())
}

/// What the client took on a subject.
struct Sample {
    filled: Taken,
    /// By spread, in the order of [`SPREADS`]: its workloads.
    spreads: Vec<Vec<Taken>>,
}

fn clients_of(client: &Path, root: &Path, count: &str) -> anyhow::Result<Sample> {
    let filled = run(client, root, count, &[])?.into_iter().next().context("the client tells nothing")?;
    let by_spread = |(spread, ..): &(Spread, &str, &str)| {
        let keys = spread.to_possible_value().context("it can be asked for")?;
        let taken = run(client, root, count, &["--spread", keys.get_name()])?;
        anyhow::ensure!(taken.len() >= WORKLOADS.len(), "the client tells of {} workloads", taken.len());
        Ok(taken)
    };
    anyhow::ensure!(filled.microseconds.len() == SHARES.len(), "the client tells other shares");
    Ok(Sample { filled, spreads: SPREADS.iter().map(by_spread).collect::<anyhow::Result<_>>()? })
}

/// Runs the client in a new folder below `root`, which is removed after it.
pub(super) fn run(client: &Path, root: &Path, count: &str, size: &[&str]) -> anyhow::Result<Vec<Taken>> {
    let folder = root.join("store");
    let mut command = Command::new(client);
    command.args(["--records", count, "--operations", count]).args(size).arg("--folder").arg(&folder);
    let output = said(&mut command)?;
    std::fs::remove_dir_all(&folder)?;
    serde_json::from_str(&output).context("reading what the client printed")
}

/// Builds the client and says where it is.
pub(super) fn client() -> anyhow::Result<PathBuf> {
    built(&["--package", "tidegate-rivals", "--bin", "ycsb"], "ycsb").context("apt-get install libleveldb-dev")
}

/// The paper's throughput over Caiti's, which is so many percent more.
fn published_fig_9c(kind: Kind) -> Option<f64> {
    let more = match kind {
        Kind::Pmbd => 65.8,
        Kind::Pmbd70 => 40.0,
        Kind::Lru => 66.3,
        Kind::Coa => 51.8,
        _ => return None,
    };
    Some(100.0 / (100.0 + more))
}
