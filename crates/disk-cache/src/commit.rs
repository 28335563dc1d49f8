//! Commits: one block by its entry's second word, several by the ring.

pub(crate) mod committer;
pub(crate) mod conflicts;
mod group;
pub(crate) mod redo;
pub(crate) mod transaction;

use crate::cache::DiskCache;
use crate::commit::redo::{COUNTER_STRIDE, Move};
use crate::free_list::FreeEntry;
use crate::index::{BlockState, Cached, IndexStripe};
use std::collections::BTreeSet;
use std::iter;
use tidegate_media::sync::{Ordering, SpinGuard};
use tidegate_media::{Region, Result, Sealed};

/// A block to be committed: its number on the disk, and its bytes.
pub(crate) type Write<'a> = (u64, &'a [u8]);

impl<R: Region> DiskCache<R> {
    /// Puts all of `writes` in place, or none: their numbers ascend. Durable on return.
    pub(crate) fn commit(&self, writes: &[Write<'_>]) -> Result<()> {
        match *writes {
            [] => Ok(()),
            [(lba, data)] => self.commit_one(lba, data),
            _ => self.commit_many(writes),
        }
    }

    fn commit_one(&self, lba: u64, data: &[u8]) -> Result<()> {
        let block = self.reserve_one()?;
        self.stream_all(iter::once((lba, data)), &[block]);
        if let Err(sealed) = self.medium.fence() {
            self.table.free_list.give_block(block);
            return Err(sealed.into());
        }
        let mut stripe = self.table.index.lock_for(lba);
        let side = stripe.side();
        let known = match stripe.get_mut(lba) {
            None | Some(Cached { state: BlockState::Volatile, .. }) => return self.commit_new(stripe, lba, block),
            Some(known) => known,
        };
        let counter = known.counter.wrapping_add(1);
        let word = self.medium.plan.holding_word(lba, block, counter, false);
        self.store_one(known.entry, word, counter, known.named)?;
        let was = *known;
        *known = Cached { block, counter, state: was.state.committed(), named: true, side, ..was };
        let replaced = stripe.superseded(lba, &was);
        stripe.counts.commits += 1;
        stripe.counts.write_hits += 1;
        if !was.state.is_dirty() {
            self.table.index.turned_dirty(&mut stripe, was.entry);
            self.count_dirty();
        }
        self.committer.recent.commit(iter::once(lba));
        drop(stripe);
        replaced.into_iter().for_each(|block| self.table.free_list.give_block(block));
        self.destager.ring_doorbell();
        Ok(())
    }

    /// Commits a block that no entry names, from its data on.
    fn commit_new(&self, mut stripe: SpinGuard<'_, IndexStripe>, lba: u64, block: u32) -> Result<()> {
        if let Err(sealed) = self.medium.refuse_after_failure() {
            self.table.free_list.give_block(block);
            return Err(sealed.into());
        }
        let to = self.planned(&mut stripe, lba, block);
        self.medium.store_lba(to.entry, lba);
        if self.medium.words_overtake() {
            self.medium.flush_entry(to.entry);
            self.medium.fence()?;
        }
        let word = self.medium.plan.holding_word(lba, block, to.counter, false);
        self.store_one(to.entry, word, to.counter, false)?;
        let replaced = self.moved(&mut stripe, &to, true);
        stripe.counts.commits += 1;
        self.committer.recent.commit(iter::once(lba));
        drop(stripe);
        replaced.into_iter().for_each(|block| self.table.free_list.give_block(block));
        self.destager.ring_doorbell();
        Ok(())
    }

    /// The `word` that commits one block, made durable; the entry's first word with it unless that
    /// is, as an entry is `named`.
    fn store_one(&self, entry: u32, word: u64, counter: u16, named: bool) -> Result<()> {
        self.retire_before(counter)?;
        if named {
            self.medium.stream_state(entry, word);
        } else {
            self.medium.store_state(entry, word);
            self.medium.flush_entry(entry);
        }
        Ok(self.medium.fence()?)
    }

    /// Retires everything older if an entry's counter is about to come to a multiple of the stride,
    /// by whatever: so no element is ever so far behind its entry that it would seem ahead.
    pub(crate) fn retire_before(&self, counter: u16) -> Result<(), Sealed> {
        match counter.is_multiple_of(COUNTER_STRIDE) {
            true => redo::retire(&mut self.committer.ring.lock(), &self.medium),
            false => Ok(()),
        }
    }

    fn commit_many(&self, writes: &[Write<'_>]) -> Result<()> {
        let blocks = self.streamed(writes)?;
        let locked = Locked::new(self, writes.iter().map(|(lba, _)| *lba));
        self.place(writes, &blocks, locked)
    }

    /// Puts all of `writes` in place, unless one of them or of `reads` was committed by somebody
    /// else since `began`: then the answer is that block.
    pub(crate) fn commit_unless_conflicting(
        &self,
        writes: &[Write<'_>],
        reads: &BTreeSet<u64>,
        began: u64,
    ) -> Result<Option<u64>> {
        let blocks = self.streamed(writes)?;
        let touched = || writes.iter().map(|(lba, _)| *lba).chain(reads.iter().copied());
        let locked = Locked::new(self, touched());
        if let Some(lba) = self.committer.recent.conflict(touched(), began) {
            drop(locked);
            self.table.free_list.give_blocks(blocks.into_iter());
            return Ok(Some(lba));
        }
        if !writes.is_empty() {
            self.place(writes, &blocks, locked)?;
        }
        Ok(None)
    }

    /// Free blocks with the data of `writes` in them, durable with this thread's next fence.
    fn streamed(&self, writes: &[Write<'_>]) -> Result<Vec<u32>> {
        let blocks = self.reserve(writes.len())?;
        self.stream_all(writes.iter().copied(), &blocks);
        Ok(blocks)
    }

    /// Puts `writes` in place, whose data is in `blocks`.
    pub(crate) fn place(&self, writes: &[Write<'_>], blocks: &[u32], mut locked: Locked<'_>) -> Result<()> {
        let lbas = || writes.iter().map(|(lba, _)| *lba);
        let moves: Vec<Move> =
            lbas().zip(blocks).map(|(lba, block)| self.planned(locked.stripe(self, lba), lba, *block)).collect();
        self.commit_moves(&moves)?;
        let replaced: Vec<u32> =
            moves.iter().filter_map(|to| self.moved(locked.stripe(self, to.lba), to, false)).collect();
        locked.stripe(self, moves[0].lba).counts.commits += 1;
        self.committer.recent.commit(lbas());
        drop(locked);
        self.table.free_list.give_blocks(replaced.into_iter());
        self.destager.ring_doorbell();
        Ok(())
    }

    /// Which entry comes to name `block`.
    fn planned(&self, stripe: &mut IndexStripe, lba: u64, block: u32) -> Move {
        let cached = stripe.get(lba);
        let (FreeEntry { entry, counter }, fresh) = match cached {
            None => (self.table.free_list.take_entry(), true),
            // If the commit fails nobody may give it up: nobody knows then what its entry says.
            Some(cached) if cached.state == BlockState::Volatile => (self.take_over(stripe, lba, cached), true),
            Some(Cached { entry, counter, .. }) => (FreeEntry { entry, counter }, false),
        };
        let replaced = cached.map(|cached| cached.block);
        Move { lba, entry, block, counter: counter.wrapping_add(1), fresh, replaced }
    }

    /// Lets reads see what is durable now, the entry's first word too if it is `named` now. Returns
    /// the block that is free for that.
    fn moved(&self, stripe: &mut IndexStripe, to: &Move, named: bool) -> Option<u32> {
        let before = stripe.get(to.lba);
        let was = before.map_or(BlockState::Clean, |cached| cached.state);
        let named = named || before.is_some_and(|cached| cached.named);
        let state = was.committed();
        let side = stripe.side();
        let cached = Cached { entry: to.entry, block: to.block, counter: to.counter, state, named, side };
        if !was.is_dirty() {
            self.count_dirty();
        }
        match before {
            Some(_) => {
                stripe.update(to.lba, cached);
                if !was.is_dirty() {
                    self.table.index.turned_dirty(stripe, to.entry);
                }
            }
            None => self.table.index.insert(stripe, to.lba, cached),
        }
        match to.replaced {
            Some(_) => stripe.counts.write_hits += 1,
            None => stripe.counts.write_misses += 1,
        }
        before.map_or(to.replaced, |before| stripe.superseded(to.lba, &before))
    }

    fn count_dirty(&self) {
        // SeqCst: see `may_sleep`.
        self.table.dirty.fetch_add(1, Ordering::SeqCst);
    }
}

/// The stripes of several blocks, locked in ascending order.
pub(crate) struct Locked<'a> {
    stripes: Vec<(usize, SpinGuard<'a, IndexStripe>)>,
}

impl<'a> Locked<'a> {
    pub(crate) fn new<R: Region>(cache: &'a DiskCache<R>, lbas: impl Iterator<Item = u64>) -> Locked<'a> {
        let mut numbers: Vec<usize> = lbas.map(|lba| cache.table.index.stripe_of(lba)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Locked { stripes: numbers.into_iter().map(|number| (number, cache.table.index.lock(number))).collect() }
    }

    pub(crate) fn stripe<R: Region>(&mut self, cache: &DiskCache<R>, lba: u64) -> &mut IndexStripe {
        let number = cache.table.index.stripe_of(lba);
        let at = self.stripes.binary_search_by_key(&number, |(number, _)| *number);
        &mut self.stripes[at.expect("every block's stripe is locked")].1
    }
}
