//! A rival: a buffer cache in persistent memory that is a journal too, UBJ (E. Lee, H. Bahn and S.
//! H. Noh, "Unioning of the buffer cache and journaling layers with non-volatile memory", FAST
//! 2013; the transactional cache's paper describes it in § 1 and § 5.4.4, without measuring it).
//!
//! - *Commit in place*: a transaction's blocks are made durable where they are and become *frozen*,
//!   all at once; no data is written to a log.
//! - *A frozen block is not overwritten*: a write copies it to another place first, in the writer's
//!   own time. What was frozen before is out of date as soon as the copy is committed.
//! - *Checkpoint*: a transaction at a time, the oldest first. Its blocks that are up to date are
//!   written to the disk and become clean; those that are out of date become free without being
//!   written. Only free and clean blocks can be given to others.
//!
//! ```text
//! | committed up to | checkpointed up to | (disk block, transaction) of each block | blocks |
//! ```
//!
//! What the description leaves open, and the choice made, always the one that costs less:
//! - *How a commit becomes atomic*: descriptions of its blocks are flushed together with their
//!   data, one fence; then the number of the transaction, one more.
//! - *When checkpoints begin*: when as many blocks are frozen as may be dirty in the transactional
//!   cache. A writer that finds no room does one itself.
//! - *Whole blocks*: a write that replaces all of a frozen block takes another place, but copies
//!   nothing.
//! - *Blocks read in* need not survive a power loss, and are not flushed. Nor is the disk: what
//!   Classic gets for nothing, UBJ gets too.
//!
//! The description has all of main memory persistent. Here users have the same DRAM above it as
//! above the other caches.

use crate::classic::{Bytes, CACHE_BLOCKS, Counted, Done, FILE_BLOCKS, Stack, run};
use crate::holding::{Holding, Naps};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tidegate_measure::medium;
use tidegate_measure::subject::Block;
use tidegate_media::sync::{AtomicU64, Mutex, Ordering};
use tidegate_media::{Backing, InTurn, Lba, MappedRegion, Region, Result, Run};
use tidegate_nbd_client::ram::Ram;
use tidegate_policy::writeback::destage::Caps;

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Where the numbers of the last transactions are, that committed and that checkpointed, and the
/// descriptions of blocks.
const COMMITTED_AT: u64 = 0;
const CHECKPOINTED_AT: u64 = 64;
const DESCRIPTIONS_AT: u64 = 128;

/// Bytes of a description.
const DESCRIPTION: u64 = 16;

/// How much of a block a write replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// All of it.
    Whole,
    /// Some rows of it: the rest is copied.
    InPart,
}

/// The cache: a region, a disk, and what is in memory of both.
pub struct Ubj<R> {
    region: R,
    disk: Arc<dyn Backing>,
    blocks: usize,
    replaced: Replaced,
    frozen_max: usize,
    all: Mutex<All>,
    /// The last transaction's number; held by the one who freezes.
    committing: Mutex<u64>,
    /// Held by the one who writes a transaction to the disk.
    checkpointing: Mutex<()>,
    checkpointed: AtomicU64,
    writes: AtomicU64,
    write_hits: AtomicU64,
}

/// Which block is where.
struct All {
    /// The newest committed version of each.
    places: HashMap<u64, usize>,
    /// Blocks of the disk that somebody reads or writes.
    held: HashSet<u64>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Neither frozen nor held, by their last use.
    clean: BTreeMap<u64, usize>,
    now: u64,
    committed: VecDeque<Committed>,
    frozen: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    lba: u64,
    used: u64,
    frozen: bool,
}

struct Committed {
    number: u64,
    slots: Vec<usize>,
}

impl<R: Region> Ubj<R> {
    /// What a cache of `blocks` takes of a region.
    pub fn bytes_for(blocks: u32) -> u64 {
        data_at(blocks as usize, blocks as usize)
    }

