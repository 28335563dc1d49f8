//! Which blocks a lease gets: those of chunks of its own.
//!
//! 1. Free blocks of its chunks, of those with most of them first.
//! 2. A chunk none of whose blocks is in use, as long as leases do not have too many.
//! 3. Blocks of its chunks whose bytes are below too: clean entries of its file, from where the
//!    last search for them ended.
//! 4. Chunks all of whose entries are clean: those are given up.

use crate::error::FileError;
use crate::lanes::lane::Lane;
use crate::lanes::slots::{Slot, Standing};
use std::collections::BTreeSet;
use tidegate_layout::file_cache::{Change, FileEntry, LEASE_CLASS, LeaseMark, LentChunk, UNITS_PER_CHUNK, VERSION_MAX};
use tidegate_media::Region;

/// The most of a lane's chunks that one lease has, and that all of them have: one in so many.
const CHUNKS_OF_A_LEASE: u32 = 4;
const CHUNKS_OF_LEASES: u32 = 2;

/// Chunks that are cleared together: a search for them looks at every entry of the lane.
const CLEARED_TOGETHER: usize = 4;

/// How much of a file is looked at in one step of a search for clean entries, and how many steps
/// there are at most.
const STEP_BYTES: u64 = 2 << 20;
const STEPS_MAX: u32 = 16;

impl<R: Region> Lane<R> {
    /// Up to `wanted` blocks for a lease, each with an entry.
    pub(super) fn blocks_for_lease(&mut self, lease: u32, wanted: usize) -> Result<Vec<(u32, u32)>, FileError> {
        let mut units = self.blocks.take_lent(lease, wanted);
        while units.len() < wanted && self.lend_chunk(lease)? {
            units.extend(self.blocks.take_lent(lease, wanted - units.len()));
        }
        if units.is_empty() && wanted > 0 && self.clears_room(lease, wanted)? {
            units = self.blocks.take_lent(lease, wanted);
        }
        let mut blocks = Vec::with_capacity(units.len());
        for unit in units {
            match self.take_entry()? {
                Some(entry) => blocks.push((unit, entry)),
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
        let (Some(chunk), Some(lent)) = (self.blocks.lend_chunk(lease), self.leases.get_mut(&lease)) else {
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
        let (lent, chunks) = (self.blocks.lent(), self.medium.plan.chunks);
        let is_below = |count: usize, one_in: u32| count < (chunks / one_in).max(1) as usize;
        is_below(lent.count_of(lease), CHUNKS_OF_A_LEASE) && is_below(lent.count(), CHUNKS_OF_LEASES)
    }

    /// Makes room where all of it is taken, and says whether the lease has free blocks then.
    fn clears_room(&mut self, lease: u32, wanted: usize) -> Result<bool, FileError> {
        self.free_dying(lease)?;
        if self.blocks.lent().freest(lease).is_some() {
            return Ok(true);
        }
        self.give_up_clean_of(lease, wanted)?;
        if self.blocks.lent().freest(lease).is_some() {
            return Ok(true);
        }
        Ok(self.may_have_more(lease) && self.clear_chunks()? && self.lend_chunk(lease)?)
    }

    /// What the last commit freed may be used after another one: the log's entry says once more how
    /// many elements were adopted. A lease that was granted has such an entry.
    fn free_dying(&mut self, slot: u32) -> Result<(), FileError> {
        let version = self.version + 1;
        match self.leases.get(&slot) {
            Some(lease) if lease.given > 0 && !self.dying.is_empty() => {
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
                let is_clean = matches!(slot.standing, Standing::Clean | Standing::Marked);
                is_clean && self.blocks.lent().lease_of(chunk_of(slot.extent.unit)) == Some(lease)
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
