//! The transactional cache as it was published: Q. Wei et al.'s Tinca, whose commit protocol the
//! disk cache of this project replaced by a redo ring.
//!
//! ```text
//! | Head | Tail | ring of disk blocks' numbers | entries | blocks |
//! ```
//!
//! An entry has 16 bytes: the role (log or buffer) and whether the block is modified beside the
//! disk block's number, then the previous and the current block in the memory.
//!
//! 1. *Commit*, for each block: its data go to a new block; its entry becomes {log, previous,
//!    current}; its number goes to the place that Head points at; Head moves by one. Then each
//!    entry's role is switched to buffer, and Tail moves to Head, which ends the commit. Each of
//!    these is flushed and fenced by itself.
//! 2. *Recovery* revokes the blocks between Tail and Head and each entry in the log role: back to
//!    the previous block, or gone if there was none.
//! 3. *Replacement* is by last use, and never takes a block of the transaction under way, in either
//!    version. A transaction's previous versions are free after it.
//!
//! The protocol takes for granted that an entry arrives as a whole. Tests here do too; the crash
//! campaigns of this project show what happens on hardware that promises eight bytes.
//!
//! What the publication leaves open, and the choice made:
//! - *Blocks read in* are stored and not flushed, and have no entry until they are written
//!   ([`Reads::Forgotten`]). The more reads, the larger is the published gap to the lines that
//!   Classic flushes (Fig. 7b); it would shrink if lines were flushed for reads. With
//!   [`Reads::Kept`], they are durable before their entry names them.
//! - *When dirty blocks go to the disk*: when more are dirty than the owner says, the oldest first;
//!   a writer that finds nothing clean does so itself.
//! - *Flushes of the disk*: none, as in Classic.
//! - *One commit at a time*: there is one Head. What others ask for meanwhile is committed
//!   together: the published one takes the place of JBD2's commit (§ 5.1), which does so, up to a
//!   quarter of its journal. That is the most that a transaction of Fig. 13 has.

use crate::classic::{Bytes, CACHE_BLOCKS, Counted, Done, FILE_BLOCKS, JOURNAL_BLOCKS, Stack, run, wait_a_little};
use crate::holding::{Holding, Naps};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tidegate_disk_cache::Reads;
use tidegate_measure::medium;
use tidegate_measure::subject::Block;
use tidegate_media::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use tidegate_media::{Backing, InTurn, Lba, MappedRegion, Region, Result, Run};
use tidegate_nbd_client::ram::Ram;

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Elements of the ring: 1 MiB of 8 bytes each, as much smaller as the cache.
const RING: u64 = 1024;

const HEAD_AT: u64 = 0;
const TAIL_AT: u64 = 64;
const RING_AT: u64 = 128;
const ENTRIES_AT: u64 = RING_AT + RING * 8;

/// Bytes of an entry.
const ENTRY: u64 = 16;

/// Flags beside a disk block's number.
const LOG_ROLE: u64 = 1 << 63;
const MODIFIED: u64 = 1 << 62;
const USED: u64 = 1 << 61;

/// The previous block of one that was not cached.
const FRESH: u64 = 0xffff_ffff;

/// Dirty blocks written to the disk together.
const TOGETHER: usize = 64;

/// The cache: a region, a disk, and what is in memory of both.
pub struct Tinca<R> {
    region: R,
    disk: Arc<dyn Backing>,
    blocks: usize,
    limits: Limits,
    reads: Reads,
    all: Mutex<All>,
    running: Mutex<Running>,
    /// Head, held by the one who commits.
    committing: Mutex<u64>,
    cleaned: AtomicU64,
    writes: AtomicU64,
    write_hits: AtomicU64,
}

/// How many blocks may be dirty before the cache writes to the disk beside its users, and how many
/// may be committed together for several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Dirty ones.
    pub dirty: u32,
    /// Those of one transaction, unless one asker has more.
    pub together: u64,
}

/// What is to be committed next, and how many times that was done.
#[derive(Default)]
struct Running {
    writes: BTreeMap<u64, Bytes>,
    number: u64,
}

