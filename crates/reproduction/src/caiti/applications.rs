//! Programs on a file system on a subject: RocksDB's own benchmark, and Filebench's personalities.
//!
//! The path is longer than the paper's: Ext4, a loop device, FUSE, NBD, the subject. The time it
//! takes lies on every bar alike.

use super::MEDIUM;
use super::stacks::Kind;
use crate::Scale;
use crate::figure::{Chart, Figure, Point, Series};
use crate::hybrid::in_turn;
use crate::mounted::Mounted;
use crate::personalities::{Personality, Taken};
use anyhow::{Context, ensure};
use std::path::Path;
use std::process::Command;
use tidegate_measure::programs::said;

/// Size of the volume.
const VOLUME_MIB: u64 = 1024;

/// Samples of a subject at most.
const ROUNDS_MAX: u16 = 3;

/// The samples of each subject, taken in turn, each on a file system of its own.
pub(super) fn sampled<T>(
    scale: Scale,
    mut sample: impl FnMut(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<(Kind, Vec<T>)>> {
    let mut kinds = Kind::block_devices().collect::<Vec<_>>();
    let taken = in_turn(scale.rounds.min(ROUNDS_MAX), &mut kinds, |kind| {
        let mounted = Mounted::over(*kind, VOLUME_MIB).with_context(|| format!("mount {}", kind.label()))?;
        sample(mounted.root())
    })?;
    Ok(kinds.into_iter().zip(taken).collect())
}

/// The frame of a figure; the series are still to come.
pub(super) fn frame(id: &str, paper: &str, title: &str, unit: &str) -> Figure {
    Figure {
        id: id.to_owned(),
        paper: format!("Caiti, {paper}"),
        title: title.to_owned(),
        chart: Chart::Bars,
        unit: unit.to_owned(),
        baseline: Some(Kind::Caiti.label().to_owned()),
        notes: vec![
            format!(
                "Ext4 on a loop device, on nbdfuse, on the subject over memory with the times of {MEDIUM}. That path takes most of the time, and is \
                 not the paper's. DAX and NOVA, which have no page cache and no block layer, cannot be had that way."
            ),
            "Tidegate lets only so much wait as it drains in 0.7 ms, so that a flush is short; Caiti's whole cache takes in what a program writes at once, \
             and its flushes pay for that (Fig. 2b)."
                .to_owned(),
        ],
        series: Vec::new(),
        run: None,
    }
}

/// Fig. 8 with another store than the paper's: random fills, overwrites and reads.
pub fn store(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let workloads = [
        ("fillrandom", "fig-8a-rocksdb", "Fig. 8a", "RocksDB: random fills"),
        ("overwrite", "fig-8b-rocksdb", "Fig. 8b", "RocksDB: random overwrites"),
        ("readrandom", "fig-8c-rocksdb", "Fig. 8c", "RocksDB: random reads"),
    ];
    let names = workloads.map(|(name, ..)| name);
    let benchmark = |root: &Path, size: u32| {
        let operations = scale.requests / 2;
        let output = said(
            Command::new("db_bench")
                .arg(format!("--benchmarks={}", names.join(",")))
                .arg(format!("--db={}", root.join("db").display()))
                .args([format!("--value_size={size}"), format!("--num={operations}")])
                .args(["--compression_type=none", "--histogram=0"]),
        )
        .context("apt-get install rocksdb-tools")?;
        names.iter().map(|name| microseconds(&output, name)).collect()
    };
    let mut figures = by_value_size(scale, workloads, benchmark)?;
    figures
        .iter_mut()
        .for_each(|figure| figure.notes.push("The paper uses LevelDB, and ten million requests.".to_owned()));
    Ok(figures)
}

/// A figure for each of `workloads`, which are name, id, the paper's figure and title: microseconds
/// of an operation by the size of values. `benchmark` runs all of them in turn, below a folder.
pub(super) fn by_value_size<const WORKLOADS: usize>(
    scale: Scale,
    workloads: [(&str, &str, &str, &str); WORKLOADS],
    benchmark: impl Fn(&Path, u32) -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<Vec<Figure>> {
    let sizes: &[u32] = if scale == Scale::FULL { &[128, 512, 1024, 2048, 4096] } else { &[2048] };
    let mut figures = workloads.map(|(_, id, paper, title)| frame(id, paper, title, "µs per operation"));
    for figure in &mut figures {
        let empty = |kind: Kind| Series { label: kind.label().to_owned(), points: Vec::new() };
        figure.series = Kind::block_devices().map(empty).collect();
    }
    for size in sizes {
        for (of_kind, (kind, samples)) in sampled(scale, |root| benchmark(root, *size))?.into_iter().enumerate() {
            for (nth, (figure, (name, ..))) in figures.iter_mut().zip(&workloads).enumerate() {
                let times: Vec<f64> = samples.iter().map(|of_workloads| of_workloads[nth]).collect();
                let published = (*size == 2048).then(|| published_fig_8(kind, name)).flatten();
                figure.series[of_kind].points.push(Point::of(format!("{size} B"), &times, published));
            }
        }
    }
    Ok(figures.into())
}

/// The number in db_bench's line "fillrandom : 3.456 micros/op …".
pub fn microseconds(output: &str, benchmark: &str) -> anyhow::Result<f64> {
    let line = output.lines().find(|line| line.trim_start().starts_with(benchmark));
    let words: Vec<&str> =
        line.with_context(|| format!("db_bench says nothing of {benchmark}"))?.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "micros/op").context("db_bench tells no time")?;
    ensure!(at > 0, "db_bench tells no time");
    Ok(words[at - 1].parse()?)
}

/// The paper's time over Caiti's with values of 2 KiB: Caiti takes so many percent less.
fn published_fig_8(kind: Kind, benchmark: &str) -> Option<f64> {
    let less = match (benchmark, kind) {
        ("fillrandom", Kind::Btt) => 40.6,
        ("fillrandom", Kind::Pmbd) => 20.0,
        ("fillrandom", Kind::Pmbd70) => 17.8,
        ("fillrandom", Kind::Lru) => 19.6,
        ("fillrandom", Kind::Coa) => 48.8,
        ("overwrite", Kind::Btt) => 38.2,
        _ => return None,
    };
    Some(100.0 / (100.0 - less))
}

/// Microseconds of an operation and of a read, in the order of [`Personality::ALL`].
type Means = [(f64, f64); Personality::ALL.len()];

/// Fig. 10.
pub fn servers(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let rounds = scale.requests / 20;
    let mut all =
        frame("fig-10a", "Fig. 10a", "Filebench's personalities: mean time of an operation", "µs per operation");
    let mut reads = frame("fig-10b", "Fig. 10b", "Filebench's personalities: mean time of a read", "µs per read");
    for (kind, samples) in sampled(scale, |root| means(root, rounds))? {
        let points = |value: fn(&(f64, f64)) -> f64, published: fn(Kind, Personality) -> Option<f64>| {
            let of = |(nth, personality): (usize, Personality)| {
                let values: Vec<f64> = samples.iter().map(|means| value(&means[nth])).collect();
                Point::of(personality.label(), &values, published(kind, personality))
            };
            Personality::ALL.into_iter().enumerate().map(of).collect()
        };
        let label = kind.label().to_owned();
        all.series.push(Series { label: label.clone(), points: points(|mean| mean.0, published_fig_10) });
        reads.series.push(Series { label, points: points(|mean| mean.1, |_, _| None) });
    }
    for figure in [&mut all, &mut reads] {
        figure.notes.push(format!(
            "The paper runs Filebench itself in a guest; the mixes here are its own, with fewer files. Each sample is {rounds} rounds of each of {THREADS} threads on \
             a new file system, and samples of all subjects are taken in turn."
        ));
    }
    Ok(vec![all, reads])
}

/// What each personality takes below `root`.
fn means(root: &Path, rounds: u32) -> anyhow::Result<Means> {
    let mut means = Means::default();
    for (mean, personality) in means.iter_mut().zip(Personality::ALL) {
        let taken = measured(personality, root, rounds)?;
        let each = |time: std::time::Duration, count: u32| time.as_secs_f64() * 1e6 / f64::from(count.max(1));
        *mean = (each(taken.time, taken.operations), each(taken.reading, taken.reads));
    }
    Ok(means)
}

/// Threads of a personality.
const THREADS: u32 = 4;

fn measured(personality: Personality, folder: &Path, rounds: u32) -> anyhow::Result<Taken> {
    personality.run(folder, THREADS, rounds).with_context(|| format!("run {}", personality.label()))
}

/// The paper's time over Caiti's: Caiti takes so many percent less.
fn published_fig_10(kind: Kind, personality: Personality) -> Option<f64> {
    let less = match (personality, kind) {
        (Personality::FileServer, Kind::Pmem) => 13.3,
        (Personality::FileServer, Kind::Btt) => 43.9,
        (Personality::FileServer, Kind::Pmbd) => 52.4,
        (Personality::FileServer, Kind::Pmbd70) => 48.6,
        (Personality::FileServer, Kind::Lru) => 53.1,
        (Personality::FileServer, Kind::Coa) => 43.2,
        (Personality::VarMail, Kind::Btt) => 22.4,
        (Personality::VarMail, Kind::Pmbd) => 26.8,
        (Personality::VarMail, Kind::Pmbd70) => 31.8,
        (Personality::VarMail, Kind::Lru) => 8.2,
        (Personality::VarMail, Kind::Coa) => 30.9,
        (Personality::WebProxy, Kind::Btt) => 14.3,
        (Personality::WebProxy, Kind::Pmbd) => 11.9,
        (Personality::WebProxy, Kind::Pmbd70) => 15.3,
        (Personality::WebProxy, Kind::Lru) => 9.6,
        (Personality::WebProxy, Kind::Coa) => 13.4,
        _ => return None,
    };
    Some(100.0 / (100.0 - less))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_off_its_line() {
        let output =
            "Keys: 16 bytes\nfillrandom   :       3.456 micros/op 289345 ops/sec;  32.0 MB/s\nreadrandom : 2 micros/op";
        assert_eq!(microseconds(output, "fillrandom").unwrap(), 3.456);
        assert_eq!(microseconds(output, "readrandom").unwrap(), 2.0);
        assert!(microseconds(output, "overwrite").is_err());
    }

    #[test]
    fn less_time_is_a_ratio_above_one() {
        assert!((published_fig_8(Kind::Coa, "fillrandom").unwrap() - 1.953).abs() < 0.001);
        assert_eq!(published_fig_10(Kind::Tidegate, Personality::VarMail), None);
    }
}
