//! Wear: how often each block of the memory is written, with sectors that move and without.
//!
//! The translation table alone, one writer, on the paper's platform. A wrapper around the memory
//! counts the stores to each place. A block is every place that the writer's data may lie in: one
//! for each sector, and the free one of its lane.

use super::load::{self, Load};
use super::testbed::{Platform, SPARE_PARTS, Testbed};
use super::{frame, point, writes};
use crate::Scale;
use crate::figure::{Chart, Figure, Point, Series};
use crate::keys::Spread;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions};
use tidegate_layout::btt::Version;
use tidegate_media::{LINE_BYTES, Region};
use tidegate_sim::{InterceptMemory, InterceptedMemory};

/// Sectors of the volume. Few, so that a run of seconds is as long for them as years are for a
/// large one.
const SECTORS: u64 = 4096;

/// How often a sector moves, as the figures call it.
const SETTINGS: [(&str, Option<NonZeroU32>); 4] = [
    ("not levelled", None),
    ("a move in 1000 writes", NonZeroU32::new(1000)),
    ("a move in 100 writes", NonZeroU32::new(100)),
    ("a move in 10 writes", NonZeroU32::new(10)),
];

const SPREADS: [Spread; 4] = [Spread::Uniform, Spread::Zipfian, Spread::HotSpot, Spread::One];

/// The upper ends of a histogram's classes, as multiples of the mean, and their names; the last
/// class has no end.
const CLASSES: [(f64, &str); 9] = [
    (0.0, "never"),
    (0.25, "to ¼"),
    (0.5, "to ½"),
    (1.0, "to 1"),
    (2.0, "to 2"),
    (4.0, "to 4"),
    (16.0, "to 16"),
    (64.0, "to 64"),
    (f64::INFINITY, "more"),
];

/// What a run left.
struct Worn {
    /// Writes of each block.
    blocks: Vec<u32>,
    /// Stores to the line, outside of the blocks, that was stored to most.
    line_most: u32,
    /// Nanoseconds of a write.
    write_ns: f64,
}

impl Worn {
    fn mean(&self) -> f64 {
        self.blocks.iter().map(|count| f64::from(*count)).sum::<f64>() / self.blocks.len() as f64
    }

    fn most_over_mean(&self) -> f64 {
        f64::from(self.blocks.iter().copied().max().unwrap_or(0)) / self.mean()
    }

    /// The share of the blocks in each class, in percent.
    fn shares(&self) -> Vec<Point> {
        let mean = self.mean();
        let class = |count: &u32| CLASSES.iter().position(|(end, _)| f64::from(*count) <= end * mean);
        let mut counts = [0_u32; CLASSES.len()];
        // The last class takes all that is left.
        self.blocks.iter().for_each(|count| counts[class(count).unwrap_or(CLASSES.len() - 1)] += 1);
        let share = |count: u32| f64::from(count) / self.blocks.len() as f64 * 100.0;
        counts.iter().zip(CLASSES).map(|(count, (_, name))| point(name, share(*count), None)).collect()
    }
}

/// The experiment.
pub fn levelling(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let platform = Platform::told()?.without_path();
    let title = "Wear: writes of the block written most, over the mean";
    let mut most = described(&platform, "wear-most", title, Chart::Bars, "× the mean");
    let mut time = described(&platform, "wear-time", "Wear: what levelling costs", Chart::Bars, "ns per write");
    time.baseline = Some(SETTINGS[0].0.to_owned());
    let mut histograms = SPREADS.map(|spread| {
        let id = format!("wear-{spread}").replace(' ', "-");
        described(
            &platform,
            &id,
            &format!("Wear: how often blocks were written, {spread}"),
            Chart::Lines,
            "% of the blocks",
        )
    });
    for (label, every) in SETTINGS {
        let worn = SPREADS.map(|spread| worn(&platform, scale, spread, every));
        let worn = worn.into_iter().collect::<anyhow::Result<Vec<Worn>>>()?;
        let bar = |value: fn(&Worn) -> f64| {
            let points = SPREADS.iter().zip(&worn).map(|(spread, worn)| point(spread.to_string(), value(worn), None));
            Series { label: label.to_owned(), points: points.collect() }
        };
        most.series.push(bar(Worn::most_over_mean));
        time.series.push(bar(|worn| worn.write_ns));
        for (figure, worn) in histograms.iter_mut().zip(&worn) {
            figure.series.push(Series { label: label.to_owned(), points: worn.shares() });
        }
        if every.is_none() {
            most.notes.push(format!(
                "Sectors move, the log does not: a lane's line of the log is stored to with each write, here {:.0} times as often as a block \
                 on average. Media that level themselves, as Optane does, spread that.",
                f64::from(worn[0].line_most) / worn[0].mean()
            ));
        }
    }
    histograms.iter_mut().for_each(|figure| figure.notes.push("Classes are multiples of the mean.".to_owned()));
    Ok([most, time].into_iter().chain(histograms).collect())
}