/// Between two looks at whether the next transaction has room: about what a sleeper's wake-up
/// takes.
const JOIN_AGAIN_NS: u64 = 50_000;

/// Where a disk block is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cached {
    entry: usize,
    block: usize,
    /// The entry names the block in the memory, so that it is there after a restart.
    named: bool,
    dirty: bool,
    used: u64,
}

/// The structures in DRAM, which a start rebuilds.
#[derive(Default)]
struct All {
    places: HashMap<u64, Cached>,
    /// Disk blocks that somebody reads, writes or cleans.
    held: HashSet<u64>,
    /// Those that nobody holds, by their last use.
    clean: BTreeMap<u64, u64>,
    dirty: BTreeMap<u64, u64>,
    free_blocks: Vec<usize>,
    free_entries: Vec<usize>,
    now: u64,
}

impl<R: Region> Tinca<R> {
    /// What a cache of `blocks` takes of a region.
    pub fn bytes_for(blocks: u32) -> u64 {
        data_at(blocks as usize, blocks as usize)
    }

    /// The cache that `region` holds, of `blocks`; it is empty if that is all zeroes.
    pub fn open(region: R, disk: Arc<dyn Backing>, blocks: u32, limits: Limits, reads: Reads) -> Result<Tinca<R>> {
        let (head, tail) = (region.load_u64(HEAD_AT)?, region.load_u64(TAIL_AT)?);
        let [cleaned, writes, write_hits] = [0; 3].map(AtomicU64::new);
        let tinca = Tinca {
            region,
            disk,
            blocks: blocks as usize,
            limits,
            reads,
            all: Mutex::default(),
            running: Mutex::default(),
            committing: Mutex::new(head),
            cleaned,
            writes,
            write_hits,
        };
        tinca.recover(tail..head)?;
        Ok(tinca)
    }

    /// Revokes what an unfinished commit left, and rebuilds the structures in DRAM.
    fn recover(&self, unfinished: std::ops::Range<u64>) -> Result<()> {
        let mut revoked = HashSet::new();
        for number in unfinished.clone() {
            revoked.insert(self.region.load_u64(RING_AT + number % RING * 8)?);
        }
        let mut all = self.all.lock();
        let mut taken = vec![false; self.blocks];
        for entry in (0..self.blocks).rev() {
            let [mut name, versions] = self.entry(entry)?;
            let lba = name & !(LOG_ROLE | MODIFIED | USED);
            let mut block = versions & FRESH;
            if name & USED != 0 && (name & LOG_ROLE != 0 || revoked.contains(&lba)) {
                block = versions >> 32;
                // A previous version that was clean is written to the disk once more.
                name = if block == FRESH { 0 } else { USED | MODIFIED | lba };
                self.store_entry(entry, [name, block << 32 | block])?;
            }
            if name & USED == 0 {
                all.free_entries.push(entry);
                continue;
            }
            let block = usize::try_from(block).expect("32 bits");
            taken[block] = true;
            all.now += 1;
            let cached = Cached { entry, block, named: true, dirty: name & MODIFIED != 0, used: all.now };
            all.places.insert(lba, cached);
            all.order(cached, lba);
        }
        all.free_blocks = (0..self.blocks).rev().filter(|block| !taken[*block]).collect();
        drop(all);
        self.store(TAIL_AT, unfinished.end)
    }

    fn entry(&self, entry: usize) -> Result<[u64; 2]> {
        let at = ENTRIES_AT + entry as u64 * ENTRY;
        Ok([self.region.load_u64(at)?, self.region.load_u64(at + 8)?])
    }

