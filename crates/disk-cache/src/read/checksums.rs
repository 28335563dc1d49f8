//! Checksums of blocks, for caches that keep them.
//!
//! The sum of a block is stored when its data is, while no durable word names the block, and made
//! durable by the same fence. Whatever names the block later, entry or element, was stored after
//! that fence. So wherever an entry names a block after a cut, data and sum are both there, and
//! belong together: a sum that is wrong tells of memory that changed, and of nothing else. The sum
//! covers the block's number on the disk too, so that bytes in the wrong place are noticed. A block
//! that a restart forgets has its sum as it has its data: in the same free block's place, and not
//! durable.
//!
//! Checksums are looked at when a block is read, before it is written to the disk, and by a scrub.

use crate::cache::DiskCache;
use crate::commit::Write;
use crate::index::Cached;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_layout::disk_cache::{BlockSum, EntryState};
use tidegate_media::{Corrupt, Error, LINE_BYTES, Lba, Poison, Region, Result};

/// What a scrub found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blocks that were read, and fit their checksums, if there are any.
    pub sound: u64,
    /// Blocks that were not, and why.
    pub damaged: Vec<(Lba, Error)>,
    /// Entries that cannot be read, and no cached block is known to be theirs: what they named was
    /// lost before the cache was opened.
    pub lost: u64,
    /// The entry to go on with; None: all were looked at.
    pub next: Option<u32>,
}

impl<R: Region> DiskCache<R> {
    /// Stores each of `writes` into the block of the same place in `blocks`, with its sum; durable
    /// with this thread's next fence.
    pub(crate) fn stream_all<'a>(&self, writes: impl Iterator<Item = Write<'a>> + Clone, blocks: &[u32]) {
        for ((_, data), block) in writes.clone().zip(blocks) {
            self.medium.stream_block(*block, data);
        }
        if self.medium.plan.sums_at.is_none() {
            return;
        }
        let mut lines: BTreeSet<u64> = BTreeSet::new();
        for ((lba, data), block) in writes.zip(blocks) {
            if let Some(at) = self.medium.plan.sum_at(*block) {
                self.medium.region.store_u64(at, BlockSum::word_of(lba, data));
                lines.insert(at - at % LINE_BYTES);
            }
        }
        lines.into_iter().for_each(|line| self.medium.region.flush(line, LINE_BYTES));
    }

    /// Copies the cached block `lba` out, whose stripe is locked, or whose content stays for
    /// another reason.
    pub(crate) fn copy_block(&self, lba: u64, cached: Cached, out: &mut [u8]) -> Result<()> {
        self.medium.read_block(cached.block, out)?;
        let Some(at) = self.medium.plan.sum_at(cached.block) else { return Ok(()) };
        let (kept, found) = (self.medium.region.load_u64(at)?, BlockSum::word_of(lba, out));
        if kept == found {
            return Ok(());
        }
        self.tally.damaged.add(1);
        let found = format!("block {lba} of the disk, with {found:08x} instead of {kept:08x}");
        Err(Corrupt {
            rule: "a block has the checksum it was stored with",
            at: self.medium.plan.block_at(cached.block),
            found,
        }
        .into())
    }

    /// Whether the cache keeps checksums.
    pub fn keeps_sums(&self) -> bool {
        self.medium.plan.sums_at.is_some()
    }

    /// Reads what up to `entries_max` entries from number `from` on name. Blocks may come and go
    /// meanwhile; those that are cached all the time are read once, if every entry is looked at.
    pub fn scrub_step(&self, from: u32, entries_max: u32) -> Scrubbed {
        let until = from.saturating_add(entries_max.max(1)).min(self.medium.plan.blocks);
        let next = (until < self.medium.plan.blocks).then_some(until);
        let mut scrubbed = Scrubbed { next, ..Scrubbed::default() };
        let mut bytes = vec![0; self.geometry.block_size as usize];
        let mut unreadable = BTreeMap::new();
        for entry in from..until {
            match self.medium.entry(entry) {
                Ok(words) => {
                    let named = words.check(&self.medium.plan).ok().and_then(EntryState::lba);
                    if let Some(lba) = named.or_else(|| self.reader.lba_of(entry)) {
                        self.scrub_block(entry, lba, &mut bytes, &mut scrubbed);
                    }
                }
                Err(poison) => drop(unreadable.insert(entry, poison)),
            }
        }
        if let Some(poison) = unreadable.values().next().copied() {
            self.name_damaged(&unreadable.into_keys().collect(), poison, &mut scrubbed);
        }
        scrubbed
    }

    /// Entries that cannot be read any more are damage, though the cache knows what they named
    /// until it is opened anew.
    fn name_damaged(&self, unreadable: &BTreeSet<u32>, poison: Poison, scrubbed: &mut Scrubbed) {
        let stripes = (0..self.table.index.stripes()).map(|stripe| self.table.index.lock(stripe));
        let named: BTreeSet<u64> = stripes.flat_map(|stripe| stripe.named_by(unreadable)).collect();
        scrubbed.damaged.extend(named.into_iter().map(|lba| (Lba(lba), poison.into())));
        let opened_without = unreadable.iter().filter(|entry| self.lost().entries.binary_search(entry).is_ok());
        scrubbed.lost += opened_without.count() as u64;
    }

    /// Reads block `lba`, if `entry` names it indeed.
    fn scrub_block(&self, entry: u32, lba: u64, bytes: &mut [u8], scrubbed: &mut Scrubbed) {
        let stripe = self.table.index.lock_for(lba);
        let Some(cached) = stripe.get(lba).filter(|cached| cached.entry == entry) else { return };
        match self.copy_block(lba, cached, bytes) {
            Ok(()) => scrubbed.sound += 1,
            Err(error) => scrubbed.damaged.push((Lba(lba), error)),
        }
    }
}
