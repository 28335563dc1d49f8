//! The topic `rivals`: that those beside the transit cache are no strawmen, and what they pay.
//!
//! Each has to win where its idea works: blocks that fit into the cache, written again and again
//! over memory as slow as Optane, never reach the memory at all. Then the price: a flush after many
//! writes.

use crate::blocks::compare;
use crate::target::{Method, Outcome, Row, Target, Topic};
use crate::write_cache::flush_milliseconds;
use std::sync::Arc;
use std::time::Instant;
use tidegate_baselines::cow::{CowFiles, Shape};
use tidegate_baselines::raw::RawPmem;
use tidegate_baselines::staging::{Coa, Lru, Pmbd, Pmbd70, Rule, Staging};
use tidegate_measure::Pairs;
use tidegate_measure::medium::{self, WALK_BYTES};
use tidegate_measure::subject::{Block, BlockWrites, Subject};
use tidegate_measure::workload::Effort;
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
    about: "the rivals of transit: where each wins, and what those that stage pay",
    rows: &[
        hot("pmbd-hot", "write through PMBD, blocks that fit into it", hot_blocks::<Pmbd>),
        hot("pmbd-70-hot", "write through PMBD-70, blocks that fit into it", hot_blocks::<Pmbd70>),
        hot("lru-hot", "write through LRU, blocks that fit into it", hot_blocks::<Lru>),
        hot("coa-hot", "write through COA, blocks that fit into it", hot_blocks::<Coa>),
        Row {
            name: "nova-long",
            over: "64 KiB write to a copy-on-write file",
            under: "64 KiB write to the BTT",
            target: Target::AtMost(1.0),
            method: Method::Here(long_writes),
        },
        Row {
            name: "dax-small",
            over: "512-byte copy into the memory",
            under: "512-byte change of a block of the BTT, emulated Optane",
            target: Target::AtMost(1.0),
            method: Method::Here(small_writes),
        },
        Row {
            name: "pmem-block",
            over: "4 KiB write to the memory, blocks not atomic",
            under: "write to the BTT alone, emulated Optane",
            target: Target::AtMost(1.0),
            method: Method::Here(raw_writes),
        },
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

/// Writes of 16 blocks, which one log entry makes count where the other logs each block.
struct LongWrites<'a> {
    device: &'a dyn BlockDevice,
    bytes: Vec<u8>,
}

impl LongWrites<'_> {
    const BLOCKS: u32 = 16;

    fn to(device: &dyn BlockDevice) -> LongWrites<'_> {
        LongWrites { device, bytes: vec![7; Self::BLOCKS as usize * 4096] }
    }
}

impl Subject for LongWrites<'_> {
    fn blocks(&self) -> u32 {
        // The same span on both sides.
        u32::try_from(WALK_BYTES / 4096).expect("a few GiB at most") / Self::BLOCKS
    }
    fn step(&self, at: u32, _: &mut Block) {
        self.device.write(Lba(u64::from(at * Self::BLOCKS)), &self.bytes, Durability::Fua).expect("the device writes");
    }
}

fn long_writes(effort: Effort) -> anyhow::Result<Outcome> {
    let btt = medium::btt()?;
    let files = CowFiles::new(medium::region(WALK_BYTES + WALK_BYTES / 8)?, WALK_BYTES / 4096, Shape::NOVA)?;
    let effort = Effort { steps: effort.steps.min(STEPS_MAX), ..effort };
    Ok(compare(effort, &LongWrites::to(&files), &LongWrites::to(&btt)))
}

/// Changes of 512 bytes: in place, or of a whole block that is read and written.
struct SmallChanges<'a> {
    device: &'a dyn BlockDevice,
    blocks: u32,
}

impl Subject for SmallChanges<'_> {
    fn blocks(&self) -> u32 {
        self.blocks
    }
    fn step(&self, at: u32, block: &mut Block) {
        let size = self.device.geometry().block_size as usize;
        if size == 512 {
            let part = &block.bytes()[..512];
            return self.device.write(Lba(u64::from(at) * 8), part, Durability::Fua).expect("the device writes");
        }
        self.device.read(Lba(at.into()), block.bytes_mut()).expect("the device reads");
        block.bytes_mut()[..512].fill(1);
        self.device.write(Lba(at.into()), block.bytes(), Durability::Fua).expect("the device writes");
    }
}

fn small_writes(effort: Effort) -> anyhow::Result<Outcome> {
    let btt = medium::slow_btt("optane")?;
    let raw = RawPmem::new(medium::slow_region("optane", WALK_BYTES)?, 512)?;
    let blocks = u32::try_from(WALK_BYTES / 4096).expect("a few GiB at most");
    let effort = Effort { steps: effort.steps.min(STEPS_MAX), ..effort };
    let changes = |device| SmallChanges { device, blocks };
    Ok(compare(effort, &changes(&raw), &changes(&btt)))
}

fn raw_writes(effort: Effort) -> anyhow::Result<Outcome> {
    let btt = medium::slow_btt("optane")?;
    let raw = RawPmem::new(medium::slow_region("optane", WALK_BYTES)?, 4096)?;
    let effort = Effort { steps: effort.steps.min(STEPS_MAX), ..effort };
    Ok(compare(effort, &BlockWrites(&raw), &BlockWrites(&btt)))
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
