//! The experiments on the paper's platform, 36 cores over Optane, in virtual time.
//!
//! Two sets of costs, each a group of figures of its own. *Told*: the literature's figures of the
//! parts of that machine, fixed before any of this ran, and not fitted. *Fitted*: one number more,
//! the speed at which a core writes lines to that Optane, from the paper's own bar of raw PMem in
//! Fig. 5a. That number explains the change between the two. A bar that a number was fitted to is
//! marked as an input ([`Point::as_input`]), and nothing is judged by it.
//!
//! Everything is smaller by the same factor: a cache of 16 MiB for the paper's 512 MiB, blocks over
//! 1 GiB, the journal's flush every 156 ms for its five seconds.

mod background;
pub mod inside;
pub mod load;
pub mod programs;
pub mod testbed;
pub mod watch;
pub mod wear;

use super::load::Times;
use super::stacks::{BehindAFlush, Kind};
use super::{published_fig_5a, published_table_1, warm};
use crate::Scale;
use crate::figure::{Chart, Figure, Point, Series, bytes_in_words};
use crate::kernel::path_in_words;
use crate::keys::Spread;
use anyhow::Context;
use load::Load;
use std::time::Duration;
use testbed::{Drainers, Platform, Room, Testbed, TransitCache};
use tidegate_baselines::cow::Shape;
use tidegate_write_cache::Fill;

/// The paper's cache over ours.
const SMALLER: u64 = 32;

/// The cache of those that have one, unless its size is what the experiment varies.
pub const CACHE_BYTES: u64 = (512 << 20) / SMALLER;

/// Bytes of the blocks written to.
const BLOCKS_BYTES: u64 = 1 << 30;

/// The depth whose bars costs are fitted to.
const FITTED_DEPTH: u32 = 128;

/// How often the journal has the device flushed.
const COMMIT_EVERY: Duration = Duration::from_nanos(5_000_000_000 / SMALLER);

/// Requests of a run, at the least: they fill the cache 16 times, and at 10 µs each the journal
/// commits four times meanwhile. The paper's 64 GB fill it 128 times. A run that ends before the
/// second commit begins on a cache that the first one emptied, and never pays for what it leaves in
/// it.
const REQUESTS_MIN: u32 = 1 << 16;

/// Random writes of one job, one at a time.
fn writes(scale: Scale) -> Load {
    // A smoke run does not wait for a steady state.
    let (warm, least) = match (scale == Scale::SMOKE, warm(CACHE_BYTES)) {
        (true, warm) => (warm / 8, warm / 4),
        (false, warm) => (warm, REQUESTS_MIN),
    };
    Load {
        jobs: 1,
        depth: 1,
        warm,
        requests: (scale.requests / 8).max(least),
        reads_percent: 0,
        blocks: BLOCKS_BYTES / 4096,
        spread: Spread::Uniform,
        flush_every: None,
        commit_every: COMMIT_EVERY,
    }
}

/// Room for writers, unless the figure varies it.
fn room(jobs: u32) -> Room {
    Room { bytes: BLOCKS_BYTES, cache_bytes: CACHE_BYTES, jobs }
}

fn run(kind: Kind, platform: &Platform, load: &Load) -> anyhow::Result<Times> {
    let testbed = Testbed::of(kind, platform, room(load.jobs)).with_context(|| format!("set up {}", kind.label()))?;
    load::run(platform, testbed, load)
}

/// The two sets of costs.
fn platforms() -> anyhow::Result<[Platform; 2]> {
    Ok([Platform::told()?, Platform::fitted()?])
}

fn id(name: &str, platform: &Platform) -> String {
    format!("platform-{name}-{}", platform.name)
}

fn series(kind: Kind, points: Vec<Point>) -> Series {
    Series { label: kind.label().to_owned(), points }
}

/// One value that is the whole truth, as in virtual time, which has no noise.
pub(super) fn point(place: impl Into<String>, value: f64, published: Option<f64>) -> Point {
    Point::exact(place, value, published)
}