    /// An empty cache of `blocks`, of which `frozen_max` may be frozen before it checkpoints.
    pub fn new(region: R, disk: Arc<dyn Backing>, blocks: u32, frozen_max: u32, replaced: Replaced) -> Ubj<R> {
        let all = All {
            places: HashMap::new(),
            held: HashSet::new(),
            slots: vec![Slot::default(); blocks as usize],
            free: (0..blocks as usize).rev().collect(),
            clean: BTreeMap::new(),
            now: 0,
            committed: VecDeque::new(),
            frozen: 0,
        };
        let [checkpointed, writes, write_hits] = [0; 3].map(AtomicU64::new);
        Ubj {
            region,
            disk,
            blocks: blocks as usize,
            replaced,
            frozen_max: frozen_max as usize,
            all: Mutex::new(all),
            committing: Mutex::new(0),
            checkpointing: Mutex::default(),
            checkpointed,
            writes,
            write_hits,
        }
    }

    fn read_held(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        let cached = self.all.lock().places.get(&lba).copied();
        if let Some(slot) = cached {
            return Ok(self.region.read(self.data_at(slot), out)?);
        }
        self.disk.read(Lba(lba), out)?;
        let slot = self.room()?;
        self.region.write(self.data_at(slot), out);
        let mut all = self.all.lock();
        all.slots[slot] = Slot { lba, used: 0, frozen: false };
        all.places.insert(lba, slot);
        Ok(())
    }

    /// Puts `block` where it is not frozen. Durable with the next fence.
    fn put(&self, lba: u64, block: &[u8]) -> Result<usize> {
        let all = self.all.lock();
        let found = all.places.get(&lba).map(|slot| (*slot, all.slots[*slot].frozen));
        drop(all);
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_hits.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        let slot = match found {
            Some((slot, false)) => slot,
            Some((slot, true)) if self.replaced == Replaced::InPart => self.copy(slot)?,
            Some(_) | None => self.room()?,
        };
        self.region.stream(self.data_at(slot), block);
        Ok(slot)
    }

    fn copy(&self, slot: usize) -> Result<usize> {
        let mut bytes: Bytes = vec![0; BLOCK].into();
        let to = self.room()?;
        self.region.read(self.data_at(slot), &mut bytes)?;
        self.region.write(self.data_at(to), &bytes);
        Ok(to)
    }

    /// Makes `slots` of `lbas`, and nothing else, the next transaction.
    fn freeze(&self, lbas: &[u64], slots: Vec<usize>) -> Result<()> {
        let mut last = self.committing.lock();
        let number = *last + 1;
        for (lba, slot) in lbas.iter().zip(&slots) {
            let at = DESCRIPTIONS_AT + *slot as u64 * DESCRIPTION;
            self.region.store_u64(at, *lba);
            self.region.store_u64(at + 8, number);
            self.region.flush(at, DESCRIPTION);
        }
        self.region.fence()?;
        self.mark(COMMITTED_AT, number)?;
        *last = number;
        self.all.lock().freeze(lbas, Committed { number, slots });
        Ok(())
    }

    fn mark(&self, at: u64, number: u64) -> Result<()> {
        self.region.store_u64(at, number);
        self.region.flush(at, 8);
        Ok(self.region.fence()?)
    }

    /// Writes the oldest transaction to the disk if too much is frozen. False if not.
    pub fn checkpoint_step(&self) -> Result<bool> {
        if self.all.lock().frozen <= self.frozen_max {
            return Ok(false);
        }
        self.checkpoint()
    }

    /// False if there is no transaction.
    fn checkpoint(&self) -> Result<bool> {
        let _one_at_a_time = self.checkpointing.lock();
        let mut all = self.all.lock();
        let Some(oldest) = all.committed.pop_front() else { return Ok(false) };
        let newest = oldest.slots.iter().filter(|slot| all.is_newest(**slot));
        let mut newest: Vec<(u64, usize)> = newest.map(|slot| (all.slots[*slot].lba, *slot)).collect();
        drop(all);
        newest.sort_unstable();
        self.write_to_disk(&newest)?;
        self.mark(CHECKPOINTED_AT, oldest.number)?;
        self.checkpointed.fetch_add(newest.len() as u64, Ordering::Relaxed);
        let mut all = self.all.lock();
        oldest.slots.iter().for_each(|slot| all.thaw(*slot));
        Ok(true)
    }

