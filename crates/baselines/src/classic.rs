//! What a transactional cache replaces: a journaling file system's journal on a cache that keeps
//! its metadata in blocks, on a block device in persistent memory. It is what the transactional
//! cache was published against, under the name Classic.
//!
//! ```text
//!   Journal      each transaction is written twice: to the log, and later to its place
//!   FlashCache   each written block is followed by the block of metadata that describes it
//!   Region       each block is streamed and fenced by itself
//! ```
//!
//! Both are counted here on the same random reads and writes. What a write costs when everything is
//! cached and nothing is cleaned follows from the design, and a test compares it with the counts: a
//! transaction of n blocks has n + 2 log blocks and n blocks in place, each written with a block of
//! metadata, 128 lines and 2 fences together.
//!
//! What the publication leaves open, and the choice made:
//! - *The journal's size*: 128 MiB, what the `mke2fs` of that time (1.42) takes for every large
//!   file system.
//! - *How many blocks go into a transaction*: 64; of those who ask at the same time, all, up to a
//!   quarter of the journal.
//! - *How the cache replaces and cleans*: Flashcache's defaults, by its source: sets of 512 blocks
//!   of which a fifth may be dirty, first in, first out. Metadata of blocks cleaned together share
//!   a write where they share a block.
//! - *What is submitted together*: the blocks of a transaction but its commit block, and those that
//!   a checkpoint puts in place, as JBD2 does it.
//! - *Flushes of the disk*: none, as in Flashcache. Classic gets for nothing what a disk with a
//!   volatile cache would take for them.
//! - *Metadata of clean blocks* is not written: a block read in costs its data alone. Its lines
//!   count on both sides, although the publication's own cache need not flush them: here a block
//!   read in is there after a restart, so it is durable before its entry names it. The more reads,
//!   the more this closes the gap.
//! - *Checkpoints* go on beside the commits when half of the log is full, as a file system's
//!   writeback has it; a commit that finds no room frees a quarter of it by itself. What was logged
//!   again since is left to its newer transaction.

mod flash_cache;
mod journal;

pub use flash_cache::{Ablations, FlashCache};
pub use journal::{Bytes, Journal};
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_disk_cache::{DiskCache, Mode, Options};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_measure::disk_caches::opened_with;
use tidegate_measure::medium;
use tidegate_measure::subject::Block;
use tidegate_media::{BlockDevice, InTurn, Lba, MappedRegion, Region};
use tidegate_nbd_client::ram::Ram;
use tidegate_policy::admit::{Admit, Doorkeeper};
use tidegate_policy::writeback::destage::Caps;
use tidegate_sim::Rng;
use tidegate_sim::cost::TimedRegion;
use tidegate_virtual_cores::{is_inside, pass_time};

/// The file's blocks: the published 20 GiB, 128 times smaller.
pub const FILE_BLOCKS: u64 = 40_960;

/// The cache's blocks: 8 GiB of it.
pub const CACHE_BLOCKS: u32 = 16_384;

/// The elements of the transactional cache's ring: 1 MiB of it at 32 bytes, rounded up.
pub const RING: u32 = 4096;

/// The journal's, behind the file: 128 MiB of it.
pub const JOURNAL_BLOCKS: u64 = 256;

/// Blocks of a transaction.
pub const TOGETHER: usize = 64;

/// Requests before anything is counted, by which both caches are full.
const WARM_REQUESTS: u32 = 120_000;

/// Requests that are counted.
pub const REQUESTS: u32 = 120_000;

/// What a stack did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Lines flushed or streamed to persistent memory.
    pub lines: u64,
    /// Fences.
    pub fences: u64,
    /// Blocks written to the disk.
    pub disk_blocks: u64,
    /// Blocks written to the cache.
    pub writes: u64,
    /// Those of them that were cached already.
    pub write_hits: u64,
}

impl std::ops::Sub for Done {
    type Output = Done;

