//! Which blocks a lease gets: those of chunks of its own.
//!
//! 1. Free blocks of its chunks, of those with most of them first.
//! 2. A chunk none of whose blocks is in use, or whose blocks in use are all of the lease's file,
//!    as long as leases do not have too many.
//! 3. Chunks all of whose entries are clean: those are given up, of the chunks with the fewest
//!    bytes.
//! 4. Blocks of its chunks whose bytes are below too: clean entries of its file, from where the
//!    last search for them ended.

use crate::error::FileError;
use crate::lanes::lane::Lane;
use crate::lanes::lease::LentBlock;
use crate::lanes::slots::{Slot, Standing};
use std::collections::BTreeSet;
use tidegate_layout::file_cache::{Change, FileEntry, LEASE_CLASS, LeaseMark, LentChunk, UNITS_PER_CHUNK, VERSION_MAX};
use tidegate_media::Region;

/// Of a lane's chunks, so many quarters: what one lease may keep when others need room, what all of
/// them may have then, and what they may have while nobody does.
const KEPT_BY_ONE: u32 = 1;
const KEPT_BY_ALL: u32 = 2;
const LENT_MAX: u32 = 3;

/// With one in so many chunks free of blocks, nobody is short of room.
const SPARE: u32 = 8;

/// Chunks that are cleared together: a search for them looks at every entry of the lane.
const CLEARED_TOGETHER: usize = 16;

/// Blocks that a lease gets between two such searches, if it gets any.
const SEARCH_EVERY: u64 = 2048;

/// How much of a file is looked at in one step of a search for clean entries, and how many steps
/// there are at most.
const STEP_BYTES: u64 = 2 << 20;
const STEPS_MAX: u32 = 16;

impl<R: Region> Lane<R> {
    /// Up to `wanted` blocks for a lease, each with an entry.
    pub(super) fn blocks_for_lease(&mut self, lease: u32, wanted: usize) -> Result<Vec<LentBlock>, FileError> {
        let mut units = self.blocks.take_lent(lease, wanted);
        while units.len() < wanted && self.lend_chunk(lease)? {
            units.extend(self.blocks.take_lent(lease, wanted - units.len()));
        }
        // A process that gets few blocks at a time asks often; but a search takes long.
        if units.is_empty() || units.len() < wanted.div_ceil(2) && self.may_search(lease) {
            self.clear_room(lease, wanted - units.len())?;
            units.extend(self.blocks.take_lent(lease, wanted - units.len()));
        }
        let mut blocks = Vec::with_capacity(units.len());
        for unit in units {
            match self.take_entry()? {
                Some(entry) => blocks.push(LentBlock { unit, entry }),
                None => self.blocks.give(unit, LEASE_CLASS),
            }
        }
        Ok(blocks)
    }

    /// Lends a chunk none of whose blocks is in use. False: there is none, or the lease has enough.
    fn lend_chunk(&mut self, lease: u32) -> Result<bool, FileError> {
        if !self.may_have_more(lease) {
            return Ok(false);
        }
        if self.version == VERSION_MAX {
            return Err(FileError::Worn);
        }
        let Some(entry) = self.take_entry()? else { return Ok(false) };
        let lent = self.leases.get_mut(&lease);
        let lent = lent.and_then(|lent| Some((self.blocks.lend_chunk(lease, lent.file.0)?, lent)));
        let Some((chunk, lent)) = lent else {
            self.slots.give_back(entry);
            return Ok(false);
        };
        lent.chunks.push(entry);
        let lent = LentChunk { file: lent.file.0, chunk, log: lease };
        self.version += 1;
        self.medium.put_entry(entry, FileEntry::lent_chunk_words(&lent, self.version))?;
        Ok(true)
    }

    fn may_have_more(&self, lease: u32) -> bool {
        let lent = self.blocks.lent();
        let is_fair = self.is_below(lent.of(lease).len(), KEPT_BY_ONE) && self.is_below(lent.count(), KEPT_BY_ALL);
        is_fair || !self.others_need_room(lease) && self.is_below(lent.count(), LENT_MAX)
    }

    fn is_below(&self, chunks: usize, quarters: u32) -> bool {
        chunks < (u64::from(self.medium.plan.chunks) * u64::from(quarters) / 4).max(1) as usize
    }

    /// Whether another file than the one of a lease found no room, and would find little now.
    fn others_need_room(&self, lease: u32) -> bool {
        let own = self.leases.get(&lease).map(|lease| lease.file);
        let is_short = self.short_of_room.is_some_and(|file| Some(file) != own);
        is_short && self.blocks.whole() < (self.medium.plan.chunks / SPARE) as usize
    }

