//! The topic `append-log`: bytes appended to a log and synced, over the bare bytes.
//!
//! Both sides go through the same memory from its beginning to its end, over and over. The log
//! drops what is behind it whenever its window is full, so nothing is written below: that is the
//! work of a thread of its own.

use crate::blocks::compare;
use crate::target::{Outcome, Row, Target, Topic};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_append_log::{
    AppendLog, CHUNK_BYTES_DEFAULT, LogError, Making, OnDamage, REGION_BYTES_DEFAULT, WrittenBack, create,
};
use tidegate_measure::medium;
use tidegate_measure::subject::{Block, Subject};
use tidegate_measure::workload::{Effort, Walk};
use tidegate_media::{Counters, MappedRegion, Region};
use tidegate_sim::Disk;

/// The table.
pub const TOPIC: Topic = Topic {
    name: "append-log",
    about: "the append-only log: bytes appended and synced, 1 thread",
    rows: &[
        Row::here(
            "log-sync-100",
            "100 bytes appended and synced",
            "streamed copy of 100 bytes + fence",
            Target::AtMost(2.6),
            over_floor::<100>,
        ),
        Row::here(
            "log-sync-4k",
            "4 KiB appended and synced",
            "streamed copy of 4 KiB + fence",
            Target::AtMost(2.2),
            over_floor::<4096>,
        ),
        Row::here("log-fences", "fences", "100 bytes appended and synced", Target::AtMost(2.01), |effort| {
            counted(effort, |counters| counters.fences)
        }),
        Row::here("log-lines", "lines flushed", "100 bytes appended and synced", Target::AtMost(4.0), |effort| {
            counted(effort, |counters| counters.lines_flushed)
        }),
    ],
};

/// Appends of so many bytes, each synced.
struct Appends<const BYTES: usize>(AppendLog<Arc<MappedRegion>>);

impl<const BYTES: usize> Subject for Appends<BYTES> {
    fn blocks(&self) -> u32 {
        1
    }

    fn step(&self, _: u32, block: &mut Block) {
        let bytes = &block.bytes()[..BYTES];
        while let Err(error) = self.0.append(bytes) {
            assert!(matches!(error, LogError::Full { .. }), "{error}");
            self.0.drop_behind(self.0.durable_to()).expect("the region takes every store");
            while self.0.write_back_step().expect("nothing is written") == WrittenBack::Chunk {}
        }
        self.0.sync().expect("the region takes every store");
    }
}

/// The floor: so many bytes streamed behind the last ones, and a fence.
struct Copies<const BYTES: usize> {
    region: MappedRegion,
    /// Relaxed: one thread uses it.
    next: AtomicU64,
}

impl<const BYTES: usize> Subject for Copies<BYTES> {
    fn blocks(&self) -> u32 {
        1
    }

    fn step(&self, _: u32, block: &mut Block) {
        let next = self.next.load(Ordering::Relaxed);
        let at = if next + BYTES as u64 > self.region.len() { 0 } else { next };
        self.next.store(at + BYTES as u64, Ordering::Relaxed);
        self.region.stream(at, &block.bytes()[..BYTES]);
        self.region.fence().expect("the region takes every store");
    }
}

/// A log of the usual size in memory, and the memory.
fn log<const BYTES: usize>() -> anyhow::Result<(Appends<BYTES>, Arc<MappedRegion>)> {
    let region = Arc::new(medium::region(REGION_BYTES_DEFAULT)?);
    let below = Arc::new(Disk::new(1 << 28, 4096));
    create(&region, &below, &Making { chunk_bytes: CHUNK_BYTES_DEFAULT, uuid: [7; 16], below: [0; 32] })?;
    Ok((Appends(AppendLog::open(Arc::clone(&region), below, OnDamage::Refuse)?), region))
}

/// Goes through all memory of `subject` once.
fn warm<const BYTES: usize>(subject: &dyn Subject) {
    let mut block = Block::filled(0);
    (0..REGION_BYTES_DEFAULT / BYTES as u64).for_each(|_| subject.step(0, &mut block));
}

fn over_floor<const BYTES: usize>(effort: Effort) -> anyhow::Result<Outcome> {
    let (log, _) = log::<BYTES>()?;
    let copies = Copies::<BYTES> { region: medium::region(REGION_BYTES_DEFAULT)?, next: AtomicU64::new(0) };
    warm::<BYTES>(&log);
    warm::<BYTES>(&copies);
    Ok(compare(effort, &log, &copies))
}

/// What the region counts per 100 bytes appended and synced.
fn counted(effort: Effort, events: fn(&Counters) -> u64) -> anyhow::Result<Outcome> {
    let (log, region) = log::<100>()?;
    let mut walk = Walk::new(effort.steps);
    let before = region.counters();
    let sample = walk.take(&log, 1);
    Ok(Outcome::count(events(&(region.counters() - before)), sample.steps))
}