    /// One write of 16 bytes, which the protocol takes to be atomic, flushed and fenced.
    fn store_entry(&self, entry: usize, [name, versions]: [u64; 2]) -> Result<()> {
        let at = ENTRIES_AT + entry as u64 * ENTRY;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&name.to_le_bytes());
        bytes[8..].copy_from_slice(&versions.to_le_bytes());
        self.region.write(at, &bytes);
        self.region.flush(at, ENTRY);
        Ok(self.region.fence()?)
    }

    fn store(&self, at: u64, word: u64) -> Result<()> {
        self.region.store_u64(at, word);
        self.region.flush(at, 8);
        Ok(self.region.fence()?)
    }

    fn store_block(&self, block: usize, data: &[u8]) -> Result<()> {
        self.region.stream(data_at(self.blocks, block), data);
        Ok(self.region.fence()?)
    }

    /// What was committed last. Its caller holds `lba`.
    fn read_held(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        let cached = self.all.lock().places.get(&lba).copied();
        if let Some(cached) = cached {
            return Ok(self.region.read(data_at(self.blocks, cached.block), out)?);
        }
        self.disk.read(Lba(lba), out)?;
        let (block, entry) = (self.free_block()?, self.free_entry()?);
        let named = self.reads == Reads::Kept;
        if named {
            self.store_block(block, out)?;
            self.store_entry(entry, [USED | lba, FRESH << 32 | block as u64])?;
        } else {
            self.region.write(data_at(self.blocks, block), out);
        }
        self.all.lock().places.insert(lba, Cached { entry, block, named, dirty: false, used: 0 });
        Ok(())
    }

    /// Commits `writes`, together with whatever others ask for while one transaction is written.
    fn commit_with_others(&self, writes: Vec<(u64, Bytes)>) -> Result<()> {
        let number = self.join(writes);
        let mut head = self.committing.lock();
        let mut running = self.running.lock();
        if running.number > number {
            return Ok(());
        }
        running.number += 1;
        let writes = std::mem::take(&mut running.writes);
        drop(running);
        let lbas: Vec<u64> = writes.keys().copied().collect();
        self.holding(&lbas, |_| self.commit_held(&mut head, &writes))
    }

    /// Adds `writes` to what is committed next, when that has room. Says the number of that.
    fn join(&self, writes: Vec<(u64, Bytes)>) -> u64 {
        loop {
            let mut running = self.running.lock();
            if running.writes.is_empty() || (running.writes.len() + writes.len()) as u64 <= self.limits.together {
                running.writes.extend(writes);
                return running.number;
            }
            drop(running);
            wait_a_little(JOIN_AGAIN_NS);
        }
    }

    /// Commits `writes` from Head on. Its caller holds them.
    fn commit_held(&self, head: &mut u64, writes: &BTreeMap<u64, Bytes>) -> Result<()> {
        let count = writes.len();
        assert!(count as u64 <= RING, "a transaction of {count} blocks, and a ring of {RING}");
        assert!(2 * count <= self.blocks, "both versions of {count} blocks, and room for {}", self.blocks);
        let mut moved = Vec::with_capacity(count);
        for (lba, data) in writes {
            let before = self.all.lock().places.get(lba).copied();
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.write_hits.fetch_add(u64::from(before.is_some()), Ordering::Relaxed);
            let block = self.free_block()?;
            self.store_block(block, data)?;
            let entry = before.map_or_else(|| self.free_entry(), |before| Ok(before.entry))?;
            let previous = before.map_or(FRESH, Cached::version);
            self.store_entry(entry, [LOG_ROLE | USED | MODIFIED | lba, previous << 32 | block as u64])?;
            self.store(RING_AT + *head % RING * 8, *lba)?;
            *head += 1;
            self.store(HEAD_AT, *head)?;
            moved.push((*lba, before, Cached { entry, block, named: true, dirty: true, used: 0 }));
        }
        for (lba, before, now) in &moved {
            let previous = before.map_or(FRESH, Cached::version);
            self.store_entry(now.entry, [USED | MODIFIED | lba, previous << 32 | now.block as u64])?;
        }
        self.store(TAIL_AT, *head)?;
        let mut all = self.all.lock();
        for (lba, before, now) in moved {
            all.free_blocks.extend(before.map(|before| before.block));
            all.places.insert(lba, now);
        }
        Ok(())
    }

    /// Writes the dirty blocks used longest ago to the disk if too many are dirty. False if not.
    pub fn clean_step(&self) -> Result<bool> {
        if self.all.lock().dirty.len() <= self.limits.dirty as usize {
            return Ok(false);
        }
        Ok(self.clean_oldest()? > 0)
    }

    /// Writes dirty blocks to the disk; says how many.
    fn clean_oldest(&self) -> Result<usize> {
        let oldest = self.all.lock().take_oldest_dirty();
        let written = self.write_to_disk(&oldest);
        for (lba, cached) in &oldest {
            if written.is_ok() {
                let block = cached.block as u64;
                self.store_entry(cached.entry, [USED | lba, block << 32 | block])?;
            }
            self.all.lock().settle(*lba, Cached { dirty: written.is_err(), ..*cached });
        }
        written?;
        self.cleaned.fetch_add(oldest.len() as u64, Ordering::Relaxed);
        Ok(oldest.len())
    }

    fn write_to_disk(&self, blocks: &[(u64, Cached)]) -> Result<()> {
        let mut bytes = vec![[0; BLOCK]; blocks.len()];
        for ((_, cached), bytes) in blocks.iter().zip(&mut bytes) {
            self.region.read(data_at(self.blocks, cached.block), bytes)?;
        }
        let runs = blocks.iter().zip(&bytes).map(|((lba, _), data)| Run { at: Lba(*lba), data });
        self.disk.write_runs(&runs.collect::<Vec<_>>()).into_iter().collect()
    }

    fn free_block(&self) -> Result<usize> {
        self.free(|all| all.free_blocks.pop())
    }

    fn free_entry(&self) -> Result<usize> {
        self.free(|all| all.free_entries.pop())
    }

    /// What `take` finds, after evictions if need be.
    fn free(&self, take: impl Fn(&mut All) -> Option<usize>) -> Result<usize> {
        let mut naps = Naps::new();
        loop {
            let mut all = self.all.lock();
            if let Some(found) = take(&mut all) {
                return Ok(found);
            }
            if !self.evict(all)? && self.clean_oldest()? == 0 {
                naps.wait();
            }
        }
    }

    /// Gives the clean block used longest ago up. False if none is clean.
    fn evict(&self, mut all: MutexGuard<'_, All>) -> Result<bool> {
        let Some((_, lba)) = all.clean.pop_first() else { return Ok(false) };
        let victim = all.places.remove(&lba).expect("what is in order is cached");
        drop(all);
        // No entry names the block when it is given to another.
        if victim.named {
            self.store_entry(victim.entry, [0; 2])?;
        }
        let mut all = self.all.lock();
        all.free_blocks.push(victim.block);
        all.free_entries.push(victim.entry);
        Ok(true)
    }
}