    fn sub(self, before: Done) -> Done {
        Done {
            lines: self.lines - before.lines,
            fences: self.fences - before.fences,
            disk_blocks: self.disk_blocks - before.disk_blocks,
            writes: self.writes - before.writes,
            write_hits: self.write_hits - before.write_hits,
        }
    }
}

/// A stack that takes transactions.
pub trait Stack {
    /// What was committed last.
    fn read(&self, lba: u64, out: &mut Block) -> anyhow::Result<()>;
    /// Puts `block` in place of all of `lbas`, or of none. Durable on return.
    fn commit(&self, lbas: &[u64], block: &Block) -> anyhow::Result<()>;
    /// What it did so far.
    fn done(&self) -> Done;
    /// A little of what goes on beside requests. False if there is nothing to do.
    fn step(&self) -> anyhow::Result<bool>;
}

/// What counts lines and fences at the bottom of a stack.
pub trait Counted: Region {
    /// Lines and fences so far.
    fn lines_and_fences(&self) -> (u64, u64);
}

impl Counted for MappedRegion {
    fn lines_and_fences(&self) -> (u64, u64) {
        let counters = self.counters();
        (counters.lines_flushed, counters.fences)
    }
}

impl Counted for TimedRegion<MappedRegion> {
    fn lines_and_fences(&self) -> (u64, u64) {
        self.region().lines_and_fences()
    }
}

impl<R: Counted> Stack for DiskCache<R> {
    fn read(&self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        Ok(BlockDevice::read(self, Lba(lba), out.bytes_mut())?)
    }

    fn commit(&self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        let mut transaction = self.begin();
        lbas.iter().try_for_each(|lba| transaction.write(Lba(*lba), block.bytes()))?;
        Ok(transaction.commit()?)
    }

    fn done(&self) -> Done {
        let ((lines, fences), counters) = (self.region().lines_and_fences(), self.counters());
        let writes = counters.write_hits + counters.write_misses;
        Done { lines, fences, disk_blocks: counters.destaged, writes, write_hits: counters.write_hits }
    }

    /// Whoever destages has a pace of its own; without it, writers do it when nothing is clean.
    fn step(&self) -> anyhow::Result<bool> {
        Ok(false)
    }
}

impl<R: Counted> Stack for Journal<R> {
    fn read(&self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        Ok(Journal::read(self, lba, out.bytes_mut())?)
    }

    fn commit(&self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        Ok(self.commit_with_others(lbas.iter().map(|lba| (*lba, Bytes::from(&block.bytes()[..]))))?)
    }

    fn done(&self) -> Done {
        self.cache().done()
    }

    fn step(&self) -> anyhow::Result<bool> {
        let cleaned = self.cache().clean_step()?;
        Ok(self.checkpoint_step()? || cleaned)
    }
}

impl<R: Counted> FlashCache<R> {
    /// What it did so far.
    pub fn done(&self) -> Done {
        let ((lines, fences), (writes, write_hits)) = (self.region().lines_and_fences(), self.writes());
        Done { lines, fences, disk_blocks: self.disk_blocks(), writes, write_hits }
    }
}

/// The cache without a journal above it: a transaction is its blocks.
impl<R: Counted> Stack for FlashCache<R> {
    fn read(&self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        Ok(FlashCache::read(self, lba, out.bytes_mut())?)
    }

    fn commit(&self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        let blocks: Vec<(u64, &[u8])> = lbas.iter().map(|lba| (*lba, &block.bytes()[..])).collect();
        Ok(self.write_together(&blocks)?)
    }

    fn done(&self) -> Done {
        FlashCache::done(self)
    }

    fn step(&self) -> anyhow::Result<bool> {
        Ok(self.clean_step()?)
    }
}

/// Lets others go on for so long.
pub fn wait_a_little(ns: u64) {
    if is_inside() { pass_time(ns) } else { std::thread::yield_now() }
}

