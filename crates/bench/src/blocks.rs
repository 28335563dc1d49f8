//! The topic `blocks`: the cost of an atomic block in persistent memory over the bare bytes.

use crate::target::{Method, Outcome, Row, Target, Topic};
use tidegate_btt::Btt;
use tidegate_measure::Pairs;
use tidegate_measure::medium::{self, DATA_START, WALK_BYTES};
use tidegate_measure::subject::{Bare, BlockWrites, StreamedCopies, Subject, sweep};
use tidegate_measure::workload::{self, Effort, Walk};
use tidegate_media::{Counters, MappedRegion};

/// The table.
pub const TOPIC: Topic = Topic {
    name: "blocks",
    about: "the block translation table: 4 KiB blocks, random over 1 GiB",
    rows: &[
        Row {
            name: "write",
            over: "BTT write, 1 thread",
            under: "streamed 4 KiB copy + fence",
            target: Target::AtMost(1.6),
            method: Method::Here(write),
        },
        Row {
            name: "floor-libpmem",
            over: "streamed 4 KiB copy + fence",
            under: "libpmem's pmem_memcpy_persist",
            target: Target::AtMost(1.2),
            method: Method::Rivals,
        },
        Row {
            name: "write-libpmemblk",
            over: "libpmemblk write, 1 thread",
            under: "BTT write, 1 thread",
            target: Target::AtLeast(2.2),
            method: Method::Rivals,
        },
        Row {
            name: "write-scaling",
            over: "BTT write, 2 threads ÷ 1",
            under: "streamed 4 KiB copy + fence, 2 threads ÷ 1",
            target: Target::AtLeast(0.95),
            method: Method::Here(write_scaling),
        },
        Row {
            name: "read",
            over: "BTT read, 1 thread",
            under: "memcpy of 4 KiB out",
            target: Target::AtMost(1.3),
            method: Method::Rivals,
        },
        Row {
            name: "fences",
            over: "fences",
            under: "BTT write, 1 thread",
            target: Target::AtMost(2.0),
            method: Method::Here(|effort| counted(effort, 1, |counters| counters.fences)),
        },
        Row {
            name: "fences-2-threads",
            over: "fences",
            under: "BTT write, 2 threads",
            target: Target::AtMost(2.1),
            method: Method::Here(|effort| counted(effort, 2, |counters| counters.fences)),
        },
        Row {
            name: "lines",
            over: "lines flushed",
            under: "BTT write, 1 thread",
            target: Target::AtMost(67.0),
            method: Method::Here(|effort| counted(effort, 1, |counters| counters.lines_flushed)),
        },
        Row {
            name: "mirror-write",
            over: "BTT write to a mirror, 1 thread",
            under: "BTT write, 1 thread",
            target: Target::AtMost(2.1),
            method: Method::Here(mirror_write),
        },
        Row {
            name: "mirror-floor",
            over: "BTT write to a mirror, 1 thread",
            under: "two streamed 4 KiB copies, each fenced",
            target: Target::AtMost(1.6),
            method: Method::Here(mirror_over_floor),
        },
        Row {
            name: "mirror-fences",
            over: "fences of both sides",
            under: "BTT write to a mirror, 1 thread",
            target: Target::AtMost(4.0),
            method: Method::Here(|effort| counted_on_mirror(effort, |counters| counters.fences)),
        },
        Row {
            name: "mirror-lines",
            over: "lines flushed on both sides",
            under: "BTT write to a mirror, 1 thread",
            target: Target::AtMost(134.0),
            method: Method::Here(|effort| counted_on_mirror(effort, |counters| counters.lines_flushed)),
        },
    ],
};

fn write(effort: Effort) -> anyhow::Result<Outcome> {
    let btt = medium::btt()?;
    Ok(compare(effort, &BlockWrites(&btt), &StreamedCopies(data_of(&btt))))
}

/// The bytes of the table's region that hold the data of its blocks.
fn data_of(btt: &Btt<MappedRegion>) -> Bare<'_, MappedRegion> {
    Bare::part(btt.region(), DATA_START, WALK_BYTES)
}

/// The time of one subject over that of another, each on one thread.
pub fn compare(effort: Effort, over: &dyn Subject, under: &dyn Subject) -> Outcome {
    sweep(over);
    sweep(under);
    let (mut over_walk, mut under_walk) = (Walk::new(effort.steps), Walk::new(effort.steps));
    let over = || over_walk.take(over, 1).nanoseconds_per_step;
    let under = || under_walk.take(under, 1).nanoseconds_per_step;
    Outcome::ratio(&Pairs::alternate(effort.pairs, over, under), "ns")
}

fn write_scaling(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = second_core_missing() {
        return Ok(missing);
    }
    let btt = medium::btt()?;
    let (writes, copies) = (BlockWrites(&btt), StreamedCopies(data_of(&btt)));
    sweep(&writes);
    sweep(&copies);
    let pairs = Pairs::alternate(effort.pairs, || scaling(effort, &writes), || scaling(effort, &copies));
    Ok(Outcome::ratio(&pairs, "×"))
}

/// Throughput of two threads together over that of one alone.
pub fn scaling(effort: Effort, subject: &dyn Subject) -> f64 {
    let mut walk = Walk::new(effort.steps);
    let alone = walk.take(subject, 1).nanoseconds_per_step;
    alone / walk.take(subject, 2).nanoseconds_per_step
}

fn mirror_write(effort: Effort) -> anyhow::Result<Outcome> {
    let (mirrored, plain) = (medium::mirrored_btt()?, medium::btt()?);
    Ok(compare(effort, &BlockWrites(&mirrored), &BlockWrites(&plain)))
}

/// Compares a write to a mirror with its bytes alone, streamed to both sides.
fn mirror_over_floor(effort: Effort) -> anyhow::Result<Outcome> {
    let mirrored = medium::mirrored_btt()?;
    let both = Bare::part(mirrored.region(), DATA_START, WALK_BYTES);
    Ok(compare(effort, &BlockWrites(&mirrored), &StreamedCopies(both)))
}

/// What both sides of a mirror count per write of one thread.
fn counted_on_mirror(effort: Effort, events: fn(&Counters) -> u64) -> anyhow::Result<Outcome> {
    let mirrored = medium::mirrored_btt()?;
    let writes = BlockWrites(&mirrored);
    sweep(&writes);
    let mut walk = Walk::new(effort.steps);
    // The first walk settles what the sweep, on another lane, left unfenced.
    walk.take(&writes, 1);
    let count = || mirrored.region().sides().into_iter().flatten().map(|side| events(&side.counters())).sum::<u64>();
    let before = count();
    let sample = walk.take(&writes, 1);
    Ok(Outcome::count(count() - before, sample.steps))
}

/// What the region counts per write of `workers` threads.
fn counted(effort: Effort, workers: usize, events: fn(&Counters) -> u64) -> anyhow::Result<Outcome> {
    if workers > 1
        && let Some(missing) = second_core_missing()
    {
        return Ok(missing);
    }
    let btt = medium::btt()?;
    sweep(&BlockWrites(&btt));
    let mut walk = Walk::new(effort.steps);
    // The first walk settles what the sweep, on another lane, left unfenced.
    walk.take(&BlockWrites(&btt), workers);
    let before = btt.region().counters();
    let sample = walk.take(&BlockWrites(&btt), workers);
    Ok(Outcome::count(events(&(btt.region().counters() - before)), sample.steps))
}

/// What stands for a figure of two threads on a machine of one core.
pub fn second_core_missing() -> Option<Outcome> {
    (workload::cores().len() < 2).then(|| Outcome::missing("a second core", "run on a machine with two cores"))
}