fn data_at(blocks: usize, block: usize) -> u64 {
    (ENTRIES_AT + blocks as u64 * ENTRY).next_multiple_of(BLOCK as u64) + (block * BLOCK) as u64
}

impl Cached {
    /// What an entry tells of it as the previous version: one that may not be there after a restart
    /// is none.
    fn version(self) -> u64 {
        if self.named { self.block as u64 } else { FRESH }
    }
}

impl All {
    /// False if somebody else does.
    fn hold(&mut self, lba: u64) -> bool {
        let free = self.held.insert(lba);
        if let Some(cached) = self.places.get(&lba).filter(|_| free) {
            self.clean.remove(&cached.used);
            self.dirty.remove(&cached.used);
        }
        free
    }

    /// What was held becomes the block used last.
    fn release(&mut self, lba: u64) {
        self.held.remove(&lba);
        self.now += 1;
        let now = self.now;
        if let Some(cached) = self.places.get_mut(&lba) {
            cached.used = now;
            let cached = *cached;
            self.order(cached, lba);
        }
    }

    /// What was held is as `cached` says, and was used when it was before.
    fn settle(&mut self, lba: u64, cached: Cached) {
        self.held.remove(&lba);
        self.places.insert(lba, cached);
        self.order(cached, lba);
    }

    fn order(&mut self, cached: Cached, lba: u64) {
        let order = if cached.dirty { &mut self.dirty } else { &mut self.clean };
        order.insert(cached.used, lba);
    }

