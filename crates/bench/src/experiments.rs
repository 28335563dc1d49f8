//! The experiments of the papers, repeated with Tidegate and its rivals behind the same traits.
//!
//! Each experiment yields figures ([`figure`]), one file each in the folder of a run, so that a run that was interrupted goes on where it was;
//! [`page`] draws whatever is there. What is compared runs in turn within one process, over and over, so that a machine that slows down meets
//! all of it alike. The medium is memory of this machine made as slow as Optane ([`tidegate_media::emulate`]): what the figures say of is order
//! and ratio, not the paper's microseconds.

pub mod applications;
pub mod cached;
pub mod figure;
pub mod keys;
pub mod load;
pub mod page;
pub mod personalities;
pub mod platform;
pub mod stacks;
pub mod ycsb;

use crate::medium::WALK_BYTES;
use crate::workload;
use anyhow::Context;
use figure::{Chart, Figure, Point, Series};
use load::{Load, Times};
use stacks::{Kind, Stack};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The medium of every experiment.
const MEDIUM: &str = "optane";

/// The blocks written to over the cache of those that have one, unless its size is what the experiment varies. In the paper 512 MiB of
/// 64 GB.
const BLOCKS_OVER_CACHE: u64 = 16;

/// How long an experiment takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Samples of each point.
    pub rounds: u16,
    /// Requests of a sample.
    pub requests: u32,
    /// Bytes of the blocks written to.
    pub walk_bytes: u64,
    /// The largest cache or burst of writes, in bytes, where that is varied.
    pub bytes_max: u64,
}

impl Scale {
    /// Seconds for each point.
    pub const FULL: Scale = Scale { rounds: 9, requests: 400_000, walk_bytes: WALK_BYTES, bytes_max: 512 << 20 };
    /// A look at everything within two minutes: intervals are wide.
    pub const QUICK: Scale = Scale { rounds: 3, requests: 10_000, walk_bytes: WALK_BYTES / 4, bytes_max: 32 << 20 };
}

impl Scale {
    fn cache_bytes(self) -> u64 {
        self.walk_bytes / BLOCKS_OVER_CACHE
    }
}

/// What an experiment runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Threads of this machine, over memory made as slow as Optane.
    Threads,
    /// Programs on a file system on the subject; needs root, loop devices and FUSE.
    Programs,
    /// The paper's platform, in virtual time; needs this program built for virtual cores.
    VirtualCores,
}

/// An experiment of the paper.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// What it runs on.
    pub driver: Driver,
    measure: fn(Scale) -> anyhow::Result<Vec<Figure>>,
    /// The figures it yields.
    pub figures: &'static [&'static str],
}

