//! Room for a commit: free blocks, and blocks that the disk has too. A writer that finds neither
//! destages some: see `help.rs`.

use crate::cache::DiskCache;
use crate::free_list::FreeEntry;
use crate::index::{BlockState, Index, IndexStripe};
use tidegate_layout::disk_cache::{CacheEntry, EntryState};
use tidegate_media::sync::SpinGuard;
use tidegate_media::{LINE_BYTES, Poison, Region, Result};

/// Clean blocks given up together, under one fence; fewer in a cache so small that they were a
/// sizable part of it.
const EVICTED_TOGETHER: usize = 16;
const EVICTED_SHARE: usize = 64;
/// A clean block that is to go.
struct Victim {
    stripe: usize,
    lba: u64,
    entry: u32,
}

/// A victim that is gone with the next fence.
struct Freed {
    /// Its stripe, among those that are locked.
    at: usize,
    lba: u64,
    entry: FreeEntry,
    block: u32,
}

impl<R: Region> DiskCache<R> {
    /// A block to write into: free, no older state of the cache names it.
    pub(crate) fn reserve_one(&self) -> Result<u32> {
        match self.table.free_list.take_block() {
            Some(block) => Ok(block),
            None => Ok(self.reserve(1)?[0]),
        }
    }

    /// `wanted` of them, or none.
    pub(crate) fn reserve(&self, wanted: usize) -> Result<Vec<u32>> {
        if self.usable_blocks() == 0 {
            return Err(Poison { at: self.lost().at, len: LINE_BYTES }.into());
        }
        let mut taken = Vec::with_capacity(wanted);
        while !self.table.free_list.take_blocks(wanted, &mut taken) {
            if self.evict(wanted.max(self.evicted_together()))? == 0 {
                self.help(wanted)?;
            }
        }
        Ok(taken)
    }

    /// A block for something that is not worth destaging for.
    pub(crate) fn reserve_one_if_easy(&self) -> Result<Option<u32>> {
        match self.table.free_list.take_block() {
            Some(block) => Ok(Some(block)),
            None => Ok(self.reserve_if_easy(1)?.pop()),
        }
    }

    /// `wanted` blocks for something that is not worth destaging for, or none.
    pub(crate) fn reserve_if_easy(&self, wanted: usize) -> Result<Vec<u32>> {
        let mut taken = Vec::with_capacity(wanted);
        if !self.table.free_list.take_blocks(wanted, &mut taken) {
            self.evict(wanted.max(self.evicted_together()))?;
            self.table.free_list.take_blocks(wanted, &mut taken);
        }
        Ok(taken)
    }

    /// Gives up to `wanted` clean blocks up, and says how many.
    ///
    /// The stripes of all victims stay locked until the fence, and the victims in the table: were
    /// one of them cached anew before its entry is durably free, or although that store was lost, a
    /// cut could leave it cached twice. Those that no entry names go at once.
    fn evict(&self, wanted: usize) -> Result<usize> {
        let entries = self.table.index.victims(wanted, &mut |entry| self.is_clean(entry));
        let mut victims: Vec<Victim> = entries.into_iter().filter_map(|entry| self.victim(entry)).collect();
        victims.sort_unstable_by_key(|victim| victim.stripe);
        let mut locked: Vec<(usize, SpinGuard<'_, IndexStripe>)> = Vec::new();
        let mut freed: Vec<Freed> = Vec::new();
        let mut forgotten = 0;
        for victim in &victims {
            if locked.last().is_none_or(|(number, _)| *number != victim.stripe) {
                locked.push((victim.stripe, self.table.index.lock(victim.stripe)));
            }
            let at = locked.len() - 1;
            if self.forget(&mut locked[at].1, victim.lba, victim.entry) {
                forgotten += 1;
                continue;
            }
            let went = self.free_durably_with_the_next_fence(&locked[at].1, victim)?;
            freed.extend(went.map(|(entry, block)| Freed { at, lba: victim.lba, entry, block }));
        }
        if freed.is_empty() {
            return Ok(forgotten);
        }
        self.medium.fence()?;
        freed.iter().for_each(|freed| Index::remove_victim(&mut locked[freed.at].1, freed.lba));
        drop(locked);
        freed.iter().for_each(|freed| self.table.free_list.give_entry(freed.entry));
        self.table.free_list.give_blocks(freed.iter().map(|freed| freed.block));
        Ok(forgotten + freed.len())
    }

    fn evicted_together(&self) -> usize {
        EVICTED_TOGETHER.min(self.medium.plan.blocks as usize / EVICTED_SHARE).max(1)
    }

    fn is_clean(&self, entry: u32) -> bool {
        if self.reader.lba_of(entry).is_some() {
            return true;
        }
        let state = self.medium.entry(entry).ok().and_then(|entry| entry.check(&self.medium.plan).ok());
        matches!(state, Some(EntryState::Holds { clean: true, .. }))
    }

    fn victim(&self, entry: u32) -> Option<Victim> {
        let lba = match self.reader.lba_of(entry) {
            Some(lba) => lba,
            None => self.medium.entry(entry).ok()?.lba.get(),
        };
        Some(Victim { stripe: self.table.index.stripe_of(lba), lba, entry })
    }

    /// Frees a victim's entry, unless it was written or given away since it was chosen. Then the
    /// policy hears of it again when it is clean.
    fn free_durably_with_the_next_fence(
        &self,
        stripe: &IndexStripe,
        victim: &Victim,
    ) -> Result<Option<(FreeEntry, u32)>> {
        let cached = stripe.get(victim.lba).filter(|cached| cached.entry == victim.entry);
        let Some(cached) = cached.filter(|cached| cached.state == BlockState::Clean) else { return Ok(None) };
        self.medium.refuse_after_failure()?;
        let counter = cached.counter.wrapping_add(1);
        self.retire_before(counter)?;
        self.medium.store_state(victim.entry, CacheEntry::free_word(counter));
        self.medium.flush_entry(victim.entry);
        Ok(Some((FreeEntry { entry: victim.entry, counter }, cached.block)))
    }
}