fn note_of(platform: &Platform) -> String {
    let costs = match platform.name {
        "fitted" => "told costs, and the speed of streaming fitted to the paper's bar of raw PMem",
        _ => "costs as the literature tells them, fitted to nothing",
    };
    format!(
        "36 virtual cores over Optane: {costs}. {}. DAX passes no block layer. The cache, the blocks and the time \
         between the journal's flushes are a 32nd of the paper's.",
        path_in_words()
    )
}

/// Where a figure differs from the paper's, and which ablation shows why.
fn differences(name: &str) -> Option<&'static str> {
    Some(match name {
        "fig-2a" => {
            "In the paper BTT takes 37 % more than raw PMem; here a few percent, as our translation table fences twice where Linux's has the memory \
             flushed four times (\"What explains the differences\", from \"and software\" to \"and BTT\")."
        }
        "fig-5a" => {
            "By told costs alone every bar is near Caiti's; with streaming fitted they are further off than in the paper, as Caiti's own work takes \
             0.09 µs here and 2 µs there (\"What explains the differences\", one number after the other)."
        }
        "fig-5d" => {
            "PMBD's bar is the flush of one of its 16 buffers by one writer, so its ratio grows with the cache and shrinks with the depth: between depths \
             it is seen to fall here."
        }
        "fig-5e" => {
            "With many jobs the medium's bandwidth is the limit of every bar by told costs; with streaming fitted, what a core can stream is, and \
             drainers that share cores with writers lose (\"What was tried\", more and fewer drainers)."
        }
        "fig-6a" => {
            "The paper's shares lie between told costs, which stall less, and fitted ones, which stall more: the BTT's write is what a stall waits \
             for, and its cost is what differs between the two."
        }
        _ => return None,
    })
}

/// The frame of a figure; the series are still to come.
fn frame(name: &str, platform: &Platform, paper: &str, title: &str, chart: Chart, unit: &str) -> Figure {
    Figure {
        id: id(name, platform),
        paper: format!("Caiti, {paper}"),
        title: format!("{title} (36 virtual cores, {} costs)", platform.name),
        chart,
        unit: unit.to_owned(),
        baseline: Some(Kind::Caiti.label().to_owned()),
        notes: std::iter::once(note_of(platform)).chain(differences(name).map(str::to_owned)).collect(),
        series: Vec::new(),
        run: None,
    }
}

/// Fig. 2a.
pub fn staging_cost(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let kinds = [Kind::Pmem, Kind::Dax, Kind::Btt, Kind::Pmbd, Kind::Lru, Kind::Caiti, Kind::Tidegate];
    let figure = |platform: &Platform| {
        let mut figure = frame(
            "fig-2a",
            platform,
            "Fig. 2a",
            "What staging costs: time of a random write",
            Chart::Bars,
            "ns per write",
        );
        figure.baseline = Some(Kind::Btt.label().to_owned());
        for kind in kinds {
            let plain = writes(scale);
            let flushed = Load { flush_every: Some(128), ..plain };
            let points = vec![
                point("no flush", run(kind, platform, &plain)?.per_request(), super::published_fig_2a(kind, false)),
                point(
                    "flush every 128",
                    run(kind, platform, &flushed)?.per_request(),
                    super::published_fig_2a(kind, true),
                ),
            ];
            figure.series.push(series(kind, points));
        }
        Ok(figure)
    };
    platforms()?.iter().map(figure).collect()
}

/// Fig. 2b.
pub fn flush_times(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let kinds = [Kind::Pmbd, Kind::Pmbd70, Kind::Lru, Kind::Coa, Kind::Caiti, Kind::Tidegate];
    let sizes = [19, 21, 23, 25, 27].into_iter().map(|power| 1_u64 << power).filter(|bytes| *bytes <= scale.bytes_max);
    let sizes: Vec<u64> = sizes.collect();
    let figure = |platform: &Platform| {
        let title = "Time of a flush after so much was written";
        let mut figure = frame("fig-2b", platform, "Fig. 2b", title, Chart::Lines, "ms");
        figure.notes.push("A cache twice as large as what is written before a flush.".to_owned());
        for kind in kinds {
            let mut points = Vec::new();
            for bytes in &sizes {
                let testbed = Testbed::of(kind, platform, Room { cache_bytes: 2 * bytes, ..room(1) })?;
                let count = u32::try_from(bytes / 4096)?;
                let load = Load { warm: 0, requests: count, flush_every: Some(count), ..writes(scale) };
                let times = load::run(platform, testbed, &load)?;
                let nanoseconds = times.flushes.first().context("one flush was asked for")?;
                points.push(point(bytes_in_words(*bytes), *nanoseconds as f64 / 1e6, None));
            }
            figure.series.push(series(kind, points));
        }
        Ok(figure)
    };
    platforms()?.iter().map(figure).collect()
}