/// Every experiment.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "staging-cost",
        about: "time of a random write with and without a flush every 128 writes (Caiti Fig. 2a)",
        driver: Driver::Threads,
        measure: staging_cost,
        figures: &["fig-2a"],
    },
    Experiment {
        name: "flush",
        about: "time of a flush after so many bytes of random writes (Caiti Fig. 2b)",
        driver: Driver::Threads,
        measure: flush_times,
        figures: &["fig-2b"],
    },
    Experiment {
        name: "windows",
        about: "the slowest of each 100 requests in a window of 50,000 (Caiti Fig. 2c-e, 5b)",
        driver: Driver::Threads,
        measure: windows,
        figures: &["fig-2c-e-5b"],
    },
    Experiment {
        name: "writers",
        about: "time per request and 99.99th percentile, one and two writers (Caiti Fig. 5a, 5d, 5e)",
        driver: Driver::Threads,
        measure: writers,
        figures: &["fig-5a", "fig-5d"],
    },
    Experiment {
        name: "capacity",
        about: "time per request over the size of the cache (Caiti Table 1)",
        driver: Driver::Threads,
        measure: capacity,
        figures: &["table-1"],
    },
    Experiment {
        name: "store",
        about: "RocksDB on Ext4 on each subject (Caiti Fig. 8)",
        driver: Driver::Programs,
        measure: applications::store,
        figures: &["fig-8a-rocksdb", "fig-8b-rocksdb", "fig-8c-rocksdb"],
    },
    Experiment {
        name: "leveldb",
        about: "LevelDB's own workloads on Ext4 on each subject (Caiti Fig. 8)",
        driver: Driver::Programs,
        measure: ycsb::leveldb,
        figures: &["fig-8a", "fig-8b", "fig-8c", "fig-8d"],
    },
    Experiment {
        name: "ycsb",
        about: "YCSB's load, A and F over LevelDB on Ext4 on each subject (Caiti Fig. 9)",
        driver: Driver::Programs,
        measure: ycsb::ycsb,
        figures: &["fig-9a", "fig-9b", "fig-9c", "fig-9d"],
    },
    Experiment {
        name: "servers",
        about: "Filebench's personalities on Ext4 on each subject (Caiti Fig. 10)",
        driver: Driver::Programs,
        measure: applications::servers,
        figures: &["fig-10a", "fig-10b"],
    },
    Experiment {
        name: "platform-staging-cost",
        about: "the same as staging-cost on the paper's platform",
        driver: Driver::VirtualCores,
        measure: platform::staging_cost,
        figures: &["platform-fig-2a-told", "platform-fig-2a-fitted"],
    },
    Experiment {
        name: "platform-flush",
        about: "the same as flush on the paper's platform",
        driver: Driver::VirtualCores,
        measure: platform::flush_times,
        figures: &["platform-fig-2b-told", "platform-fig-2b-fitted"],
    },
    Experiment {
        name: "platform-windows",
        about: "response times in windows of 50,000 and 1,000,000 requests (Caiti Fig. 2c-e, 3, 5b, 5c)",
        driver: Driver::VirtualCores,
        measure: platform::windows,
        figures: &["platform-fig-2c-e-5b-fitted", "platform-fig-3-5c-fitted"],
    },
    Experiment {
        name: "platform-depth",
        about: "time per request and 99.99th percentile over the depth (Caiti Fig. 5a, 5d)",
        driver: Driver::VirtualCores,
        measure: platform::depth,
        figures: &["platform-fig-5a-told", "platform-fig-5d-told", "platform-fig-5a-fitted", "platform-fig-5d-fitted"],
    },
    Experiment {
        name: "platform-jobs",
        about: "time per request over the number of jobs (Caiti Fig. 5e)",
        driver: Driver::VirtualCores,
        measure: platform::jobs,
        figures: &["platform-fig-5e-told", "platform-fig-5e-fitted"],
    },
    Experiment {
        name: "platform-capacity",
        about: "time per request over the size of the cache (Caiti Table 1)",
        driver: Driver::VirtualCores,
        measure: platform::capacity,
        figures: &["platform-table-1-told", "platform-table-1-fitted"],
    },
    Experiment {
        name: "platform-inside",
        about: "where the time of writes and reads goes (Caiti Fig. 6)",
        driver: Driver::VirtualCores,
        measure: platform::inside::breakdown,
        figures: &[
            "platform-fig-6a-told",
            "platform-fig-6b-told",
            "platform-fig-6c-told",
            "platform-fig-6d-told",
            "platform-fig-6a-fitted",
            "platform-fig-6b-fitted",
            "platform-fig-6c-fitted",
            "platform-fig-6d-fitted",
            "platform-stalls",
        ],
    },
    Experiment {
        name: "platform-timeline",
        about: "a hundred writes one after the other (Caiti Fig. 7)",
        driver: Driver::VirtualCores,
        measure: platform::inside::timeline,
        figures: &["platform-fig-7-caiti-fitted", "platform-fig-7-btt-fitted"],
    },
    Experiment {
        name: "metadata",
        about: "bytes of metadata for each slot (Caiti § 5.1)",
        driver: Driver::Threads,
        measure: platform::inside::metadata,
        figures: &["metadata"],
    },
    Experiment {
        name: "platform-reasons",
        about: "what explains the differences to the paper, one fitted number after the other",
        driver: Driver::VirtualCores,
        measure: platform::reasons,
        figures: &["platform-reasons"],
    },
    Experiment {
        name: "platform-cores",
        about: "what cores without a writer do for two writers",
        driver: Driver::VirtualCores,
        measure: platform::cores,
        figures: &["platform-cores"],
    },
    Experiment {
        name: "platform-wear",
        about: "writes of each block and their time, with wear levelled and without (what Caiti leaves to others)",
        driver: Driver::VirtualCores,
        measure: platform::wear::levelling,
        figures: &["wear-most", "wear-time", "wear-uniform", "wear-zipfian", "wear-hot-spot", "wear-one-alone"],
    },
    Experiment {
        name: "cache-mix",
        about: "random reads and writes on the disk cache and on Classic (Tinca Fig. 7a)",
        driver: Driver::VirtualCores,
        measure: cached::mixes,
        figures: &["tinca-fig-7a", "tinca-fig-7a-disk", "tinca-fig-7a-jobs"],
    },
    Experiment {
        name: "cache-counts",
        about: "lines flushed and disk blocks written of the same (Tinca Fig. 7b, 7c)",
        driver: Driver::Threads,
        measure: cached::counts,
        figures: &["tinca-fig-7b", "tinca-fig-7c"],
    },
    Experiment {
        name: "cache-transactions",
        about: "TPC-C's transactions on the disk cache and on Classic (Tinca Fig. 8)",
        driver: Driver::VirtualCores,
        measure: cached::transactions,
        figures: &["tinca-fig-8a", "tinca-fig-8b", "tinca-fig-8c"],
    },
    Experiment {
        name: "cache-parts",
        about: "what Classic's journal, flushes and metadata cost it (Tinca Fig. 3b, 4)",
        driver: Driver::VirtualCores,
        measure: cached::parts::parts,
        figures: &["tinca-fig-3b", "tinca-fig-4"],
    },
    Experiment {
        name: "cache-files",
        about: "what a journal adds to Filebench's writes, and blocks of a transaction (Tinca Fig. 3a, 13)",
        driver: Driver::Threads,
        measure: cached::files::files,
        figures: &["tinca-fig-3a", "tinca-fig-13"],
    },
    Experiment {
        name: "cache-grounds",
        about: "TPC-C on other disks and memories, and how often its writes hit (Tinca Fig. 12)",
        driver: Driver::VirtualCores,
        measure: cached::grounds::grounds,
        figures: &["tinca-fig-12a", "tinca-fig-12b", "tinca-fig-12c"],
    },
    Experiment {
        name: "cache-pace",
        about: "what writers feel of destaging, below the disk's speed and above",
        driver: Driver::VirtualCores,
        measure: cached::pace::pace,
        figures: &["tinca-pace", "tinca-pace-above"],
    },
    Experiment {
        name: "platform-tried",
        about: "what was tried against Caiti as published",
        driver: Driver::VirtualCores,
        measure: platform::improvements,
        figures: &[
            "platform-tried-told",
            "platform-tried-tail-told",
            "platform-tried-fitted",
            "platform-tried-tail-fitted",
        ],
    },
];