    /// Whether a lease is to end because others found no room and it has more than it may keep.
    pub(super) fn is_to_yield(&self, lease: u32) -> bool {
        self.others_need_room(lease) && !self.is_below(self.blocks.lent().of(lease).len(), KEPT_BY_ONE)
    }

    /// Whether a lease got many blocks since room was made for it.
    fn may_search(&mut self, lease: u32) -> bool {
        let Some(lent) = self.leases.get_mut(&lease) else { return false };
        let given = lent.given();
        let may = given >= lent.searched + SEARCH_EVERY;
        if may {
            lent.searched = given;
        }
        may
    }

    /// Makes room where all of it is taken: for `wanted` blocks, if that can be.
    fn clear_room(&mut self, lease: u32, wanted: usize) -> Result<(), FileError> {
        let before = self.blocks.free_of(lease);
        let has_enough = |lane: &Lane<R>| lane.blocks.free_of(lease) - before >= wanted.div_ceil(2);
        self.free_dying(lease)?;
        if has_enough(self) {
            return Ok(());
        }
        if self.may_have_more(lease) && self.clear_chunks()? {
            while !has_enough(self) && self.lend_chunk(lease)? {}
        }
        if has_enough(self) { Ok(()) } else { self.give_up_clean_of(lease, wanted) }
    }

    /// What the last commit freed may be used after another one: the log's entry says once more how
    /// many elements were adopted. A lease that was granted has such an entry.
    fn free_dying(&mut self, slot: u32) -> Result<(), FileError> {
        let version = self.version + 1;
        match self.leases.get(&slot) {
            Some(lease) if lease.given() > 0 && !self.dying.is_empty() => {
                self.commit_changes(&[Change::Lease { slot, mark: LeaseMark::open(lease.adopted), version }])
            }
            _ => Ok(()),
        }
    }

    /// Gives up about `wanted` clean entries that a lease's file has in chunks of the lease.
    fn give_up_clean_of(&mut self, lease: u32, wanted: usize) -> Result<(), FileError> {
        let Some(lent) = self.leases.get(&lease) else { return Ok(()) };
        let (file, mut at, mut found) = (lent.file, lent.given_up_to, BTreeSet::new());
        let newest = &self.file(file)?.newest;
        for _ in 0..STEPS_MAX {
            let Some(first) = newest.first_from(at) else {
                at = 0;
                continue;
            };
            at = first.start.saturating_add(STEP_BYTES);
            let slots = newest.within(first.start..at).into_iter().map(|(_, slot)| slot);
            found.extend(slots.filter(|slot| {
                let slot = self.slots.used(*slot);
                slot.standing.is_clean() && self.blocks.lent().lease_of(chunk_of(slot.extent.unit)) == Some(lease)
            }));
            if found.len() >= wanted {
                break;
            }
        }
        if let Some(lent) = self.leases.get_mut(&lease) {
            lent.given_up_to = at;
        }
        self.give_up(&Vec::from_iter(found))
    }

    /// Gives up all entries of a few chunks that have clean ones only: of those with the fewest
    /// bytes. False: there are none.
    fn clear_chunks(&mut self) -> Result<bool, FileError> {
        let mut chunks: Vec<(u64, u32)> =
            (0..).zip(self.clean_by_chunk()).filter_map(|(chunk, bytes)| Some((bytes?, chunk))).collect();
        chunks.retain(|(bytes, chunk)| *bytes > 0 && self.blocks.lent().lease_of(*chunk).is_none());
        chunks.sort_unstable();
        let chosen: BTreeSet<u32> = chunks.iter().take(CLEARED_TOGETHER).map(|(_, chunk)| *chunk).collect();
        let is_chosen = |slot: &Slot| chosen.contains(&chunk_of(slot.extent.unit));
        let victims: Vec<u32> =
            self.slots.in_use().filter(|(_, slot)| is_chosen(slot)).map(|(number, _)| number).collect();
        self.give_up(&victims)?;
        Ok(!victims.is_empty())
    }

    /// The bytes of each chunk that lie below too; `None`: something else is there.
    fn clean_by_chunk(&self) -> Vec<Option<u64>> {
        let mut clean = vec![Some(0); self.medium.plan.chunks as usize];
        for lease in self.leases.values() {
            clean[chunk_of(lease.unit) as usize] = None;
        }
        for (_, slot) in self.slots.in_use() {
            let bytes = &mut clean[chunk_of(slot.extent.unit) as usize];
            *bytes = match slot.standing {
                Standing::Clean | Standing::Marked => bytes.map(|bytes| bytes + slot.newest),
                Standing::Free | Standing::OutOfSync | Standing::Dying => None,
            };
        }
        clean
    }
}

fn chunk_of(unit: u32) -> u32 {
    unit / UNITS_PER_CHUNK
}
