//! Reads: from the cache, or from the disk and then into the cache.
//!
//! A block read from the disk may be taken in only if it was not written in between. It was not
//! cached before and is not now; had it been written in between, it had been cached, and its stripe
//! would have given a block up: written blocks leave by an eviction only. (A block that was only
//! read may also be forgotten, or go with a commit that fails; the disk still has its bytes.) While
//! it was not cached, only a write around the cache wrote it to the disk, and the stripe tells that
//! too.

pub(crate) mod checksums;
pub(crate) mod filter;
pub(crate) mod reader;
pub(crate) mod volatile;

use crate::cache::DiskCache;
use crate::index::{BlockState, Cached, IndexStripe};
use crate::read::filter::RunLength;
use crate::read::reader::Reads;
use tidegate_media::{Lba, Region, Result};

/// A block to be filled from the disk.
struct Missing {
    lba: u64,
    /// Its stripe's changes before the disk was read.
    changes: u64,
    /// The cache's block it goes to, if there is one for it.
    block: Option<u32>,
}

impl<R: Region> DiskCache<R> {
    /// Copies a block out of the region if it is cached, and answers whether it is. The disk is not
    /// asked, and nothing is counted.
    pub fn read_held(&self, lba: Lba, out: &mut [u8]) -> Result<bool> {
        let stripe = self.table.index.lock_for(lba.0);
        stripe.get(lba.0).map_or(Ok(false), |cached| self.copy_block(lba.0, cached, out).map(|()| true))
    }

    /// Copies a cached block out; false if it is not cached.
    pub(crate) fn read_cached(&self, lba: u64, out: &mut [u8]) -> Result<bool> {
        let mut stripe = self.table.index.lock_for(lba);
        match stripe.get(lba) {
            Some(cached) => self.copy_cached(&mut stripe, lba, cached, out).map(|()| true),
            None => {
                stripe.counts.read_misses += 1;
                Ok(false)
            }
        }
    }

    /// Reads blocks from `first` on, none of which was cached, from the disk in one go, and takes
    /// those into the cache that are let in.
    pub(crate) fn read_missing(&self, first: u64, run: RunLength, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let size = self.geometry.block_size as usize;
        let lbas = (first..).take(out.len() / size);
        let mut missing: Vec<Missing> = Vec::with_capacity(out.len() / size);
        let takes_in = self.mode().takes_reads_in() && self.destager.disk_has_flushed();
        for lba in lbas {
            let comes_in = takes_in && self.reader.lets_in(lba, run, &self.tally);
            // A region that takes no more stores takes no block in; the disk is read all the same.
            let block = if comes_in { self.reserve_one_if_easy().unwrap_or(None) } else { None };
            missing.push(Missing { lba, changes: 0, block });
        }
        for miss in &mut missing {
            miss.changes = self.table.index.lock_for(miss.lba).changes();
        }
        let answer = self.disk.read(self.on_disk(first), out);
        if let Err(error) = answer {
            self.table.free_list.give_blocks(missing.iter().filter_map(|miss| miss.block));
            return Err(error);
        }
        self.take_all_in(missing, out)
    }

    /// Takes `missing` in, whose bytes are in `out`; reads those anew that may have been written
    /// since.
    fn take_all_in(&self, mut missing: Vec<Missing>, out: &mut [u8]) -> Result<()> {
        let size = self.geometry.block_size as usize;
        let taken_in = missing.iter().zip(out.chunks_exact(size)).filter(|(miss, _)| miss.block.is_some());
        let blocks: Vec<u32> = missing.iter().filter_map(|miss| miss.block).collect();
        let taken_in = taken_in.map(|(miss, data)| (miss.lba, data as &[u8]));
        match self.reader.reads {
            Reads::Kept => self.stream_all(taken_in, &blocks),
            Reads::Forgotten => self.store_all(taken_in, &blocks),
        }
        // What is not to be durable is fenced too: nothing else tells that the memory has lost a
        // store, and shows something else than the disk.
        if !blocks.is_empty() && self.medium.fence().is_err() {
            self.table.free_list.give_blocks(missing.iter_mut().filter_map(|miss| miss.block.take()));
        }
        let mut answer = Ok(());
        for (miss, data) in missing.iter().zip(out.chunks_exact_mut(size)) {
            let taken_in = answer.and_then(|()| self.take_one_in(miss, data));
            if !matches!(taken_in, Ok(true)) {
                miss.block.into_iter().for_each(|block| self.table.free_list.give_block(block));
            }
            answer = taken_in.map(drop);
        }
        answer
    }

    /// Takes one block in, or says that it was not: there is no block for it, or it was written
    /// since it was read. Then `data` becomes what was written.
    fn take_one_in(&self, miss: &Missing, data: &mut [u8]) -> Result<bool> {
        let mut stripe = self.table.index.lock_for(miss.lba);
        match (stripe.get(miss.lba), miss.block) {
            (Some(cached), _) => self.copy_cached(&mut stripe, miss.lba, cached, data)?,
            (None, _) if stripe.changes() != miss.changes => self.disk.read(self.on_disk(miss.lba), data)?,
            (None, None) => {}
            (None, Some(_)) if self.destager.is_in_doubt(miss.lba) => {}
            // The disk has answered: that its block cannot be taken in is told to whoever writes.
            (None, Some(block)) => return Ok(self.take_in(&mut stripe, miss.lba, block).is_ok()),
        }
        Ok(false)
    }

    /// Makes an entry for `block`, which holds a block of the disk, durably unless it is to be
    /// forgotten. The entry itself need not be durable: without it, the block is only not cached.
    fn take_in(&self, stripe: &mut IndexStripe, lba: u64, block: u32) -> Result<()> {
        if self.reader.reads == Reads::Forgotten {
            self.hold(stripe, lba, block);
            return Ok(());
        }
        self.medium.refuse_after_failure()?;
        let free = self.table.free_list.take_entry();
        let counter = free.counter.wrapping_add(1);
        self.retire_before(counter).inspect_err(|_| self.table.free_list.give_entry(free))?;
        self.medium.store_lba(free.entry, lba);
        if self.medium.words_overtake() {
            self.medium.flush_entry(free.entry);
            // The caller keeps the block; without an entry for it, whoever took it next would look
            // for one for ever.
            self.medium.fence().inspect_err(|_| self.table.free_list.give_entry(free))?;
        }
        self.medium.store_state(free.entry, self.medium.plan.holding_word(lba, block, counter, true));
        let (entry, state, side) = (free.entry, BlockState::Clean, stripe.side());
        let cached = Cached { entry, block, counter, state, named: false, side };
        self.table.index.insert(stripe, lba, cached);
        stripe.counts.fills += 1;
        Ok(())
    }

    /// Copies a cached block out. If it cannot be read, or has changed, the disk stands in for a
    /// clean one.
    fn copy_cached(&self, stripe: &mut IndexStripe, lba: u64, cached: Cached, out: &mut [u8]) -> Result<()> {
        stripe.counts.read_hits += 1;
        self.table.index.asked(stripe, cached);
        match self.copy_block(lba, cached, out) {
            Err(_) if !cached.state.is_dirty() => self.disk.read(self.on_disk(lba), out),
            answer => answer,
        }
    }
}
