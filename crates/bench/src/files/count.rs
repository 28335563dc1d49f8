//! The cost of a sync to the memory: lines and fences, exactly, and whether it matters how much is
//! out of sync beside it.

use super::probe::{Pattern, Probe};
use super::testbed::{Storage, Testbed, missing};
use crate::served::server;
use crate::target::Outcome;
use anyhow::Context;
use std::process::Command;
use std::time::Instant;
use tidegate_disk_cache::{DiskCache, FormatSpec, NoDisk};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_measure::disk_caches::opened;
use tidegate_measure::medium;
use tidegate_measure::programs::said;
use tidegate_measure::subject::Block;
use tidegate_measure::workload::Effort;
use tidegate_media::{InTurn, Lba, MappedRegion};
use tidegate_sim::Rng;

/// Appends that are counted: some fill a block, and some are there while the disk catches up.
const APPENDS: u32 = 4000;

/// MiB of the pool for them.
const POOL_MIB: u32 = 64;

/// Blocks that are out of sync.
const BESIDE: [u32; 3] = [512, 16 << 10, 1 << 20];

/// Blocks of a sync.
const DIRTY: usize = 8;

/// Syncs in a sample.
const SYNCS: u32 = 2000;

/// Lines flushed by an append and its sync.
pub(super) fn append_lines(_: Effort) -> anyhow::Result<Outcome> {
    appended("lines_flushed")
}

/// Fences of an append and its sync.
pub(super) fn append_fences(_: Effort) -> anyhow::Result<Outcome> {
    appended("fences")
}

fn appended(counter: &str) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let testbed = Testbed::new(Storage::UnderRun(POOL_MIB))?;
    let mut probe = Probe::start(&testbed, Pattern::Append)?;
    let before = told_by_status(&testbed, counter)?;
    probe.nanoseconds(APPENDS)?;
    Ok(Outcome::count(told_by_status(&testbed, counter)? - before, APPENDS.into()))
}

/// A number of the pool, as the supervisor tells it.
fn told_by_status(testbed: &Testbed, counter: &str) -> anyhow::Result<u64> {
    let pool = testbed.pool().context("only a run has a status")?;
    let status = said(Command::new(server::program()?).arg("status").arg(pool).arg("--json"))?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    status["pool"][counter].as_u64().with_context(|| format!("no {counter} in {status}"))
}

/// A pool's cache with blocks out of sync, as a run has it; nobody brings them to a disk.
struct OutOfSync {
    cache: DiskCache<MappedRegion>,
    blocks: u32,
    random: Rng,
}

impl OutOfSync {
    fn new(blocks: u32) -> anyhow::Result<OutOfSync> {
        let disk_blocks = u64::from(blocks);
        let plan = CachePlan::cut(blocks + FormatSpec::RING_SLOTS, 4096, disk_blocks, FormatSpec::RING_SLOTS);
        let disk = InTurn(NoDisk::new(disk_blocks, 4096));
        let (cache, _) = opened(medium::region(plan.end())?, disk_blocks, FormatSpec::RING_SLOTS, disk)?;
        let cached = OutOfSync { cache, blocks, random: Rng::new(1) };
        let all: Vec<u64> = (0..disk_blocks).collect();
        all.chunks(64).try_for_each(|together| cached.sync(together))?;
        anyhow::ensure!(cached.cache.fill().dirty == blocks, "{:?}", cached.cache.fill());
        Ok(cached)
    }

    fn sync(&self, blocks: &[u64]) -> anyhow::Result<()> {
        let block = Block::filled(3);
        let mut transaction = self.cache.begin();
        for lba in blocks {
            transaction.write(Lba(*lba), block.bytes())?;
        }
        Ok(transaction.commit()?)
    }

    /// Blocks below `end`, one of each eighth.
    fn some(&mut self, end: u32) -> [u64; DIRTY] {
        let eighth = u64::from(end) / DIRTY as u64;
        std::array::from_fn(|place| place as u64 * eighth + self.random.below(eighth))
    }

    /// Lines flushed by syncs of the same blocks in the same order, however many there are. Before
    /// that, the ring is all about such blocks.
    fn lines(&mut self) -> anyhow::Result<u64> {
        for _ in 0..FormatSpec::RING_SLOTS as usize / DIRTY {
            let blocks = self.some(BESIDE[0]);
            self.sync(&blocks)?;
        }
        let before = self.cache.region().counters();
        for _ in 0..SYNCS {
            let blocks = self.some(BESIDE[0]);
            self.sync(&blocks)?;
        }
        Ok((self.cache.region().counters() - before).lines_flushed)
    }

    /// Nanoseconds of a sync of any blocks.
    fn nanoseconds(&mut self) -> anyhow::Result<f64> {
        let began = Instant::now();
        for _ in 0..SYNCS {
            let blocks = self.some(self.blocks);
            self.sync(&blocks)?;
        }
        Ok(began.elapsed().as_nanos() as f64 / f64::from(SYNCS))
    }
}

/// The lines of a sync beside the most blocks, over those beside the fewest.
pub(super) fn lines_beside_many(_: Effort) -> anyhow::Result<Outcome> {
    let few = OutOfSync::new(BESIDE[0])?.lines()?;
    Ok(Outcome::count(OutOfSync::new(BESIDE[2])?.lines()?, few))
}

/// The longest time over the shortest, of samples in turn.
pub(super) fn time_beside_many(effort: Effort) -> anyhow::Result<Outcome> {
    let mut beside = BESIDE.iter().map(|blocks| OutOfSync::new(*blocks)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut spreads = Vec::new();
    for _ in 0..effort.pairs {
        let times = beside.iter_mut().map(OutOfSync::nanoseconds).collect::<anyhow::Result<Vec<_>>>()?;
        let (least, most) =
            times.iter().fold((f64::MAX, 0.0_f64), |(least, most), time| (least.min(*time), most.max(*time)));
        spreads.push(most / least);
    }
    Ok(Outcome::figure(&spreads, "×"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_sync_flushes_as_many_lines_beside_many_blocks_as_beside_few() {
        let of = |blocks| OutOfSync::new(blocks).unwrap().lines().unwrap();
        assert_eq!(of(512), of(8192));
    }
}
