//! The topic `rivals`: that the staging caches beside the transit cache are no strawmen, and what they pay.
//!
//! Each has to win where its idea works: blocks that fit into the cache, written again and again over memory as slow as Optane, never
//! reach the memory at all. Then the price: a flush after many writes.

use crate::blocks::compare;
use crate::measure::Pairs;
use crate::medium;
use crate::staging::{Coa, Lru, Pmbd, Pmbd70, Rule, Staging};
use crate::subject::{Block, Subject};
use crate::target::{Method, Outcome, Row, Target, Topic};
use crate::transit::flush_milliseconds;
use crate::workload::Effort;
use std::sync::Arc;
use std::time::Instant;
use tidegate_media::{BlockDevice, Durability, Lba};
use tidegate_sim::Rng;

/// Slots of the caches: 64 MiB.
const SLOTS: u32 = 16 << 10;

/// Blocks that are written again and again: half of the cache.
const HOT_BLOCKS: u32 = SLOTS / 2;

/// Writes before a flush: 32 MiB.
const WRITES_BEFORE_FLUSH: u64 = 8 << 10;

/// Steps of a sample at most: the writes of an emulated medium take their time.
const STEPS_MAX: u32 = 20_000;

/// The topic's table.
pub const TOPIC: Topic = Topic {
    name: "rivals",
    about: "staging caches, the rivals of transit: where each wins, and what it pays",
    rows: &[
        hot("pmbd-hot", "write through PMBD, blocks that fit into it", hot_blocks::<Pmbd>),
        hot("pmbd-70-hot", "write through PMBD-70, blocks that fit into it", hot_blocks::<Pmbd70>),
        hot("lru-hot", "write through LRU, blocks that fit into it", hot_blocks::<Lru>),
        hot("coa-hot", "write through COA, blocks that fit into it", hot_blocks::<Coa>),
        flush("pmbd-flush", "flush of PMBD after 32 MiB of random writes", flush_of::<Pmbd>),
        flush("lru-flush", "flush of LRU after 32 MiB of random writes", flush_of::<Lru>),
        flush("coa-flush", "flush of COA after 32 MiB of random writes", flush_of::<Coa>),
    ],
};

const fn hot(name: &'static str, over: &'static str, measure: fn(Effort) -> anyhow::Result<Outcome>) -> Row {
    Row {
        name,
        over,
        under: "write to the BTT alone, emulated Optane",
        target: Target::AtMost(1.0),
        method: Method::Here(measure),
    }
}

const fn flush(name: &'static str, over: &'static str, measure: fn(Effort) -> anyhow::Result<Outcome>) -> Row {
    Row {
        name,
        over,
        under: "flush of the transit cache after as much",
        target: Target::AtLeast(5.0),
        method: Method::Here(measure),
    }
}

/// Writes of a device's first blocks only, not durable before a flush.
struct HotWrites<'a>(&'a dyn BlockDevice);

impl Subject for HotWrites<'_> {
    fn blocks(&self) -> u32 {
        HOT_BLOCKS
    }
    fn step(&self, at: u32, block: &mut Block) {
        self.0.write(Lba(u64::from(at)), block.bytes(), Durability::Volatile).expect("the device writes");
    }
}

fn hot_blocks<P: Rule + 'static>(effort: Effort) -> anyhow::Result<Outcome> {
    let btt = Arc::new(medium::slow_btt("optane")?);
    let cache = Staging::<P>::new(btt.clone(), SLOTS)?;
    let effort = Effort { steps: effort.steps.min(STEPS_MAX), ..effort };
    Ok(compare(effort, &HotWrites(&cache), &HotWrites(&*btt)))
}

fn flush_of<P: Rule + 'static>(effort: Effort) -> anyhow::Result<Outcome> {
    let staging = Staging::<P>::new(Arc::new(medium::btt()?), SLOTS)?;
    let transit = flush_milliseconds(SLOTS, WRITES_BEFORE_FLUSH)?;
    let mut random = Rng::new(0);
    let over = || flush_after_writes(&staging, &mut random);
    Ok(Outcome::ratio(&Pairs::try_alternate(effort.pairs, over, || Ok::<_, anyhow::Error>(transit()))?, "ms"))
}

/// Milliseconds of a flush after random writes over all blocks.
fn flush_after_writes(device: &dyn BlockDevice, random: &mut Rng) -> anyhow::Result<f64> {
    let block = Block::filled(6);
    for _ in 0..WRITES_BEFORE_FLUSH {
        let lba = random.below(device.geometry().blocks);
        device.write(Lba(lba), block.bytes(), Durability::Volatile)?;
    }
    let begin = Instant::now();
    device.flush()?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}