/// Fig. 2c–e, 3, 5b, 5c.
pub fn windows(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    /// Points that a chart has room for.
    const POINTS: usize = 500;
    const WINDOW: usize = 50_000;
    let kinds = [Kind::Btt, Kind::Pmbd, Kind::Lru, Kind::Coa, Kind::Caiti, Kind::Tidegate];
    let platform = Platform::fitted()?;
    let requests = if scale == Scale::FULL { 1_000_000 } else { scale.requests.max(50_000) };
    let title = |count: usize| {
        format!("Response times in a window of {count} requests: the slowest of each {}", count / POINTS)
    };
    let mut small = frame("fig-2c-e-5b", &platform, "Fig. 2c–e, 5b", &title(WINDOW), Chart::Points, "µs");
    let mut large = frame("fig-3-5c", &platform, "Fig. 3, 5c", &title(requests as usize), Chart::Points, "µs");
    for kind in kinds {
        let times = run(kind, &platform, &Load { requests, ..writes(scale) })?;
        for (figure, window) in
            [(&mut small, &times.writes[times.writes.len() - WINDOW..]), (&mut large, &times.writes[..])]
        {
            let together = window.len() / POINTS;
            let slowest = |(nth, times): (usize, &[u32])| {
                point((nth * together).to_string(), f64::from(times.iter().copied().max().unwrap_or(0)) / 1e3, None)
            };
            figure.series.push(series(kind, window.chunks(together).enumerate().map(slowest).collect()));
        }
    }
    small.baseline = None;
    large.baseline = None;
    Ok(vec![small, large])
}

/// Fig. 5a and 5d.
pub fn depth(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let depths: &[u32] = if scale == Scale::FULL { &[32, 64, 128, 256, 512, 1024] } else { &[128, 1024] };
    let mut figures = Vec::new();
    for platform in platforms()? {
        let mut mean = frame("fig-5a", &platform, "Fig. 5a", "Time per request over the depth", Chart::Bars, "ns");
        let title = "What one request in 10,000 exceeds, over the depth";
        let mut tail = frame("fig-5d", &platform, "Fig. 5d", title, Chart::Bars, "ns");
        tail.notes.push(
            "A job hands over as many requests as the depth says with one call, and sees all of them completed together.".to_owned(),
        );
        for kind in Kind::ALL {
            let (mut means, mut tails) = (Vec::new(), Vec::new());
            for depth in depths {
                let times = run(kind, &platform, &Load { depth: *depth, ..writes(scale) })?;
                let published = (*depth == FITTED_DEPTH).then(|| published_fig_5a(kind)).flatten();
                let mean = point(depth.to_string(), times.per_request(), published);
                let is_input = *depth == FITTED_DEPTH && platform.is_fitted_to(kind);
                means.push(if is_input { mean.as_input() } else { mean });
                let published = (*depth == 1024 && kind == Kind::Pmbd).then_some(14.0);
                tails.push(point(depth.to_string(), times.exceeded_by_one_in(10_000), published));
            }
            mean.series.push(series(kind, means));
            tail.series.push(series(kind, tails));
        }
        figures.extend([mean, tail]);
    }
    Ok(figures)
}

