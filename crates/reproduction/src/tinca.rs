//! The experiments of the transactional cache's paper, on its platform in virtual time: six cores
//! of a Xeon E5, memory with the times of phase-change memory, a solid-state disk.
//!
//! Everything is 128 times smaller, a cache of 64 MiB for 8 GiB, a file of 160 MiB for 20 GiB, and
//! for TPC-C 16 times. No number is fitted: costs of cores and memories are those of
//! [`tidegate_sim::cost`], disks those of [`disks`].

pub mod ablations;
pub mod destage_latency;
pub mod disks;
pub mod file_speed;
pub mod files;
pub mod mix;
pub mod orders;
pub mod other_media;
pub mod recovery;
pub mod testbed;

use super::Scale;
use super::figure::{Chart, Figure, Point, Series};
use disks::{Make, Spent};
use mix::{Asked, Work};
use orders::PAGES;
use testbed::{Kind, Setup};
use tidegate_baselines::classic::{self, CACHE_BLOCKS, FILE_BLOCKS, JOURNAL_BLOCKS, Reads};
use tidegate_baselines::tinca::done_by_tinca;
use tidegate_baselines::ubj::{Replaced, done_by_ubj};

/// The paper's platform, with a file that fio reads and writes.
pub const FIO: Setup = Setup {
    platform: "e5-pcm",
    disk: Make::Ssd,
    smaller: 128,
    blocks: FILE_BLOCKS,
    journal_blocks: JOURNAL_BLOCKS,
    replaced: Replaced::Whole,
};

/// Requests that are under way at once; the paper does not tell.
const JOBS: u32 = 32;

/// Reads to writes: the place's name, the writes among ten, and the paper's write throughput over
/// Classic's.
const MIXES: [(&str, u64, f64); 3] = [("3/7", 7, 2.5), ("5/5", 5, 2.1), ("7/3", 3, 1.7)];

/// So many requests that the cache is full before time is told, of dirty blocks too: users who do
/// nothing else are faster than the disk, so that is where a run of minutes ends.
fn random(scale: Scale, users: u32, writes: u64) -> Asked {
    let (filling, measured) = match scale {
        Scale::FULL => (40_000, 60_000),
        Scale::SMOKE => (12_000, 1_000),
        _ => (40_000, 8_000),
    };
    Asked { work: Work::Random(writes), users, filling, warm: measured / 4, measured }
}

/// So many requests on a new cache that it has room for all of them, and that the journal is
/// written round many times: the disk works beside the users, who never wait for it.
fn room_left(scale: Scale, users: u32, writes: u64) -> Asked {
    let measured = if scale == Scale::SMOKE { 1_000 } else { 12_000 };
    Asked { work: Work::Random(writes), users, filling: 0, warm: measured / 4, measured }
}

/// So many requests that the cache is full of dirty blocks when users begin, and that what the disk
/// then has to do in a second stays the same: what is dirty by then is what each side lets be
/// dirty. Runs of twice as many give the same but for 2 %.
fn steady(scale: Scale, users: u32, writes: u64) -> Asked {
    if scale == Scale::SMOKE {
        return Asked { work: Work::Random(writes), users, filling: 12_000, warm: 1_000, measured: 2_000 };
    }
    Asked { work: Work::Random(writes), users, filling: 120_000, warm: 100_000, measured: 200_000 }
}

/// The platform of TPC-C. Its smallest form has a smaller cache, which is set up sooner.
fn tpc_c(scale: Scale) -> Setup {
    if scale == Scale::SMOKE { Setup { smaller: 128, ..TPC_C } } else { TPC_C }
}

/// So many transactions that what the cache may still take in when time begins is a small part of
/// what they write.
fn orders(scale: Scale, users: u32) -> Asked {
    let (filling, measured) = match scale {
        Scale::FULL => (96_000, 24_000),
        Scale::SMOKE => (1_200, 600),
        _ => (96_000, 6_000),
    };
    Asked { work: Work::Orders, users, filling, warm: measured / 2, measured }
}

