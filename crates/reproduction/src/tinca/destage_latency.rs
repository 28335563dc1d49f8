//! The effect of destaging on a writer: how long its durable writes take while the disk is kept
//! busy, against the same writes while no block is destaged; and how evenly writes go on that come
//! faster than the disk.
//!
//! First the disk's speed is measured: how many blocks are destaged in a second while writers ask
//! for as much as they can. Then writes come at a part of that speed, at random times, to a cache
//! that is full and as dirty as 90 % of its limit.

use super::super::Scale;
use super::super::figure::{Chart, Figure, Point, Series};
use super::disks;
use super::mix::{self, Asked, Work};
use super::testbed::{Kind, Setup, Testbed};
use super::{FIO, frame, point, series};
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_baselines::classic::{CACHE_BLOCKS, FILE_BLOCKS, Stack, TOGETHER};
use tidegate_measure::subject::Block;
use tidegate_sim::Rng;
use tidegate_virtual_cores::{now_ns, pass_time};

/// Writers, fewer than the platform has cores.
const WRITERS: u32 = 4;

/// Parts of a run that are counted apart.
const WINDOWS: usize = 20;

/// When a write was due, when it began, and when it was durable, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Write {
    due: u64,
    begin: u64,
    end: u64,
}

/// Blocks that the cache destages in a second when its writers do nothing but write.
fn destaged_per_second(scale: Scale) -> anyhow::Result<f64> {
    let measured = if scale == Scale::FULL { 60_000 } else { 20_000 };
    let asked = Asked { work: Work::Random(10), users: WRITERS, filling: 40_000, warm: measured / 4, measured };
    let taken = mix::run(Kind::TIDEGATE, &FIO, asked)?;
    Ok(taken.done.disk_blocks as f64 * 1e9 / taken.ns as f64)
}

/// Whether blocks are destaged beside the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destaging {
    /// The cache begins as dirty as 90 % of its cap, and destages.
    Beside,
    /// The cache begins clean, and does not.
    Idle,
}

/// Single blocks, written at random times, `per_second` of them. Fewer than the cache may have
/// dirty.
fn writes(setup: &Setup, destaging: Destaging, per_second: f64) -> anyhow::Result<Vec<Write>> {
    let testbed = Testbed::of(Kind::TIDEGATE, setup)?;
    let dirty = if destaging == Destaging::Beside { u64::from(FIO.limits().dirty_blocks) * 9 / 10 } else { 0 };
    fill(&*testbed.stack, dirty)?;
    let testbed = if destaging == Destaging::Idle { testbed.alone() } else { testbed };
    let all = Arc::new(Mutex::new(Vec::new()));
    let (of_users, each) = (all.clone(), FIO.limits().dirty_blocks * 8 / 10 / WRITERS);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time between two writes")]
    let gap_ns = (1e9 * f64::from(WRITERS) / per_second) as u64;
    testbed.run(WRITERS, move |user, stack| {
        let written = write_in_time(stack, user, each, gap_ns);
        of_users.lock().unwrap_or_else(PoisonError::into_inner).extend(written);
    })?;
    let written = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(written)
}

/// Blocks from 0 on are dirty, and the rest of the cache is full of others.
fn fill(stack: &dyn Stack, dirty: u64) -> anyhow::Result<()> {
    let mut block = Block::filled(9);
    let all: Vec<u64> = (0..dirty).collect();
    all.chunks(TOGETHER).try_for_each(|together| stack.commit(together, &block))?;
    (dirty..u64::from(CACHE_BLOCKS)).try_for_each(|lba| stack.read(lba, &mut block))
}

fn write_in_time(stack: &dyn Stack, user: u32, count: u32, gap_ns: u64) -> Vec<Write> {
    let (mut random, block) = (Rng::new(u64::from(user) + 3), Block::filled(4));
    let mut due = now_ns();
    let write = |_| {
        due += random.below(2 * gap_ns);
        pass_time(due.saturating_sub(now_ns()));
        let begin = now_ns();
        stack.commit(&[random.below(FILE_BLOCKS)], &block).expect("the disk works");
        Write { due, begin, end: now_ns() }
    };
    (0..count).map(write).collect()
}

/// The time that one of a thousand writes exceeds, from when it was due, and the longest time of
/// one from its beginning.
fn slow_ns(writes: &[Write]) -> [f64; 2] {
    let mut times: Vec<u64> = writes.iter().map(|write| write.end - write.due).collect();
    times.sort_unstable();
    let last = times.len() - 1;
    let longest = writes.iter().map(|write| write.end - write.begin).max().unwrap_or(0);
    [times[last - last / 1000] as f64, longest as f64]
}