/// Fig. 5e.
pub fn jobs(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let counts: &[u32] = if scale == Scale::FULL { &[1, 2, 4, 8, 16, 32] } else { &[1, 4] };
    let figure = |platform: &Platform| {
        let title = "Time per request over the number of jobs, at a depth of 32";
        let mut figure = frame("fig-5e", platform, "Fig. 5e", title, Chart::Lines, "ns");
        for kind in Kind::ALL {
            let mut points = Vec::new();
            for jobs in counts {
                let times = run(kind, platform, &Load { depth: 32, jobs: *jobs, ..writes(scale) })?;
                points.push(point(jobs.to_string(), times.per_request(), None));
            }
            figure.series.push(series(kind, points));
        }
        Ok(figure)
    };
    platforms()?.iter().map(figure).collect()
}

/// Table 1.
pub fn capacity(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let powers = if scale == Scale::FULL { 26..=31 } else { 26..=28 };
    let figure = |platform: &Platform| {
        let title = "Time per request over the size of the cache";
        let mut figure = frame("table-1", platform, "Table 1", title, Chart::Lines, "ns");
        figure.notes.push("Named are the paper's sizes; ours are a 32nd of them.".to_owned());
        for kind in Kind::STAGING.into_iter().chain([Kind::Caiti, Kind::Tidegate]) {
            let mut points = Vec::new();
            for power in powers.clone() {
                let bytes = (1_u64 << power) / SMALLER;
                let testbed = Testbed::of(kind, platform, Room { cache_bytes: bytes, ..room(1) })?;
                let load = Load { depth: 32, warm: warm(bytes), ..writes(scale) };
                let value = load::run(platform, testbed, &load)?.per_request();
                points.push(point(bytes_in_words(1 << power), value, published_table_1(kind)));
            }
            figure.series.push(series(kind, points));
        }
        Ok(figure)
    };
    platforms()?.iter().map(figure).collect()
}

/// What was tried to make the published transit better, one change at a time.
pub const TRIED: [(&str, TransitCache); 8] = [
    ("as published", TransitCache::PUBLISHED),
    (
        "past the cache before it is full",
        TransitCache { drain_within: super::stacks::DRAIN_WITHIN, ..TransitCache::PUBLISHED },
    ),
    ("slots filled past the caches", TransitCache { fill: Fill::Stream, ..TransitCache::PUBLISHED }),
    ("drainers that watch", TransitCache { watching: true, ..TransitCache::PUBLISHED }),
    ("writes served beside a flush", TransitCache { behind_a_flush: BehindAFlush::GoOn, ..TransitCache::PUBLISHED }),
    ("2 drainers", TransitCache { drainers: Drainers::Fixed(2), ..TransitCache::PUBLISHED }),
    ("as many drainers as idle cores", TransitCache { drainers: Drainers::OnIdleCores, ..TransitCache::PUBLISHED }),
    ("Tidegate", TransitCache::TIDEGATE),
];

/// Each change by itself, and Tidegate.
pub fn improvements(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let places: &[(u32, u32)] =
        if scale == Scale::FULL { &[(1, 1), (1, 128), (8, 32), (32, 32)] } else { &[(1, 1), (8, 32)] };
    let mut figures = Vec::new();
    for platform in platforms()? {
        let title = "What was tried against Caiti as published: time per request";
        let mut mean = frame("tried", &platform, "beyond the paper", title, Chart::Bars, "ns");
        let title = "What was tried against Caiti as published: what one request in 10,000 exceeds";
        let mut tail = frame("tried-tail", &platform, "beyond the paper", title, Chart::Bars, "ns");
        for (label, transit) in TRIED {
            let (mut means, mut tails) = (Vec::new(), Vec::new());
            for (jobs, depth) in places {
                let testbed = Testbed::transit(&platform, room(*jobs), transit)?;
                let times = load::run(&platform, testbed, &Load { jobs: *jobs, depth: *depth, ..writes(scale) })?;
                let place = format!("{jobs} × {depth}");
                means.push(point(&place, times.per_request(), None));
                tails.push(point(&place, times.exceeded_by_one_in(10_000), None));
            }
            for (figure, points) in [(&mut mean, means), (&mut tail, tails)] {
                figure.baseline = Some(TRIED[0].0.to_owned());
                figure.series.push(Series { label: label.to_owned(), points });
            }
        }
        figures.extend([mean, tail]);
    }
    figures.iter_mut().for_each(|figure| figure.notes.push("Places are jobs × depth.".to_owned()));
    Ok(figures)
}