/// Virtual time has no noise: one sample is the whole truth of the model.
fn point(place: impl Into<String>, value: f64, published: Option<f64>) -> Point {
    Point::exact(place, value, published)
}

fn series(label: &str, points: Vec<Point>) -> Series {
    Series { label: label.to_owned(), points }
}

/// What all figures say of the platform: `part` is what the sizes are of the paper's.
fn platform_note(part: &str) -> String {
    format!(
        "Six virtual cores of a Xeon E5 over memory with the times of phase-change memory (180 ns more for a line written, 50 ns for one read), and a SATA \
         solid-state disk. The cache, the file and the journal are a {part} of the paper's. Nothing is fitted."
    )
}

fn frame(id: &str, paper: &str, title: &str, chart: Chart, unit: &str) -> Figure {
    Figure {
        id: format!("tinca-{id}"),
        paper: format!("Tinca, {paper}"),
        title: title.to_owned(),
        chart,
        unit: unit.to_owned(),
        baseline: Some(Kind::CLASSIC.label().to_owned()),
        notes: vec![platform_note("128th")],
        series: Vec::new(),
        run: None,
    }
}

/// Fig. 7a. Its quick form has the same bars: a shorter one ends before the disk has to write for
/// each block that is written.
pub fn mixes(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let [rate, disk] = throughput(scale)?;
    Ok(vec![rate, disk, over_jobs(scale)?])
}

fn throughput(scale: Scale) -> anyhow::Result<[Figure; 2]> {
    let title = "Random reads and writes: writes of a second";
    let mut rate = frame("fig-7a", "Fig. 7a", title, Chart::Bars, "writes per second");
    let title = "What the disk is busy with for each of those writes";
    let mut disk = frame("fig-7a-disk", "beyond the paper", title, Chart::Bars, "ns per write");
    for kind in Kind::WHOLE.into_iter().chain([Kind::FORGETTING]) {
        let mut points = [Vec::new(), Vec::new()];
        for (place, writes, published) in MIXES {
            let taken = mix::run(kind, &FIO, steady(scale, JOBS, writes))?;
            points[0].push(point(place, taken.per_second(), kind.published(published)));
            points[1].extend(busy_points(place, taken.spent, taken.count));
        }
        for (figure, points) in [&mut rate, &mut disk].into_iter().zip(points) {
            figure.series.push(series(kind.label(), points));
        }
    }
    disk.series.push(series(LEAST, least_busy()?));
    rate.notes.push(format!(
        "Places are reads to writes. {JOBS} requests are under way at once, which the paper does not tell; the figure over jobs shows other numbers. Time is \
         told when as much is dirty as each side lets be: where minutes of users end who are faster than the disk. UBJ the paper describes, and does not measure."
    ));
    rate.notes.push(
        "With reads forgotten, what a read brings in is stored and not flushed, and gone after a restart: the paper does not say that it stays. What the \
         processor's caches write back of it by themselves, when they need room, takes no time here. It changes little: what all users share, and use up, \
         is the disk's time."
            .to_owned(),
    );
    disk.notes.push(
        "The least: of blocks asked for at random, a cache of this size has no more than its share of the file, when they are read and, if all of it is \
         dirty, when they are written. Every other one the disk reads, or writes, sooner or later; no write takes it less than as one of many neighbours."
            .to_owned(),
    );
    Ok([rate, disk])
}

/// The series of what no cache gets by with less.
const LEAST: &str = "at the least";

/// For how long each of so many writes, or transactions, had the disk read and write.
fn busy_points(place: &str, spent: Spent, count: u64) -> [Point; 2] {
    let each = |ns: u64| ns as f64 / count as f64;
    let parts = [("reading", each(spent.reading_ns)), ("writing", each(spent.writing_ns))];
    parts.map(|(part, ns)| point(format!("{place}, {part}"), ns, None))
}

