//! What a transactional cache replaces: a journaling file system's journal on a cache that keeps its metadata in blocks, on a block device in
//! persistent memory. It is what the transactional cache was published against, under the name Classic.
//!
//! ```text
//!   Journal      each transaction is written twice: to the log, and later to its place
//!   FlashCache   each written block is followed by the block of metadata that describes it
//!   Region       each block is streamed and fenced by itself
//! ```
//!
//! Both are counted here on the same random reads and writes. What a write costs when everything is cached and nothing is cleaned follows from
//! the design, and a test compares it with the counts: a transaction of n blocks has n + 2 log blocks and n blocks in place, each written with
//! a block of metadata, 128 lines and 2 fences together.
//!
//! What the publication leaves open, and the choice made:
//! - *The journal's size*: a twentieth of the file (1 GiB of 20 GiB, what `mke2fs` takes at that size).
//! - *How many blocks go into a transaction*: 64.
//! - *When the cache cleans*: Flashcache's defaults, sets of 512 blocks of which a fifth may be dirty, two blocks cleaned together; the oldest
//!   first, although Flashcache's default is the first that came. Their metadata share a write where they share a block.
//! - *Metadata of clean blocks* is not written: a block read in costs its data alone. Its lines count on both sides, although the publication's
//!   own cache need not flush them: here a block read in is there after a restart, so it is durable before its entry names it. The more reads,
//!   the more this closes the gap.
//! - *Checkpoints* begin when the log is full and free a quarter of it; what was logged again since is left to its newer transaction.

mod flash_cache;
mod journal;

use crate::disk_cache::opened;
use crate::medium;
use crate::subject::Block;
use crate::target::Outcome;
use crate::workload::Effort;
use flash_cache::FlashCache;
use journal::Journal;
use std::sync::Arc;
use tidegate_disk_cache::DiskCache;
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{BlockDevice, Counters, InTurn, Lba, MappedRegion};
use tidegate_nbd::ram::Ram;
use tidegate_sim::Rng;

/// The file's blocks: the published 20 GiB, 128 times smaller.
const FILE_BLOCKS: u64 = 40_960;

/// The cache's blocks: 8 GiB of it.
const CACHE_BLOCKS: u32 = 16_384;

/// The journal's, behind the file.
const JOURNAL_BLOCKS: u64 = FILE_BLOCKS / 20;

/// Blocks of a transaction.
const TOGETHER: usize = 64;

/// Requests before anything is counted, by which both caches are full.
const WARM_REQUESTS: u32 = 120_000;

/// Requests that are counted.
const REQUESTS: u32 = 120_000;

/// What is counted about writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// Lines flushed or streamed to persistent memory.
    Lines,
    /// Blocks written to the disk.
    DiskBlocks,
}

/// A stack that takes transactions.
trait Stack {
    fn read(&mut self, lba: u64, out: &mut Block) -> anyhow::Result<()>;
    fn commit(&mut self, lbas: &[u64], block: &Block) -> anyhow::Result<()>;
    /// So far: what reached the memory, and blocks written to the disk.
    fn counts(&self) -> (Counters, u64);
}

impl Stack for DiskCache<MappedRegion> {
    fn read(&mut self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        Ok(BlockDevice::read(self, Lba(lba), out.bytes_mut())?)
    }

    fn commit(&mut self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        let mut transaction = self.begin();
        lbas.iter().try_for_each(|lba| transaction.write(Lba(*lba), block.bytes()))?;
        Ok(transaction.commit()?)
    }

    fn counts(&self) -> (Counters, u64) {
        (self.region().counters(), self.counters().destaged)
    }
}

impl Stack for Journal<MappedRegion> {
    fn read(&mut self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        Ok(Journal::read(self, lba, out.bytes_mut())?)
    }

    fn commit(&mut self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        let writes: Vec<(u64, &[u8])> = lbas.iter().map(|lba| (*lba, &block.bytes()[..])).collect();
        Ok(Journal::commit(self, &writes, &[])?)
    }

    fn counts(&self) -> (Counters, u64) {
        (self.cache().region().counters(), self.cache().cleaned())
    }
}

/// Random reads and writes, of which `writes` in ten are writes. Returns lines and disk blocks of the requests after the warm-up.
fn run(stack: &mut dyn Stack, writes: u64) -> anyhow::Result<(u64, u64)> {
    let (mut random, mut block) = (Rng::new(7), Block::filled(3));
    let mut requests = |stack: &mut dyn Stack, count: u32| -> anyhow::Result<()> {
        let mut together = Vec::with_capacity(TOGETHER);
        for _ in 0..count {
            let lba = random.below(FILE_BLOCKS);
            if random.below(10) >= writes {
                stack.read(lba, &mut block)?;
            } else if !together.contains(&lba) {
                together.push(lba);
            }
            if together.len() == TOGETHER {
                stack.commit(&together, &block)?;
                together.clear();
            }
        }
        Ok(())
    };
    requests(stack, WARM_REQUESTS)?;
    let (memory, disk) = stack.counts();
    requests(stack, REQUESTS)?;
    let (memory_after, disk_after) = stack.counts();
    Ok(((memory_after - memory).lines_flushed, disk_after - disk))
}