/// Random reads and writes, of which `writes` in ten are writes. Returns what was done for the
/// requests after the warm-up.
pub(crate) fn run(stack: &dyn Stack, writes: u64) -> anyhow::Result<Done> {
    let (mut random, mut block) = (Rng::new(7), Block::filled(3));
    let mut requests = |count: u32| -> anyhow::Result<()> {
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
            while stack.step()? {}
        }
        Ok(())
    };
    requests(WARM_REQUESTS)?;
    let before = stack.done();
    requests(REQUESTS)?;
    Ok(stack.done() - before)
}

/// Destages a little if more than `dirty_max` blocks are dirty. False if not.
pub fn destage_above<R: Region>(cache: &DiskCache<R>, dirty_max: u32) -> bool {
    /// Blocks of a step to the disk.
    const STEP_BLOCKS: u32 = 64;
    let is_over = cache.dirty_blocks() > u64::from(dirty_max);
    if is_over {
        cache.destage_step(STEP_BLOCKS);
    }
    is_over
}

/// What becomes of blocks that are read from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// All of them are taken in, and kept over a restart.
    TakenIn,
    /// All of them are taken in, and forgotten by a restart.
    TakenInToBeForgotten,
    /// Those that were read before, not long ago.
    TakenInTheSecondTime,
    /// None of them.
    LeftOut,
}

impl Reads {
    /// Each of them, and what figures call it.
    pub const ALL: [(Reads, &'static str); 4] = [
        (Reads::TakenIn, "Tidegate"),
        (Reads::TakenInToBeForgotten, "Tidegate, reads forgotten"),
        (Reads::TakenInTheSecondTime, "Tidegate, reads taken in the second time"),
        (Reads::LeftOut, "Tidegate, write-only"),
    ];
}

/// A cache that takes blocks in as it is told, by its mode.
struct Choosy {
    cache: DiskCache<MappedRegion>,
    doorkeeper: Mutex<Doorkeeper>,
    /// From so many dirty blocks on the disk is written; None: when nothing is clean.
    dirty_max: Option<u32>,
}

impl Choosy {
    fn new(reads: Reads) -> anyhow::Result<Choosy> {
        let disk = InTurn(Ram::new(4096, FILE_BLOCKS));
        let region = medium::region(CachePlan::cut(CACHE_BLOCKS, 4096, FILE_BLOCKS, RING).end())?;
        let admit = match reads {
            Reads::TakenIn | Reads::TakenInToBeForgotten => Admit::Always,
            Reads::TakenInTheSecondTime => Admit::SecondMiss,
            Reads::LeftOut => Admit::Never,
        };
        let doorkeeper = Mutex::new(Doorkeeper::new(admit, CACHE_BLOCKS));
        let kept = match reads {
            Reads::TakenInToBeForgotten => tidegate_disk_cache::Reads::Forgotten,
            Reads::TakenIn | Reads::TakenInTheSecondTime | Reads::LeftOut => tidegate_disk_cache::Reads::Kept,
        };
        let options = Options { reads: kept, ..Options::default() };
        Ok(Choosy { cache: opened_with(options, region, FILE_BLOCKS, RING, disk)?.0, doorkeeper, dirty_max: None })
    }

    /// Destaged as `serve` does under writers that do not pause.
    fn capped(self) -> Choosy {
        Choosy { dirty_max: Some(Caps::default().limits(CACHE_BLOCKS, 4096).dirty_blocks), ..self }
    }
}

impl Stack for Choosy {
    /// A read that misses is repeated if the doorkeeper lets its block in: the disk is not what is
    /// counted.
    fn read(&self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        let misses = self.cache.counters().read_misses;
        self.cache.set_mode(Mode::WriteOnly);
        Stack::read(&self.cache, lba, out)?;
        self.cache.set_mode(Mode::WriteBack);
        let missed = self.cache.counters().read_misses > misses;
        if missed && self.doorkeeper.lock().unwrap_or_else(PoisonError::into_inner).admits(lba) {
            Stack::read(&self.cache, lba, out)?;
        }
        Ok(())
    }