/// What explains the differences to the paper: one number more is fitted at each place, and the
/// bars that no number was fitted to follow.
pub fn reasons(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let steps = [
        ("told", Platform::told()?),
        ("streaming fitted", Platform::fitted()?),
        ("and software", Platform::fitted_to_caiti()?),
        ("and BTT", Platform::fitted_to_btt()?),
        ("one core", Platform::fitted_on_one_core()?),
    ];
    let mut figure =
        frame("reasons", &steps[0].1, "Fig. 5a at 128", "What explains the differences", Chart::Bars, "ns");
    figure.id = "platform-reasons".to_owned();
    figure.title = "What explains the differences to the paper: time per request at a depth of 128".to_owned();
    figure.notes = vec![
        "Each place fits one number more to one bar of the paper: streaming to raw PMem; the software's time, both ways, to Caiti; Linux's \
         translation table, which has the memory flushed four times for a block, to BTT. All other bars follow."
            .to_owned(),
        "The last place takes all cores away but one. Transit then pays for its draining, and PMBD-70 for its syncer. At the other places that works in \
         one buffer while the writer flushes another: only one thread flushes a buffer at a time, so that up to two write to the device. In the paper \
         the syncer gains nothing at all."
            .to_owned(),
        "COA cleans while no request is under way, which is the software's time again: the longer that is, and the faster the table writes, the less is left for \
         writers to wait for."
            .to_owned(),
        "NOVA walks the whole log of a file whenever that has grown by 256 pages. Without the walks its bar falls by a third, below those that \
         the paper has it above."
            .to_owned(),
    ];
    let points = |run: &dyn Fn(&Platform) -> anyhow::Result<Times>, kind: Option<Kind>| {
        let point = |(place, platform): &(&str, Platform)| {
            let published = kind.and_then(published_fig_5a).filter(|_| *place != "one core");
            let point = point(*place, run(platform)?.per_request(), published);
            let is_input = kind.is_some_and(|kind| platform.is_fitted_to(kind));
            Ok(if is_input { point.as_input() } else { point })
        };
        steps.iter().map(point).collect::<anyhow::Result<Vec<Point>>>()
    };
    let load = Load { depth: FITTED_DEPTH, ..writes(scale) };
    for kind in Kind::ALL {
        figure.series.push(series(kind, points(&|platform| run(kind, platform, &load), Some(kind))?));
    }
    let never_walked = Shape { extend_pages: usize::MAX, ..room(1).shape() };
    let walkless =
        |platform: &Platform| load::run(platform, Testbed::copy_on_write(platform, room(1), never_walked)?, &load);
    figure.series.push(Series { label: "NOVA, log never walked".to_owned(), points: points(&walkless, None)? });
    Ok(vec![figure])
}

/// What cores do on which nobody writes: as many as this machine has, and more.
pub fn cores(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    const WRITERS: u32 = 2;
    let told = Platform::told()?;
    let mut figure = frame("cores", &told, "Fig. 5a", "", Chart::Bars, "ns");
    figure.id = "platform-cores".to_owned();
    figure.title = format!("What idle cores do: time per request of {WRITERS} writers, told costs");
    figure.notes.push(
        "With as many cores as writers, who drains takes the time of who writes, so that a cache that drains at once costs more than none. That is why two \
         writers on a machine with two cores cannot show the paper's order."
            .to_owned(),
    );
    let load = Load { jobs: WRITERS, ..writes(scale) };
    for kind in Kind::ALL {
        let mut points = Vec::new();
        for cores in [2, 3, 4, told.profile.cores] {
            let published = (cores == told.profile.cores).then(|| published_fig_5a(kind)).flatten();
            let time = run(kind, &told.with_cores(cores), &load)?.per_request();
            points.push(point(format!("{cores} cores"), time, published));
        }
        figure.series.push(series(kind, points));
    }
    Ok(vec![figure])
}