fn ours() -> anyhow::Result<DiskCache<MappedRegion>> {
    const RING: u32 = 4096;
    let disk = InTurn(Ram::new(4096, FILE_BLOCKS));
    let region = medium::region(CachePlan::cut(CACHE_BLOCKS, 4096, FILE_BLOCKS, RING).end())?;
    Ok(opened(region, FILE_BLOCKS, RING, disk)?.0)
}

fn classic() -> anyhow::Result<Journal<MappedRegion>> {
    let disk = Arc::new(Ram::new(4096, FILE_BLOCKS + JOURNAL_BLOCKS));
    let region = medium::region(FlashCache::<MappedRegion>::bytes_for(CACHE_BLOCKS))?;
    Ok(Journal::new(FlashCache::new(region, disk, CACHE_BLOCKS), FILE_BLOCKS, JOURNAL_BLOCKS))
}

/// What `writes` writes among ten requests cost here, as a part of what they cost there.
pub(crate) fn over_classic(_: Effort, count: Count, writes: u64) -> anyhow::Result<Outcome> {
    let (here, there) = (run(&mut ours()?, writes)?, run(&mut classic()?, writes)?);
    Ok(match count {
        Count::Lines => Outcome::count(here.0, there.0),
        Count::DiskBlocks => Outcome::count(here.1, there.1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u64 = TOGETHER as u64;

    /// Everything fits, so nothing is cleaned and nothing checkpointed before the log is full.
    fn roomy() -> Journal<MappedRegion> {
        let disk = Arc::new(Ram::new(4096, 20 * N));
        let region = MappedRegion::anonymous(FlashCache::<MappedRegion>::bytes_for(8192)).unwrap();
        Journal::new(FlashCache::new(region, disk, 8192), 10 * N, 10 * N)
    }

    #[test]
    fn a_transaction_costs_what_the_design_says() {
        let (mut journal, block) = (roomy(), Block::filled(1));
        let lbas: Vec<u64> = (0..N).collect();
        Stack::commit(&mut journal, &lbas, &block).unwrap();
        let (memory, disk) = journal.counts();
        assert_eq!((memory.lines_flushed, memory.fences, disk), ((N + 2) * 128, (N + 2) * 2, 0), "the log alone");
        journal.checkpoint(1).unwrap();
        let (memory, _) = journal.counts();
        assert_eq!(memory.lines_flushed, (2 * N + 3) * 128, "and each block in its place, and where the log begins");
        let writes: Vec<(u64, &[u8])> = vec![(1, &block.bytes()[..])];
        journal.commit(&writes, &[5, 6]).unwrap();
        assert_eq!(journal.counts().0.lines_flushed, (2 * N + 3 + 4) * 128, "revoked blocks take one of the log");
    }

    #[test]
    fn what_is_logged_again_is_put_in_place_once() {
        let (mut journal, block) = (roomy(), Block::filled(1));
        for _ in 0..3 {
            Stack::commit(&mut journal, &[1, 2], &block).unwrap();
        }
        let before = journal.counts().0.lines_flushed;
        journal.checkpoint(3).unwrap();
        assert_eq!(journal.counts().0.lines_flushed - before, (2 + 1) * 128);
    }

    #[test]
    fn what_was_committed_is_read_wherever_it_is() {
        let mut random = Rng::new(1);
        let disk = Arc::new(Ram::new(4096, 3000));
        let region = MappedRegion::anonymous(FlashCache::<MappedRegion>::bytes_for(1024)).unwrap();
        let mut journal = Journal::new(FlashCache::new(region, disk, 1024), 2800, 200);
        let mut model = vec![0_u8; 2800];
        let mut out = Block::filled(0);
        for round in 0..2000_u32 {
            let mut block = Block::filled(0);
            block.bytes_mut().fill(u8::try_from(round % 251).unwrap() + 1);
            let mut lbas: Vec<u64> = (0..8).map(|_| random.below(2800)).collect();
            lbas.sort_unstable();
            lbas.dedup();
            Stack::commit(&mut journal, &lbas, &block).unwrap();
            lbas.iter().for_each(|lba| model[usize::try_from(*lba).unwrap()] = block.bytes()[0]);
            let lba = random.below(2800);
            Stack::read(&mut journal, lba, &mut out).unwrap();
            assert!(out.bytes().iter().all(|found| *found == model[usize::try_from(lba).unwrap()]), "block {lba}");
        }
        assert!(journal.cache().cleaned() > 10_000, "more than fits: {}", journal.cache().cleaned());
    }
}