    fn commit(&self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        Stack::commit(&self.cache, lbas, block)
    }

    fn done(&self) -> Done {
        self.cache.done()
    }

    fn step(&self) -> anyhow::Result<bool> {
        Ok(self.dirty_max.is_some_and(|most| destage_above(&self.cache, most)))
    }
}

fn classic() -> anyhow::Result<Journal<MappedRegion>> {
    let disk = Arc::new(InTurn(Ram::new(4096, FILE_BLOCKS + JOURNAL_BLOCKS)));
    let region = medium::region(FlashCache::<MappedRegion>::bytes_for(CACHE_BLOCKS))?;
    let cache = FlashCache::new(region, disk, CACHE_BLOCKS, Ablations::default());
    Ok(Journal::new(cache, FILE_BLOCKS, JOURNAL_BLOCKS))
}

/// What `writes` writes among ten requests have a cache do that treats reads so.
pub fn done_here(reads: Reads, writes: u64) -> anyhow::Result<Done> {
    run(&Choosy::new(reads)?, writes)
}

/// Ten requests of which `writes` write, over a cache that forgets reads and writes to the disk
/// from the dirty limit of `serve` on.
pub fn done_here_capped(writes: u64) -> anyhow::Result<Done> {
    run(&Choosy::new(Reads::TakenInToBeForgotten)?.capped(), writes)
}

/// What they have the journal and its cache do.
pub fn done_there(writes: u64) -> anyhow::Result<Done> {
    run(&classic()?, writes)
}

/// Commits and reads blocks of 2,800 at random; each read finds what was committed last.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
pub fn agrees_with_a_model(stack: &dyn Stack) {
    let (mut random, mut out, mut model) = (Rng::new(1), Block::filled(0), vec![0_u8; 2800]);
    for round in 0..2000_u32 {
        let mut block = Block::filled(0);
        block.bytes_mut().fill(u8::try_from(round % 251).unwrap() + 1);
        let mut lbas: Vec<u64> = (0..8).map(|_| random.below(2800)).collect();
        lbas.sort_unstable();
        lbas.dedup();
        stack.commit(&lbas, &block).unwrap();
        lbas.iter().for_each(|lba| model[usize::try_from(*lba).unwrap()] = block.bytes()[0]);
        let lba = random.below(2800);
        if round % 3 == 0 {
            while stack.step().unwrap() {}
        }
        stack.read(lba, &mut out).unwrap();
        assert!(out.bytes().iter().all(|found| *found == model[usize::try_from(lba).unwrap()]), "block {lba}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u64 = TOGETHER as u64;

    /// Everything fits, so nothing is cleaned and nothing checkpointed before the log is full.
    fn roomy() -> Journal<MappedRegion> {
        let disk = Arc::new(InTurn(Ram::new(4096, 20 * N)));
        let region = MappedRegion::anonymous(FlashCache::<MappedRegion>::bytes_for(8192)).unwrap();
        Journal::new(FlashCache::new(region, disk, 8192, Ablations::default()), 10 * N, 10 * N)
    }

    #[test]
    fn a_transaction_costs_what_the_design_says() {
        let (journal, block) = (roomy(), Block::filled(1));
        let lbas: Vec<u64> = (0..N).collect();
        Stack::commit(&journal, &lbas, &block).unwrap();
        let Done { lines, fences, disk_blocks, .. } = journal.done();
        assert_eq!((lines, fences, disk_blocks), ((N + 2) * 128, (N + 2) * 2, 0), "the log alone");
        journal.checkpoint(1).unwrap();
        assert_eq!(journal.done().lines, (2 * N + 3) * 128, "and each block in its place, and where the log begins");
        journal.commit(&[(1, Bytes::from(&block.bytes()[..]))], &[5, 6]).unwrap();
        assert_eq!(journal.done().lines, (2 * N + 3 + 4) * 128, "revoked blocks take one of the log");
    }

    #[test]
    fn what_is_logged_again_is_put_in_place_once() {
        let (journal, block) = (roomy(), Block::filled(1));
        for _ in 0..3 {
            Stack::commit(&journal, &[1, 2], &block).unwrap();
        }
        let before = journal.done().lines;
        journal.checkpoint(3).unwrap();
        assert_eq!(journal.done().lines - before, (2 + 1) * 128);
    }

    /// One set, in which nothing is cleaned: a disk of many more blocks than the 512 of the set.
    fn one_set() -> FlashCache<MappedRegion> {
        let disk = Arc::new(InTurn(Ram::new(4096, 2048)));
        let region = MappedRegion::anonymous(FlashCache::<MappedRegion>::bytes_for(512)).unwrap();
        FlashCache::new(region, disk, 512, Ablations::default())
    }

    /// The fifth of a set that may be dirty is 102 blocks.
    #[test]
    fn a_set_with_too_many_dirty_blocks_is_cleaned_from_its_first_slot_on_and_neighbours_go_along() {
        let (cache, block) = (one_set(), Block::filled(1));
        let write = |lba: u64| cache.write(lba, block.bytes()).unwrap();
        // Every second block, but for three neighbours of the first.
        (0..101).map(|nth| 10 + 2 * nth).for_each(write);
        [9, 11].into_iter().for_each(write);
        assert!(cache.clean_step().unwrap(), "103 are dirty, one too many");
        assert_eq!(cache.done().disk_blocks, 4, "block 10, with 9, 11 and 12");
        assert!(!cache.clean_step().unwrap(), "99 are dirty");
        (0..5).map(|nth| 1000 + 2 * nth).for_each(write);
        while cache.clean_step().unwrap() {}
        assert_eq!(cache.done().disk_blocks, 4 + 2, "the hand went on to 14 and 16");
    }

    #[test]
    fn the_first_clean_block_is_replaced_however_lately_it_was_used() {
        let (cache, mut out) = (one_set(), Block::filled(0));
        let mut read = |lba: u64| cache.read(lba, out.bytes_mut()).unwrap();
        (0..512).for_each(&mut read);
        read(0);
        read(600);
        assert_eq!(cache.writes(), (0, 0));
        let hits = |lba: u64| {
            cache.write(lba, Block::filled(1).bytes()).unwrap();
            cache.writes().1
        };
        assert_eq!((hits(600), hits(0), hits(2)), (1, 1, 2), "600 took the place of 0, and 0 then that of 1");
    }

    #[test]
    fn what_finds_only_dirty_blocks_goes_past_the_cache() {
        let (cache, block, mut out) = (one_set(), Block::filled(1), Block::filled(0));
        (0..512).for_each(|lba| cache.write(lba, block.bytes()).unwrap());
        let before = cache.done();
        cache.write(700, Block::filled(2).bytes()).unwrap();
        cache.read(700, out.bytes_mut()).unwrap();
        let Done { lines, disk_blocks, write_hits, .. } = cache.done() - before;
        assert_eq!((out.bytes()[0], lines, disk_blocks, write_hits), (Block::filled(2).bytes()[0], 0, 1, 0));
    }

    #[test]
    fn what_was_committed_is_read_wherever_it_is() {
        let disk = Arc::new(InTurn(Ram::new(4096, 3000)));
        let region = MappedRegion::anonymous(FlashCache::<MappedRegion>::bytes_for(1024)).unwrap();
        let journal = Journal::new(FlashCache::new(region, disk, 1024, Ablations::default()), 2800, 200);
        agrees_with_a_model(&journal);
        assert!(journal.cache().disk_blocks() > 10_000, "more than fits: {}", journal.cache().disk_blocks());
    }
}
