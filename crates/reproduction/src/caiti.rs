//! The figures of the transit cache's paper: on threads of this machine; on its platform in virtual
//! time ([`platform`]); with programs on a file system ([`applications`], [`ycsb`]).

#[cfg(not(virtual_cores))]
pub mod applications;
pub mod load;
pub mod platform;
#[cfg(not(virtual_cores))]
pub(crate) mod recording;
pub mod stacks;
#[cfg(not(virtual_cores))]
pub mod ycsb;

use crate::Scale;
use crate::figure::{Chart, Figure, Point, Series, bytes_in_words};
use crate::kernel::{path_in_words, path_ns};
use anyhow::Context;
use load::{Load, Times};
use stacks::{Kind, Stack};
use tidegate_measure::workload;

/// The medium of every experiment.
const MEDIUM: &str = "optane";

/// Stacks of `kinds`, each warmed by a tenth of a sample.
fn stacks(kinds: &[Kind], cache_bytes: u64, scale: Scale) -> anyhow::Result<Vec<(Kind, Stack)>> {
    let warmed = |kind: &Kind| {
        let stack =
            kind.stack(MEDIUM, scale.walk_bytes, cache_bytes).with_context(|| format!("set up {}", kind.label()))?;
        stack.run(&random_writes(scale, scale.requests / 10, 1, 0))?;
        Ok((*kind, stack))
    };
    kinds.iter().map(warmed).collect()
}

fn random_writes(scale: Scale, requests: u32, jobs: u32, round: u16) -> Load {
    let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(round) + 1);
    Load { jobs, warm: 0, requests, blocks: scale.walk_bytes / 4096, flush_every: None, seed, path_ns: path_ns() }
}

/// Requests that fill a cache of `cache_bytes`: each run ends with a flush, which leaves nothing in
/// a cache that has to be let go of.
fn warm(cache_bytes: u64) -> u32 {
    u32::try_from(cache_bytes / 4096 * 5 / 4).expect("a small cache")
}