    /// The dirty blocks used longest ago, held, in the order of the disk.
    fn take_oldest_dirty(&mut self) -> Vec<(u64, Cached)> {
        let oldest: Vec<u64> = self.dirty.values().take(TOGETHER).copied().collect();
        oldest.iter().for_each(|lba| assert!(self.hold(*lba), "what is in order is not held"));
        let mut oldest: Vec<_> = oldest.into_iter().map(|lba| (lba, self.places[&lba])).collect();
        oldest.sort_unstable_by_key(|(lba, _)| *lba);
        oldest
    }
}

impl<R: Region> Holding for Tinca<R> {
    fn try_hold(&self, lba: u64) -> bool {
        self.all.lock().hold(lba)
    }

    fn release(&self, lbas: &[u64]) {
        let mut all = self.all.lock();
        lbas.iter().for_each(|lba| all.release(*lba));
    }
}

impl<R: Counted> Stack for Tinca<R> {
    fn read(&self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        Ok(self.holding(&[lba], |_| self.read_held(lba, out.bytes_mut()))?)
    }

    fn commit(&self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        Ok(self.commit_with_others(lbas.iter().map(|lba| (*lba, Bytes::from(&block.bytes()[..]))).collect())?)
    }

    fn done(&self) -> Done {
        let (lines, fences) = self.region.lines_and_fences();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (writes, write_hits) = (of(&self.writes), of(&self.write_hits));
        Done { lines, fences, disk_blocks: of(&self.cleaned), writes, write_hits }
    }

    fn step(&self) -> anyhow::Result<bool> {
        Ok(self.clean_step()?)
    }
}