/// Runs `experiment` unless all its figures lie in `folder` already; says how long it took, or None.
pub fn run(experiment: &Experiment, scale: Scale, folder: &Path) -> anyhow::Result<Option<std::time::Duration>> {
    let file = |id: &str| -> PathBuf { folder.join(format!("{id}.json")) };
    if experiment.figures.iter().all(|id| file(id).exists()) {
        return Ok(None);
    }
    let begin = Instant::now();
    if experiment.driver == Driver::VirtualCores && !cfg!(virtual_cores) {
        run_apart(experiment, scale, folder)?;
        return Ok(Some(begin.elapsed()));
    }
    for figure in (experiment.measure)(scale)? {
        let (whole, unfinished) = (file(&figure.id), folder.join(format!("{}.unfinished", figure.id)));
        let written = std::fs::write(&unfinished, serde_json::to_string_pretty(&figure)?);
        written
            .and_then(|()| std::fs::rename(&unfinished, &whole))
            .with_context(|| format!("write {}", whole.display()))?;
    }
    Ok(Some(begin.elapsed()))
}

/// Has a child that is built for virtual cores run `experiment`.
fn run_apart(experiment: &Experiment, scale: Scale, folder: &Path) -> anyhow::Result<()> {
    let folder = std::path::absolute(folder).context("where the figures go")?;
    let mut arguments = vec!["experiments".to_owned(), experiment.name.to_owned()];
    arguments.extend(["--out".to_owned(), folder.display().to_string()]);
    arguments.extend((scale == Scale::QUICK).then(|| "--quick".to_owned()));
    let status = crate::simulator::on_virtual_cores(arguments).stdout(std::process::Stdio::null()).status();
    let status = status.context("running cargo")?;
    anyhow::ensure!(status.success(), "{} failed ({status})", experiment.name);
    Ok(())
}