    fn write_to_disk(&self, blocks: &[(u64, usize)]) -> Result<()> {
        let mut bytes = vec![[0; BLOCK]; blocks.len()];
        for ((_, slot), bytes) in blocks.iter().zip(&mut bytes) {
            self.region.read(self.data_at(*slot), bytes)?;
        }
        let runs = blocks.iter().zip(&bytes).map(|((lba, _), data)| Run { at: Lba(*lba), data });
        self.disk.write_runs(&runs.collect::<Vec<_>>()).into_iter().collect()
    }

    /// A block that holds nothing any more.
    fn room(&self) -> Result<usize> {
        let mut naps = Naps::new();
        loop {
            let found = self.all.lock().room();
            match found {
                Some(slot) => return Ok(slot),
                None if self.checkpoint()? => {}
                None => naps.wait(),
            }
        }
    }

    fn data_at(&self, slot: usize) -> u64 {
        data_at(self.blocks, slot)
    }
}

fn data_at(blocks: usize, slot: usize) -> u64 {
    (DESCRIPTIONS_AT + blocks as u64 * DESCRIPTION).next_multiple_of(BLOCK as u64) + (slot * BLOCK) as u64
}

impl All {
    /// False if somebody else does.
    fn hold(&mut self, lba: u64) -> bool {
        let free = self.held.insert(lba);
        if let Some(slot) = self.places.get(&lba).filter(|_| free) {
            self.clean.remove(&self.slots[*slot].used);
        }
        free
    }

    fn release(&mut self, lba: u64) {
        self.held.remove(&lba);
        if let Some(slot) = self.places.get(&lba).copied() {
            self.now += 1;
            self.slots[slot].used = self.now;
            if !self.slots[slot].frozen {
                self.clean.insert(self.now, slot);
            }
        }
    }

    fn room(&mut self) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let (_, slot) = self.clean.pop_first()?;
        self.places.remove(&self.slots[slot].lba);
        Some(slot)
    }

    fn is_newest(&self, slot: usize) -> bool {
        self.places.get(&self.slots[slot].lba) == Some(&slot)
    }

    fn freeze(&mut self, lbas: &[u64], committed: Committed) {
        for (lba, slot) in lbas.iter().zip(&committed.slots) {
            self.slots[*slot] = Slot { lba: *lba, used: 0, frozen: true };
            let before = self.places.insert(*lba, *slot);
            // What is frozen is freed with its own transaction.
            self.free.extend(before.filter(|before| before != slot && !self.slots[*before].frozen));
        }
        self.frozen += committed.slots.len();
        self.committed.push_back(committed);
    }

    /// A block of a transaction that is on the disk is clean, or out of date.
    fn thaw(&mut self, slot: usize) {
        self.frozen -= 1;
        self.slots[slot].frozen = false;
        let Slot { lba, used, .. } = self.slots[slot];
        if !self.is_newest(slot) {
            self.free.push(slot);
        } else if !self.held.contains(&lba) {
            self.clean.insert(used, slot);
        }
    }
}

impl<R: Region> Holding for Ubj<R> {
    fn try_hold(&self, lba: u64) -> bool {
        self.all.lock().hold(lba)
    }

    fn release(&self, lbas: &[u64]) {
        let mut all = self.all.lock();
        lbas.iter().for_each(|lba| all.release(*lba));
    }
}

impl<R: Counted> Stack for Ubj<R> {
    fn read(&self, lba: u64, out: &mut Block) -> anyhow::Result<()> {
        Ok(self.holding(&[lba], |_| self.read_held(lba, out.bytes_mut()))?)
    }