fn least_busy() -> anyhow::Result<Vec<Point>> {
    let (read_ns, write_ns) = disks::least_busy_ns()?;
    let missing = 1.0 - f64::from(CACHE_BLOCKS) / FILE_BLOCKS as f64;
    let of = |(place, writes, _): (&str, u64, f64)| {
        let reads = (10 - writes) as f64 / writes as f64;
        let parts = [("reading", reads * missing * read_ns as f64), ("writing", missing * write_ns as f64)];
        parts.map(|(part, ns)| point(format!("{place}, {part}"), ns, None))
    };
    Ok(MIXES.into_iter().flat_map(of).collect())
}

fn over_jobs(scale: Scale) -> anyhow::Result<Figure> {
    let jobs: &[u32] = if scale == Scale::FULL { &[1, 2, 4, 8, 16, 32, 64] } else { &[1] };
    let title = "The same at 5/5, over the requests that are under way at once";
    let mut figure = frame("fig-7a-jobs", "beyond the paper", title, Chart::Lines, "writes per second");
    for kind in Kind::WHOLE {
        let mut points = Vec::new();
        for jobs in jobs {
            let taken = mix::run(kind, &FIO, steady(scale, *jobs, 5))?;
            points.push(point(jobs.to_string(), taken.per_second(), None));
        }
        figure.series.push(series(kind.label(), points));
    }
    figure.notes.push(
        "One job waits for its own reads from the disk most of the time, on either cache; with many, the disk's time is what all of them share, and \
         Classic's writes to it are more."
            .to_owned(),
    );
    Ok(figure)
}

/// The paper's platform, with the pages of TPC-C. Transactions are as large as ever, and have to
/// fit into the journal: everything is 16 times smaller than the paper's.
const TPC_C: Setup = Setup {
    platform: "e5-pcm",
    disk: Make::Ssd,
    smaller: 16,
    blocks: PAGES,
    journal_blocks: 8 * JOURNAL_BLOCKS,
    replaced: Replaced::InPart,
};

/// Fig. 8.
pub fn transactions(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let users: &[u32] = if scale == Scale::FULL { &[5, 10, 15, 20, 40, 60] } else { &[5, 60] };
    let mut rate =
        frame("fig-8a", "Fig. 8a", "TPC-C: transactions of a minute", Chart::Lines, "transactions per minute");
    let title = "TPC-C: lines flushed for a transaction";
    let mut lines = frame("fig-8b", "Fig. 8b", title, Chart::Bars, "lines per transaction");
    let title = "TPC-C: blocks written to the disk for a transaction";
    let mut blocks = frame("fig-8c", "Fig. 8c", title, Chart::Bars, "blocks per transaction");
    for kind in Kind::WHOLE {
        let mut points = [Vec::new(), Vec::new(), Vec::new()];
        for users in users {
            let taken = mix::run(kind, &tpc_c(scale), orders(scale, *users))?;
            let each = |count: u64| count as f64 / taken.count as f64;
            let values = [taken.per_second() * 60.0, each(taken.done.lines), each(taken.done.disk_blocks)];
            let published = published_fig_8(kind, *users);
            for ((points, value), published) in points.iter_mut().zip(values).zip(published) {
                points.push(point(users.to_string(), value, published));
            }
        }
        for (figure, points) in [&mut rate, &mut lines, &mut blocks].into_iter().zip(points) {
            figure.series.push(series(kind.label(), points));
        }
    }
    for figure in [&mut rate, &mut lines, &mut blocks] {
        figure.notes = vec![platform_note("16th")];
        figure.notes.push(
            "Places are users, each at a home warehouse of its own for good, by TPC-C's specification. Pages are those of the paper's 350 warehouses, with 16 \
             times fewer rows, 64 MiB of them in DRAM; a transaction's pages are committed together. The paper has MySQL, whose log takes most commits, and \
             whose own time and row locks are on both bars there and on none here."
                .to_owned(),
        );
    }
    Ok(vec![rate, lines, blocks])
}