/// The figures in `folder`, in the order of the experiments.
pub fn figures_in(folder: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for id in EXPERIMENTS.iter().flat_map(|experiment| experiment.figures) {
        let path = folder.join(format!("{id}.json"));
        match std::fs::read_to_string(&path) {
            Ok(text) => figures.push(serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
    anyhow::ensure!(!figures.is_empty(), "{} holds no figures; make some with `bench experiments`", folder.display());
    Ok(figures)
}

/// Stacks of `kinds`, each warmed by a tenth of a sample.
fn stacks(kinds: &[Kind], cache_bytes: u64, scale: Scale) -> anyhow::Result<Vec<(Kind, Stack)>> {
    let warmed = |kind: &Kind| {
        let stack =
            kind.stack(MEDIUM, scale.walk_bytes, cache_bytes).with_context(|| format!("set up {}", kind.label()))?;
        load::run(&*stack.device, &random_writes(scale, scale.requests / 10, 1, 0))?;
        Ok((*kind, stack))
    };
    kinds.iter().map(warmed).collect()
}

fn random_writes(scale: Scale, requests: u32, jobs: u32, round: u16) -> Load {
    let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(round) + 1);
    Load { jobs, warm: 0, requests, blocks: scale.walk_bytes / 4096, flush_every: None, seed }
}

/// Requests that fill a cache of `cache_bytes`: each run ends with a flush, which leaves nothing in a cache that has to be let go of.
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
    let path = load::path_ns();
    format!(
        "Memory of this machine with the times of {MEDIUM} added; 4 KiB blocks at random over {over}. {path} ns of each request pass \
         before it reaches the device (the paper's 54 % of 4.41 µs)."
    )
}

fn staging_cost(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let kinds = [Kind::Pmem, Kind::Btt, Kind::Pmbd, Kind::Lru, Kind::Caiti, Kind::Tidegate];
    let stacks = stacks(&kinds, scale.cache_bytes(), scale)?;
    let sample = |stack: &Stack, round| {
        let warm = warm(scale.cache_bytes());
        let plain = Load { warm, ..random_writes(scale, scale.requests, 1, round) };
        let flushed = Load { flush_every: Some(128), ..plain };
        Ok([load::run(&*stack.device, &plain)?.per_request(), load::run(&*stack.device, &flushed)?.per_request()])
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

fn flush_times(scale: Scale) -> anyhow::Result<Vec<Figure>> {
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
    }])
}

/// Milliseconds of a flush after `bytes` of random writes.
fn flush_after(scale: Scale, stack: &Stack, bytes: u64, round: u16) -> anyhow::Result<f64> {
    let writes = u32::try_from(bytes / 4096).expect("a few GiB at most");
    let load = Load { flush_every: Some(writes), ..random_writes(scale, writes, 1, round) };
    let times = load::run(&*stack.device, &load)?;
    Ok(times.flushes.iter().sum::<u64>() as f64 / times.flushes.len() as f64 / 1e6)
}