/// Samples of each stack under each load, all stacks in turn, round after round.
fn rounds<T>(
    stacks: &[(Kind, Stack)],
    scale: Scale,
    mut sample: impl FnMut(&Stack, u16) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<Vec<T>>> {
    let mut samples: Vec<Vec<T>> = stacks.iter().map(|_| Vec::new()).collect();
    for round in 0..scale.rounds {
        for ((_, stack), samples) in stacks.iter().zip(&mut samples) {
            samples.push(sample(stack, round)?);
        }
    }
    Ok(samples)
}

fn note_of_medium(scale: Scale) -> String {
    let over = bytes_in_words(scale.walk_bytes);
    let path = path_in_words();
    format!("Memory of this machine with the times of {MEDIUM} added; 4 KiB blocks at random over {over}. {path}.")
}

pub(crate) fn staging_cost(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let kinds = [Kind::Pmem, Kind::Dax, Kind::Btt, Kind::Pmbd, Kind::Lru, Kind::Caiti, Kind::Tidegate];
    let stacks = stacks(&kinds, scale.cache_bytes(), scale)?;
    let sample = |stack: &Stack, round| {
        let warm = warm(scale.cache_bytes());
        let plain = Load { warm, ..random_writes(scale, scale.requests, 1, round) };
        let flushed = Load { flush_every: Some(128), ..plain };
        Ok([stack.run(&plain)?.per_request(), stack.run(&flushed)?.per_request()])
    };
    let samples = rounds(&stacks, scale, sample)?;
    let places = [("no flush", false), ("flush every 128", true)];
    let series = stacks.iter().zip(&samples).map(|((kind, _), samples)| {
        let point = |(at, (place, flushes)): (usize, &(&str, bool))| {
            let samples: Vec<f64> = samples.iter().map(|sample| sample[at]).collect();
            Point::of(*place, &samples, published_fig_2a(*kind, *flushes))
        };
        Series { label: kind.label().to_owned(), points: places.iter().enumerate().map(point).collect() }
    });
    Ok(vec![Figure {
        id: "fig-2a".to_owned(),
        paper: "Caiti, Fig. 2a".to_owned(),
        title: "What staging costs: time of a random write".to_owned(),
        chart: Chart::Bars,
        unit: "ns per write".to_owned(),
        baseline: Some(Kind::Btt.label().to_owned()),
        notes: vec![note_of_medium(scale), "One writer here; the paper has 64 GB through libaio and Ext4.".to_owned()],
        series: series.collect(),
        run: None,
    }])
}

/// The paper's time over BTT's. With fsync it gives no number for the uncached ways.
fn published_fig_2a(kind: Kind, flushes: bool) -> Option<f64> {
    match (kind, flushes) {
        (Kind::Pmem, false) => Some(1.0 / 1.374),
        (Kind::Dax, false) => Some(1.0 / 1.166),
        (Kind::Btt, _) => Some(1.0),
        (Kind::Pmbd, false) => Some(1.06),
        (Kind::Pmbd, true) => Some(1.061),
        (Kind::Lru, false) => Some(1.151),
        (Kind::Lru, true) => Some(1.108),
        _ => None,
    }
}

pub(crate) fn flush_times(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let kinds = [Kind::Pmbd, Kind::Pmbd70, Kind::Lru, Kind::Coa, Kind::Caiti, Kind::Tidegate];
    let stacks = stacks(&kinds, 256 << 20, scale)?;
    let sizes: Vec<u64> =
        [19, 21, 23, 25, 27].into_iter().map(|power| 1 << power).filter(|bytes| *bytes <= scale.bytes_max).collect();
    let sample = |stack: &Stack, round| sizes.iter().map(|bytes| flush_after(scale, stack, *bytes, round)).collect();
    let samples: Vec<Vec<Vec<f64>>> = rounds(&stacks, scale, sample)?;
    let series = stacks.iter().zip(&samples).map(|((kind, _), samples)| {
        let point = |(at, bytes): (usize, &u64)| {
            Point::of(bytes_in_words(*bytes), &samples.iter().map(|sample| sample[at]).collect::<Vec<_>>(), None)
        };
        Series { label: kind.label().to_owned(), points: sizes.iter().enumerate().map(point).collect() }
    });
    Ok(vec![Figure {
        id: "fig-2b".to_owned(),
        paper: "Caiti, Fig. 2b".to_owned(),
        title: "Time of a flush after so much was written".to_owned(),
        chart: Chart::Lines,
        unit: "ms".to_owned(),
        baseline: Some(Kind::Tidegate.label().to_owned()),
        notes: vec![
            note_of_medium(scale),
            "A cache of 256 MiB, so that what was written is still there to be flushed.".to_owned(),
        ],
        series: series.collect(),
        run: None,
    }])
}

/// Milliseconds of a flush after `bytes` of random writes.
fn flush_after(scale: Scale, stack: &Stack, bytes: u64, round: u16) -> anyhow::Result<f64> {
    let writes = u32::try_from(bytes / 4096).expect("a few GiB at most");
    let load = Load { flush_every: Some(writes), ..random_writes(scale, writes, 1, round) };
    let times = stack.run(&load)?;
    Ok(times.flushes.iter().sum::<u64>() as f64 / times.flushes.len() as f64 / 1e6)
}

pub(crate) fn windows(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    const WINDOW: usize = 50_000;
    const TOGETHER: usize = 100;
    let kinds = [Kind::Btt, Kind::Pmbd, Kind::Lru, Kind::Coa, Kind::Caiti, Kind::Tidegate];
    let requests = scale.requests.max(2 * u32::try_from(WINDOW).expect("a small number"));
    let stacks = stacks(&kinds, scale.cache_bytes(), scale)?;
    let series = stacks.into_iter().map(|(kind, stack)| {
        let load = Load { warm: warm(scale.cache_bytes()), ..random_writes(scale, requests, 1, 0) };
        let times = stack.run(&load)?;
        let window = &times.writes[times.writes.len() - WINDOW..];
        let slowest = |(nth, times): (usize, &[u32])| {
            let slowest = f64::from(times.iter().copied().max().unwrap_or(0)) / 1e3;
            Point::exact((nth * TOGETHER).to_string(), slowest, None)
        };
        let points = window.chunks(TOGETHER).enumerate().map(slowest).collect();
        Ok(Series { label: kind.label().to_owned(), points })
    });
    Ok(vec![Figure {
        id: "fig-2c-e-5b".to_owned(),
        paper: "Caiti, Fig. 2c–e, 5b".to_owned(),
        title: "Response times in a window of 50,000 requests: the slowest of each 100".to_owned(),
        chart: Chart::Points,
        unit: "µs".to_owned(),
        baseline: None,
        notes: vec![
            note_of_medium(scale),
            "The scheduler of a machine with few cores takes them away now and then: rare points of milliseconds are in every chart.".to_owned(),
        ],
        series: series.collect::<anyhow::Result<_>>()?,
        run: None,
    }])
}

pub(crate) fn writers(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let stacks = stacks(&Kind::ALL, scale.cache_bytes(), scale)?;
    let jobs: Vec<u32> = [1, 2].into_iter().filter(|jobs| *jobs as usize <= workload::cores().len()).collect();
    let warm = warm(scale.cache_bytes());
    let sample = |stack: &Stack, round| {
        let load = |jobs| Load { warm, ..random_writes(scale, scale.requests, jobs, round) };
        let one = |jobs: &u32| Ok(stack.run(&load(*jobs))?);
        jobs.iter().map(one).collect::<anyhow::Result<Vec<Times>>>()
    };
    let samples = rounds(&stacks, scale, sample)?;
    let series = |of: fn(&Times) -> f64, published: fn(Kind) -> Option<f64>| -> Vec<Series> {
        let one = |((kind, _), samples): (&(Kind, Stack), &Vec<Vec<Times>>)| {
            let point = |(at, jobs): (usize, &u32)| {
                let samples: Vec<f64> = samples.iter().map(|sample| of(&sample[at])).collect();
                let place = if *jobs == 1 { "1 writer".to_owned() } else { format!("{jobs} writers") };
                Point::of(place, &samples, published(*kind))
            };
            Series { label: kind.label().to_owned(), points: jobs.iter().enumerate().map(point).collect() }
        };
        stacks.iter().zip(&samples).map(one).collect()
    };
    let figure = |id: &str, paper: &str, title: &str, unit: &str, series| {
        Figure {
        id: id.to_owned(),
        paper: paper.to_owned(),
        title: title.to_owned(),
        chart: Chart::Bars,
        unit: unit.to_owned(),
        baseline: Some(Kind::Caiti.label().to_owned()),
        notes: vec![
            note_of_medium(scale),
            "The paper's depth is 128 requests on 36 cores; here as many writers as there are cores, and draining shares them.".to_owned(),
        ],
        series,
        run: None,
    }
    };
    Ok(vec![
        figure("fig-5a", "Caiti, Fig. 5a, 5e", "Time per request", "ns", series(Times::per_request, published_fig_5a)),
        figure(
            "fig-5d",
            "Caiti, Fig. 5d",
            "What one write in 10,000 exceeds",
            "ns",
            series(|times| times.exceeded_by_one_in(10_000), |_| None),
        ),
    ])
}

/// The paper's time per request over Caiti's, at a depth of 128.
fn published_fig_5a(kind: Kind) -> Option<f64> {
    match kind {
        Kind::Pmem => Some(2.202),
        Kind::Dax => Some(2.157),
        Kind::Nova => Some(4.1),
        Kind::Btt | Kind::Pmbd | Kind::Pmbd70 => Some(3.6),
        Kind::Lru => Some(3.5),
        Kind::Coa => Some(2.9),
        Kind::Caiti => Some(1.0),
        Kind::CaitiLazy | Kind::CaitiStrict | Kind::Tidegate => None,
    }
}

pub(crate) fn capacity(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let kinds: Vec<Kind> = Kind::STAGING.into_iter().chain([Kind::Caiti, Kind::Tidegate]).collect();
    let sizes: Vec<u64> = (24..=29).map(|power| 1 << power).filter(|bytes| *bytes <= scale.bytes_max).collect();
    let mut series: Vec<Series> =
        kinds.iter().map(|kind| Series { label: kind.label().to_owned(), points: Vec::new() }).collect();
    for bytes in sizes {
        let stacks = stacks(&kinds, bytes, scale)?;
        let sample = |stack: &Stack, round| {
            let load = Load { warm: warm(bytes), ..random_writes(scale, scale.requests, 1, round) };
            Ok(stack.run(&load)?.per_request())
        };
        let samples = rounds(&stacks, scale, sample)?;
        for (series, (samples, (kind, _))) in series.iter_mut().zip(samples.iter().zip(&stacks)) {
            series.points.push(Point::of(bytes_in_words(bytes), samples, published_table_1(*kind)));
        }
    }
    Ok(vec![Figure {
        id: "table-1".to_owned(),
        paper: "Caiti, Table 1".to_owned(),
        title: "Time per request over the size of the cache".to_owned(),
        chart: Chart::Lines,
        unit: "ns".to_owned(),
        baseline: Some(Kind::Caiti.label().to_owned()),
        notes: vec![note_of_medium(scale), "The paper's sizes are 64 MiB to 2 GiB under a depth of 32.".to_owned()],
        series,
        run: None,
    }])
}

/// The paper's mean over Caiti's 4.4 µs; it hardly changes with the size.
fn published_table_1(kind: Kind) -> Option<f64> {
    let microseconds = match kind {
        Kind::Pmbd => 16.5,
        Kind::Pmbd70 => 16.6,
        Kind::Lru => 16.7,
        Kind::Coa => 12.7,
        Kind::Caiti => 4.4,
        _ => return None,
    };
    Some(microseconds / 4.4)
}