fn described(platform: &Platform, id: &str, title: &str, chart: Chart, unit: &str) -> Figure {
    let mut figure = frame(id, platform, "future work", title, chart, unit);
    (figure.id, figure.title, figure.baseline) = (id.to_owned(), title.to_owned(), None);
    figure.notes = vec![format!(
        "The translation table with some {SECTORS} sectors on virtual cores over Optane, costs as the literature tells them, without the software \
         above. A hot spot: nine writes of ten go to a hundredth of the sectors."
    )];
    figure
}

fn worn(platform: &Platform, scale: Scale, spread: Spread, every: Option<NonZeroU32>) -> anyhow::Result<Worn> {
    let bytes = SECTORS * 4096;
    let region = Arc::new(Counted::over(platform.persistent(bytes + bytes / SPARE_PARTS)?));
    let spec = FormatSpec { version: Version::V2_0, sector_size: 4096, uuid: [7; 16], parent_uuid: [0; 16] };
    tidegate_btt::format(&region, &spec, Contents::Zeroed)?;
    let btt = Btt::open(region.clone(), &OpenOptions { level_wear_every: every, ..OpenOptions::default() })?;
    let sectors = btt.summary().blocks;
    let requests = if scale == Scale::FULL { scale.requests * 5 } else { scale.requests * 30 };
    let load = Load { blocks: sectors, spread, warm: 0, requests, ..writes(scale) };
    region.by.forget();
    let times = load::run(platform, Testbed::uncached(Arc::new(btt)), &load)?;
    let mut counts: Vec<u32> = region.by.blocks.iter().map(load_relaxed).filter(|count| *count > 0).collect();
    // Whatever was never written is a block too.
    counts.resize(usize::try_from(sectors)? + 1, 0);
    let line_most = region.by.lines.iter().map(load_relaxed).max().unwrap_or(0);
    Ok(Worn { blocks: counts, line_most, write_ns: times.per_request() })
}

fn load_relaxed(count: &AtomicU32) -> u32 {
    count.load(Ordering::Relaxed)
}

/// Counts of a memory: streams of whole blocks, and other stores by line.
struct Counted {
    blocks: Vec<AtomicU32>,
    lines: Vec<AtomicU32>,
}

impl Counted {
    fn over(memory: Arc<dyn Region>) -> InterceptedMemory<dyn Region, Counted> {
        let each = |bytes: u64| (0..=memory.len() / bytes).map(|_| AtomicU32::new(0)).collect();
        let by = Counted { blocks: each(4096), lines: each(LINE_BYTES) };
        InterceptedMemory { memory, by }
    }

    fn forget(&self) {
        self.blocks.iter().chain(&self.lines).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn count(&self, at: u64, len: usize) {
        let (counts, place) = if len == 4096 { (&self.blocks, at / 4096) } else { (&self.lines, at / LINE_BYTES) };
        counts[usize::try_from(place).expect("it is in the memory")].fetch_add(1, Ordering::Relaxed);
    }
}

impl InterceptMemory for Counted {
    fn write<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        self.count(at, bytes.len());
        memory.write(at, bytes);
    }

    fn stream<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        self.count(at, bytes.len());
        memory.stream(at, bytes);
    }

    fn store_u64<R: Region + ?Sized>(&self, memory: &R, at: u64, word: u64) {
        self.count(at, 8);
        memory.store_u64(at, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_every_block_and_the_most_written_one_counts() {
        let worn = Worn { blocks: vec![0, 0, 1, 1, 1, 97, 0, 0, 0, 0], line_most: 0, write_ns: 0.0 };
        assert_eq!((worn.mean(), worn.most_over_mean()), (10.0, 9.7));
        let shares: Vec<f64> = worn.shares().iter().map(|point| point.median).collect();
        assert_eq!(shares, [60.0, 30.0, 0.0, 0.0, 0.0, 0.0, 10.0, 0.0, 0.0]);
    }

    #[test]
    fn stores_are_counted_where_they_go() -> anyhow::Result<()> {
        let counted = Counted::over(Arc::new(tidegate_media::MappedRegion::anonymous(16 << 10)?));
        counted.stream(4096, &[1; 4096]);
        counted.write(130, &[1; 16]);
        counted.store_u64(136, 1);
        let counted = counted.by;
        assert_eq!((load_relaxed(&counted.blocks[1]), load_relaxed(&counted.lines[2])), (1, 2));
        counted.forget();
        assert!(counted.blocks.iter().chain(&counted.lines).all(|count| load_relaxed(count) == 0));
        Ok(())
    }
}