/// The paper's values over Classic's: rate, lines, disk blocks. Lines and blocks it gives for 5 and
/// 60 users.
fn published_fig_8(kind: Kind, users: u32) -> [Option<f64>; 3] {
    match (kind, users) {
        (Kind::TIDEGATE | Kind::Tinca, 5) => [Some(1.8), Some(0.298), Some(1.9 / 4.2)],
        (Kind::TIDEGATE | Kind::Tinca, 60) => [Some(1.7), Some(0.362), Some(3.0 / 7.0)],
        _ => [None; 3],
    }
}

/// The published protocol, with what is read in kept over a restart.
const TINCA_KEEPING: &str = "Tinca, reads kept";

/// The cache with reads forgotten, as `serve` destages it.
const CAPPED: &str = "Tidegate, reads forgotten, destaged from 70 % dirty on";

/// Fig. 7b and 7c: exact counts, without virtual time.
pub fn counts(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let lines = frame("fig-7b", "Fig. 7b", "Lines flushed for a write", Chart::Bars, "lines per write");
    let title = "Blocks written to the disk for a write";
    let blocks = frame("fig-7c", "Fig. 7c", title, Chart::Bars, "blocks per write");
    let mut figures = [lines, blocks];
    let published = [("3/7", 7, [0.266, 0.394]), ("5/5", 5, [0.246, 0.374]), ("7/3", 3, [0.237, 0.354])];
    let ours = Reads::ALL.map(|(reads, label)| (label, Some(reads)));
    let others = [Kind::CLASSIC.label(), Kind::Ubj.label(), Kind::Tinca.label(), TINCA_KEEPING, CAPPED];
    let others = others.map(|label| (label, None));
    // Counts are as exact for one mix, which tells whether they are made.
    let mixes = if scale == Scale::SMOKE { &published[..1] } else { &published[..] };
    for (label, reads) in others.into_iter().chain(ours) {
        let mut points = [Vec::new(), Vec::new()];
        for &(place, writes, ratios) in mixes {
            let done = match reads {
                None if label == Kind::Ubj.label() => done_by_ubj(writes)?,
                None if label == Kind::Tinca.label() => done_by_tinca(tidegate_disk_cache::Reads::Forgotten, writes)?,
                None if label == TINCA_KEEPING => done_by_tinca(tidegate_disk_cache::Reads::Kept, writes)?,
                None if label == CAPPED => classic::done_here_capped(writes)?,
                None => classic::done_there(writes)?,
                Some(reads) => classic::done_here(reads, writes)?,
            };
            let requests = f64::from(classic::REQUESTS) * writes as f64 / 10.0;
            for ((points, count), ratio) in points.iter_mut().zip([done.lines, done.disk_blocks]).zip(ratios) {
                let is_published = reads.is_some() || label == Kind::Tinca.label();
                let ratio = if label == Kind::CLASSIC.label() { Some(1.0) } else { is_published.then_some(ratio) };
                points.push(point(place, count as f64 / requests, ratio));
            }
        }
        for (figure, points) in figures.iter_mut().zip(points) {
            figure.series.push(series(label, points));
        }
    }
    for figure in &mut figures {
        figure.notes = vec![
            "Tinca is the protocol as it was published: a ring with Head and Tail, entries of 16 bytes, a switch of roles, each flushed and fenced by itself."
                .to_owned(),
            "Exact counts; nothing here depends on time. The cache, the file and the journal are a 128th of the paper's.".to_owned(),
            "The paper does not say whether a block that is read in is flushed. Its gap grows with the reads, which it does only if Classic's block device \
             flushes such blocks and Tinca does not: so Tinca forgets them here at a restart. The series with reads kept shows the other choice, 64 lines \
             and an entry for each, by which the gap shrinks with the reads."
                .to_owned(),
            "Reads that are forgotten by a restart are stored and not flushed. The processor's caches write such lines back when they need room, unless \
             the block was given to something else before: those are counted on no side."
                .to_owned(),
            "Blocks are written to the disk when nothing in the cache is clean, as the paper has it, which is as late as can be; Classic's cache cleans down \
             to a fifth. `serve` writes from 70 % dirty on, so that fewer writes of a block share one to the disk: a series of its own."
                .to_owned(),
        ];
    }
    Ok(figures.into())
}