    fn commit(&self, lbas: &[u64], block: &Block) -> anyhow::Result<()> {
        Ok(self.holding(lbas, |lbas| {
            let slots: Result<Vec<usize>> = lbas.iter().map(|lba| self.put(*lba, block.bytes())).collect();
            slots.and_then(|slots| self.freeze(lbas, slots))
        })?)
    }

    fn done(&self) -> Done {
        let (lines, fences) = self.region.lines_and_fences();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Done {
            lines,
            fences,
            disk_blocks: of(&self.checkpointed),
            writes: of(&self.writes),
            write_hits: of(&self.write_hits),
        }
    }

    fn step(&self) -> anyhow::Result<bool> {
        Ok(self.checkpoint_step()?)
    }
}

/// Returns what random requests, `writes` of ten of them writes of whole blocks, have it do.
pub fn done_by_ubj(writes: u64) -> anyhow::Result<Done> {
    let disk = Arc::new(InTurn(Ram::new(4096, FILE_BLOCKS)));
    let region = medium::region(Ubj::<MappedRegion>::bytes_for(CACHE_BLOCKS))?;
    let frozen_max = Caps::default().limits(CACHE_BLOCKS, 4096).dirty_blocks;
    run(&Ubj::new(region, disk, CACHE_BLOCKS, frozen_max, Replaced::Whole), writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::agrees_with_a_model;
    use tidegate_media::{InTurn, MappedRegion};
    use tidegate_nbd_client::ram::Ram;

    fn ubj(blocks: u32, frozen_max: u32, replaced: Replaced) -> Ubj<MappedRegion> {
        let disk = Arc::new(InTurn(Ram::new(4096, 2800)));
        let region = MappedRegion::anonymous(Ubj::<MappedRegion>::bytes_for(blocks)).unwrap();
        Ubj::new(region, disk, blocks, frozen_max, replaced)
    }

    #[test]
    fn a_commit_takes_its_data_a_description_of_each_block_and_a_number() {
        let ubj = ubj(64, 40, Replaced::InPart);
        let lbas: Vec<u64> = (0..8).collect();
        ubj.commit(&lbas, &Block::filled(1)).unwrap();
        let done = ubj.done();
        assert_eq!((done.lines, done.fences, done.writes, done.write_hits), (8 * 65 + 1, 2, 8, 0));
        ubj.read(100, &mut Block::filled(0)).unwrap();
        assert_eq!(ubj.done().lines, done.lines, "what is read in is not flushed");
    }

    #[test]
    fn what_is_frozen_stays_until_its_checkpoint_and_is_written_only_if_it_is_the_newest() {
        let ubj = ubj(64, 0, Replaced::InPart);
        ubj.commit(&[1, 2], &Block::filled(1)).unwrap();
        ubj.commit(&[2, 3], &Block::filled(2)).unwrap();
        assert_eq!(ubj.all.lock().free.len(), 60, "two versions of a block");
        assert!(ubj.checkpoint_step().unwrap());
        assert_eq!((ubj.done().disk_blocks, ubj.all.lock().free.len()), (1, 61));
        assert!(ubj.checkpoint_step().unwrap());
        assert!(!ubj.checkpoint_step().unwrap());
        assert_eq!((ubj.done().disk_blocks, ubj.all.lock().clean.len()), (3, 3));
        let mut found = Block::filled(0);
        ubj.read(2, &mut found).unwrap();
        assert_eq!(found.bytes(), Block::filled(2).bytes());
    }

    #[test]
    fn what_was_committed_is_read_wherever_it_is() {
        for replaced in [Replaced::Whole, Replaced::InPart] {
            let ubj = ubj(1024, 700, replaced);
            agrees_with_a_model(&ubj);
            assert!(ubj.done().disk_blocks > 8000, "more than fits: {:?}", ubj.done());
        }
    }
}