fn windows(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    const WINDOW: usize = 50_000;
    const TOGETHER: usize = 100;
    let kinds = [Kind::Btt, Kind::Pmbd, Kind::Lru, Kind::Coa, Kind::Caiti, Kind::Tidegate];
    let requests = scale.requests.max(2 * u32::try_from(WINDOW).expect("a small number"));
    let stacks = stacks(&kinds, scale.cache_bytes(), scale)?;
    let series = stacks.into_iter().map(|(kind, stack)| {
        let load = Load { warm: warm(scale.cache_bytes()), ..random_writes(scale, requests, 1, 0) };
        let times = load::run(&*stack.device, &load)?;
        let window = &times.writes[times.writes.len() - WINDOW..];
        let slowest = |(nth, times): (usize, &[u32])| {
            let slowest = f64::from(times.iter().copied().max().unwrap_or(0)) / 1e3;
            Point { place: (nth * TOGETHER).to_string(), median: slowest, low: slowest, high: slowest, published: None }
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
    }])
}

fn writers(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let stacks = stacks(&Kind::ALL, scale.cache_bytes(), scale)?;
    let jobs: Vec<u32> = [1, 2].into_iter().filter(|jobs| *jobs as usize <= workload::cores().len()).collect();
    let warm = warm(scale.cache_bytes());
    let sample = |stack: &Stack, round| {
        let load = |jobs| Load { warm, ..random_writes(scale, scale.requests, jobs, round) };
        let one = |jobs: &u32| Ok(load::run(&*stack.device, &load(*jobs))?);
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

fn capacity(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let kinds: Vec<Kind> = Kind::STAGING.into_iter().chain([Kind::Caiti, Kind::Tidegate]).collect();
    let sizes: Vec<u64> = (24..=29).map(|power| 1 << power).filter(|bytes| *bytes <= scale.bytes_max).collect();
    let mut series: Vec<Series> =
        kinds.iter().map(|kind| Series { label: kind.label().to_owned(), points: Vec::new() }).collect();
    for bytes in sizes {
        let stacks = stacks(&kinds, bytes, scale)?;
        let sample = |stack: &Stack, round| {
            let load = Load { warm: warm(bytes), ..random_writes(scale, scale.requests, 1, round) };
            Ok(load::run(&*stack.device, &load)?.per_request())
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

fn bytes_in_words(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    const TINY: Scale = Scale { rounds: 1, requests: 2_000, walk_bytes: 32 << 20, bytes_max: 16 << 20 };

    #[test]
    fn every_experiment_yields_the_figures_it_names_and_none_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        for experiment in EXPERIMENTS.iter().filter(|one| one.driver == Driver::Threads && one.name != "windows") {
            assert!(run(experiment, TINY, folder.path()).unwrap().is_some(), "{}", experiment.name);
            assert!(run(experiment, TINY, folder.path()).unwrap().is_none(), "{} is there already", experiment.name);
        }
        let figures = figures_in(folder.path()).unwrap();
        let ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
        let counted = ["tinca-fig-7b", "tinca-fig-7c", "tinca-fig-3a", "tinca-fig-13"];
        assert_eq!(ids, [&["fig-2a", "fig-2b", "fig-5a", "fig-5d", "table-1", "metadata"], &counted[..]].concat());
        for figure in &figures {
            assert!(figure.series.iter().all(|series| !series.points.is_empty()), "{}", figure.id);
            assert!(
                figure.series.iter().flat_map(|series| &series.points).all(|point| point.median > 0.0),
                "{}",
                figure.id
            );
        }
        let page = page::html(&figures);
        assert!(figures.iter().all(|figure| page.contains(&figure.title)));
    }

    #[test]
    fn a_folder_without_figures_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        assert!(figures_in(folder.path()).unwrap_err().to_string().contains("bench experiments"));
    }
}