/// Returns what random requests, `writes` of ten of them writes, have it do that writes to the disk
/// when nothing is clean.
pub fn done_by_tinca(reads: Reads, writes: u64) -> anyhow::Result<Done> {
    let disk = Arc::new(InTurn(Ram::new(4096, FILE_BLOCKS)));
    let region = medium::region(Tinca::<MappedRegion>::bytes_for(CACHE_BLOCKS))?;
    let limits = Limits { dirty: CACHE_BLOCKS, together: JOURNAL_BLOCKS / 4 };
    run(&Tinca::open(region, disk, CACHE_BLOCKS, limits, reads)?, writes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::classic::agrees_with_a_model;
    use tidegate_sim::{Image, Region as Simulated, power_cuts};

    fn tinca(blocks: u32, dirty_max: u32) -> Tinca<MappedRegion> {
        let region = MappedRegion::anonymous(Tinca::<MappedRegion>::bytes_for(blocks)).unwrap();
        let limits = Limits { dirty: dirty_max, together: 64 };
        Tinca::open(region, Arc::new(InTurn(Ram::new(4096, 2800))), blocks, limits, Reads::Forgotten).unwrap()
    }

    #[test]
    fn a_commit_flushes_each_step_of_the_protocol_by_itself() {
        let tinca = tinca(64, 64);
        let before = tinca.done();
        tinca.commit(&[3, 4, 5], &Block::filled(1)).unwrap();
        let done = tinca.done() - before;
        // Data, entry, number, Head, role; at the end Tail.
        assert_eq!((done.lines, done.fences), (3 * (64 + 4) + 1, 3 * 5 + 1));
        assert_eq!((done.writes, done.write_hits, done.disk_blocks), (3, 0, 0));
        tinca.commit(&[4], &Block::filled(2)).unwrap();
        assert_eq!((tinca.done().write_hits, tinca.all.lock().free_blocks.len()), (1, 61), "the old version is free");
    }

    #[test]
    fn what_others_ask_for_while_a_transaction_is_written_is_committed_together() {
        let (tinca, before) = (&tinca(64, 64), Done::default());
        let under_way = tinca.committing.lock();
        std::thread::scope(|threads| {
            for lba in [3, 4] {
                threads.spawn(move || tinca.commit(&[lba], &Block::filled(1)).unwrap());
            }
            while tinca.running.lock().writes.len() < 2 {
                std::thread::yield_now();
            }
            drop(under_way);
        });
        let done = tinca.done() - before;
        assert_eq!((done.writes, tinca.running.lock().number), (2, 1), "one transaction");
    }

    #[test]
    fn what_was_committed_is_read_wherever_it_is() {
        let tinca = tinca(1024, 700);
        agrees_with_a_model(&tinca);
        assert!(tinca.done().disk_blocks > 5000, "more than fits: {:?}", tinca.done());
    }

    #[test]
    fn the_block_used_longest_ago_goes_first_and_a_dirty_one_by_the_disk() {
        let tinca = tinca(4, 4);
        let mut out = Block::filled(0);
        tinca.commit(&[1], &Block::filled(9)).unwrap();
        [2, 3, 4, 2].into_iter().for_each(|lba| tinca.read(lba, &mut out).unwrap());
        tinca.read(5, &mut out).unwrap();
        let cached = |lba: u64| tinca.all.lock().places.contains_key(&lba);
        assert!(cached(1) && cached(2) && !cached(3) && cached(4) && cached(5), "a clean one goes without a write");
        [2, 4].into_iter().for_each(|lba| tinca.commit(&[lba], &Block::filled(8)).unwrap());
        assert_eq!(tinca.done().disk_blocks, 0, "something was clean");
        tinca.commit(&[5], &Block::filled(8)).unwrap();
        assert!(tinca.done().disk_blocks > 0, "nothing was clean");
        tinca.read(1, &mut out).unwrap();
        assert_eq!(out.bytes(), Block::filled(9).bytes());
    }

    #[test]
    fn lines_are_flushed_for_a_read_only_if_it_is_kept() {
        let lines = |reads: Reads| {
            let region = MappedRegion::anonymous(Tinca::<MappedRegion>::bytes_for(8)).unwrap();
            let tinca =
                Tinca::open(region, Arc::new(InTurn(Ram::new(4096, 8))), 8, Limits { dirty: 8, together: 8 }, reads)
                    .unwrap();
            let before = tinca.done();
            tinca.read(3, &mut Block::filled(7)).unwrap();
            (tinca.done() - before).lines
        };
        assert_eq!([Reads::Forgotten, Reads::Kept].map(lines), [0, 64 + 1]);
    }

    type InSimulation = Tinca<Arc<Simulated>>;

    fn opened(region: Arc<Simulated>, reads: Reads) -> InSimulation {
        Tinca::open(region, Arc::new(InTurn(Ram::new(4096, 8))), 8, Limits { dirty: 8, together: 8 }, reads).unwrap()
    }

    fn put(tinca: &InSimulation, lbas: &[u64], byte: u8) {
        tinca.commit_with_others(lbas.iter().map(|lba| (*lba, Bytes::from([byte; BLOCK]))).collect()).unwrap();
    }

    fn seen(tinca: &InSimulation) -> [u8; 3] {
        [0, 1, 2].map(|lba| {
            let mut block = [0; BLOCK];
            tinca.read_held(lba, &mut block).unwrap();
            block[0]
        })
    }

    /// Where entries arrive as a whole, as the protocol has it: with all that is pending, or with
    /// none of it.
    #[test]
    fn after_a_cut_at_any_step_all_of_a_transaction_is_there_or_nothing() {
        [Reads::Forgotten, Reads::Kept].into_iter().for_each(all_or_nothing_after_a_cut);
    }

    /// One of the blocks was read in before, and is clean.
    fn all_or_nothing_after_a_cut(reads: Reads) {
        let start = Image::zeroed(InSimulation::bytes_for(8));
        let cuts = power_cuts(&start, |region| {
            let tinca = opened(region.clone(), reads);
            put(&tinca, &[0, 1], 1);
            tinca.read_held(2, &mut [0; BLOCK]).unwrap();
            region.take_cuts();
            region.record_cuts();
            put(&tinca, &[1, 2], 2);
        });
        let (last, earlier) = cuts.split_last().unwrap();
        assert_eq!(earlier.len(), 2 * 5 + 1, "a cut before each fence");
        let recovered = |image: &Image| seen(&opened(Arc::new(Simulated::from_image(image.clone())), reads));
        for cut in earlier {
            let found = [recovered(cut.least()), recovered(&cut.most())];
            assert!(found.iter().all(|seen| [[1, 1, 0], [1, 2, 2]].contains(seen)), "{cut}: {found:?}");
        }
        assert_eq!(recovered(last.least()), [1, 2, 2], "a commit that returned is durable");
    }
}