/// Writes of a second in the mean and in the slowest of the windows.
fn evenness(writes: &[Write]) -> [f64; 2] {
    let begin = writes.iter().map(|write| write.begin).min().unwrap_or(0);
    let end = writes.iter().map(|write| write.end).max().unwrap_or(0);
    let window_ns = (end - begin) / WINDOWS as u64 + 1;
    let mut windows = [0_u32; WINDOWS];
    for write in writes {
        windows[usize::try_from((write.end - begin) / window_ns).expect("one of the windows")] += 1;
    }
    // Writers do not all end at once: what the last window has tells nothing.
    let slowest = windows[..WINDOWS - 1].iter().min().map_or(0, |least| *least);
    let seconds = window_ns as f64 / 1e9;
    [writes.len() as f64 / (seconds * WINDOWS as f64), f64::from(slowest) / seconds]
}

/// How long writes take below the disk's speed, and how even they are above it.
pub fn destage_latency(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let speed = destaged_per_second(scale)?;
    Ok(vec![below(scale, speed)?, above(scale, speed)?])
}

/// The series of the first figure: what 999 writes of a thousand do not exceed, while the cache
/// destages.
pub const BESIDE: &str = "99.9th percentile, destaging";
/// What they do not exceed while it does not.
pub const IDLE: &str = "99.9th percentile, not destaging";
/// The longest write, while the cache destages.
pub const LONGEST: &str = "longest, destaging";
/// What a write takes on the disk.
pub const DISK: &str = "a write of the disk";

fn below(scale: Scale, speed: f64) -> anyhow::Result<Figure> {
    let loads: &[u32] = if scale == Scale::FULL { &[10, 20, 40, 60, 80, 90] } else { &[80] };
    let title = "Durable writes of a block while the disk is kept busy";
    let mut figure = frame("pace", "beyond the paper", title, Chart::Lines, "ns");
    figure.baseline = Some(IDLE.to_owned());
    let disk = disks::write_ns()? as f64;
    let mut points: [Vec<Point>; 4] = Default::default();
    for load in loads {
        let per_second = speed * f64::from(*load) / 100.0;
        let [beside, longest] = slow_ns(&writes(&FIO, Destaging::Beside, per_second)?);
        let [idle, _] = slow_ns(&writes(&FIO, Destaging::Idle, per_second)?);
        for (points, value) in points.iter_mut().zip([idle, beside, longest, disk]) {
            points.push(point(load.to_string(), value, None));
        }
    }
    let labels = [IDLE, BESIDE, LONGEST, DISK];
    figure.series = labels.into_iter().zip(points).map(|(label, points)| series(label, points)).collect();
    figure.notes.push(format!(
        "Places are the load in % of {speed:.0} writes a second, what the cache destages when its writers do nothing but write. {WRITERS} writers, single blocks at \
         random times. Percentiles are from when a write is due, the longest from its beginning. Destaging, the cache begins as dirty as 90 % of what it may be."
    ));
    Ok(figure)
}

/// The series of the second figure: writes a second in the mean.
pub const MEAN: &str = "mean";
/// Writes a second in the slowest twentieth of the time.
pub const SLOWEST: &str = "slowest twentieth of the time";

fn above(scale: Scale, speed: f64) -> anyhow::Result<Figure> {
    let loads: &[u32] = if scale == Scale::FULL { &[110, 130, 150, 200, 400] } else { &[150] };
    let title = "Writes that come faster than the disk";
    let mut figure = frame("pace-above", "beyond the paper", title, Chart::Lines, "writes per second");
    figure.baseline = Some(MEAN.to_owned());
    let mut points: [Vec<Point>; 2] = Default::default();
    for load in loads {
        let written = writes(&FIO, Destaging::Beside, speed * f64::from(*load) / 100.0)?;
        for (points, value) in points.iter_mut().zip(evenness(&written)) {
            points.push(point(load.to_string(), value, None));
        }
    }
    let all: Vec<Series> =
        [MEAN, SLOWEST].into_iter().zip(points).map(|(label, points)| series(label, points)).collect();
    figure.series = all;
    figure.notes.push(format!(
        "Places are the load in % of {speed:.0} writes a second, as above. A twentieth of the time, but for the last, in which writers end one after the other."
    ));
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_the_write_before_counts_in_percentiles_alone() {
        let mut writes = vec![Write { due: 0, begin: 0, end: 20 }; 2000];
        assert_eq!(slow_ns(&writes), [20.0, 20.0]);
        writes[..3].fill(Write { due: 0, begin: 70, end: 80 });
        assert_eq!(slow_ns(&writes), [80.0, 20.0]);
    }

    #[test]
    fn a_standstill_is_a_slow_window() {
        let write = |end: u64| Write { due: end - 10, begin: end - 10, end };
        let even: Vec<Write> = (1..=2000).map(|nth| write(nth * 100)).collect();
        let [mean, slowest] = evenness(&even);
        assert!(slowest > 0.98 * mean, "{slowest} of {mean}");
        let stalled: Vec<Write> =
            even.iter().map(|one| write(one.end + if one.end > 60_000 { 30_000 } else { 0 })).collect();
        assert!(evenness(&stalled)[1] < 1.0);
    }
}
