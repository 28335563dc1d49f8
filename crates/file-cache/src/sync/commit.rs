//! Commits of fresh blocks, and of records, by the ring.

use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::region_io::LaneElement;
use crate::sync::Source;
use crate::sync::group::bytes_of;
use std::ops::Range;
use tidegate_layout::file_cache::{Change, Class, Extent, FileElement, VERSION_MAX};
use tidegate_media::{Error, Region};
use tidegate_wal::Retire;

/// Blocks for files that grow at their end get larger up to this class.
const GROWING_CLASS_MAX: Class = Class::ALL[4];

/// A new block: what it is to hold.
pub(crate) struct Placed {
    slot: u32,
    extent: Extent,
}

impl<R: Region> Lane<R> {
    /// Takes entries and blocks for `ranges`, or nothing if there are not enough.
    pub(super) fn place(&mut self, file: FileId, ranges: &[Range<u64>]) -> Result<Option<Vec<Placed>>, FileError> {
        let mut placed = Vec::new();
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let class = self.class_for(file, at, range.end)?;
                let taken = if placed.len() < self.medium.plan.commit_elements_max() {
                    self.take(class, file.0)?
                } else {
                    None
                };
                let Some((slot, unit)) = taken else {
                    self.give_back(&placed);
                    self.short_of_room = Some(file);
                    return Ok(None);
                };
                let length = u32::try_from((range.end - at).min(class.bytes())).expect("a block is small");
                placed.push(Placed { slot, extent: Extent { file: file.0, offset: at, length, unit, class } });
                at += u64::from(length);
            }
        }
        Ok(Some(placed))
    }

    /// How large a block is to be for what lies from `at` to `end`: one that it fills at least
    /// half, or the largest that it fills. A file that outgrows its last block at its end gets a
    /// larger one.
    fn class_for(&self, file: FileId, at: u64, end: u64) -> Result<Class, FileError> {
        let bytes = end - at;
        let holding = Class::holding(bytes);
        let filled = Class::ALL.into_iter().rev().find(|class| class.bytes() <= bytes);
        let fitting = match (holding, filled) {
            (Some(holding), Some(filled)) => {
                if bytes * 2 > holding.bytes() {
                    holding
                } else {
                    filled
                }
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => Class::ALL[0],
        };
        let cached = self.file(file)?;
        let tail = cached.tail.map(|slot| self.slots.used(slot));
        let grown =
            tail.filter(|slot| slot.extent.end() == at && cached.record.is_some_and(|record| record.size == at));
        let larger = grown.and_then(|slot| Class::holding(slot.extent.class.bytes() + 1));
        Ok(larger.map_or(fitting, |larger| larger.min(GROWING_CLASS_MAX).max(fitting)))
    }

    /// An entry and a block for the file of this number, given up by clean ones if none is free.
    pub(crate) fn take(&mut self, class: Class, file: u32) -> Result<Option<(u32, u32)>, FileError> {
        loop {
            if let Some(slot) = self.slots.take_free() {
                if let Some(unit) = self.blocks.take(class, file) {
                    return Ok(Some((slot, unit)));
                }
                self.slots.give_back(slot);
            }
            if !self.give_up_clean()? {
                return Ok(None);
            }
        }
    }

    /// An entry, given up by a clean one if none is free.
    pub(crate) fn take_entry(&mut self) -> Result<Option<u32>, FileError> {
        loop {
            if let Some(slot) = self.slots.take_free() {
                return Ok(Some(slot));
            }
            if !self.give_up_clean()? {
                return Ok(None);
            }
        }
    }

    fn give_back(&mut self, placed: &[Placed]) {
        for Placed { slot, extent } in placed {
            self.blocks.give(extent.unit, extent.class);
            self.slots.give_back(*slot);
        }
    }

    /// Steps 1 to 4 of a commit.
    pub(super) fn commit_placed(
        &mut self,
        file: FileId,
        placed: &[Placed],
        source: Source<'_>,
    ) -> Result<(), FileError> {
        for Placed { extent, .. } in placed {
            self.stream(file, extent, &(extent.offset..extent.end()), source)?;
        }
        let version = self.version + 1;
        let changes: Vec<Change> = placed
            .iter()
            .map(|Placed { slot, extent }| Change::Entry { slot: *slot, extent: *extent, version })
            .collect();
        self.commit_changes(&changes)?;
        // What they lie over now is freed behind the next commit.
        if self.file(file)?.lease.is_some() {
            self.note_dropped(file)?;
        }
        for Placed { slot, extent } in placed {
            self.index_entry(file, *slot, extent, version)?;
        }
        Ok(())
    }

    /// Commits `data` into fresh blocks, of which it fills each from the beginning, and says which
    /// entries name them. `None`: there is no room.
    pub(crate) fn commit_fresh(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<Option<Vec<u32>>, FileError> {
        let range = at..at + data.len() as u64;
        let Some(placed) = self.place(file, std::slice::from_ref(&range))? else { return Ok(None) };
        self.store_time(file)?;
        self.commit_placed(file, &placed, Source::Given { at, data })?;
        self.counters.commits += 1;
        self.counters.bytes_committed += range.end - range.start;
        Ok(Some(placed.iter().map(|placed| placed.slot).collect()))
    }

    /// Makes clean entries of `data`, which the file below has in `range`, durably. Nothing rests
    /// on them, so the ring is not needed: what they say is durable before their last words
    /// are stored. False if there is no room.
    pub(crate) fn store_clean_entries(
        &mut self,
        file: FileId,
        range: &Range<u64>,
        data: &[u8],
    ) -> Result<bool, FileError> {
        if self.version == VERSION_MAX {
            return Err(FileError::Worn);
        }
        // No program lacks room if this finds none.
        let short_of_room = self.short_of_room;
        let placed = self.place(file, std::slice::from_ref(range))?;
        self.short_of_room = short_of_room;
        let Some(placed) = placed else { return Ok(false) };
        let version = self.version + 1;
        for Placed { slot, extent } in &placed {
            let source = Source::Given { at: range.start, data };
            self.stream(file, extent, &(extent.offset..extent.end()), source)?;
            self.medium.store_state(*slot, version, 0);
            self.medium.flush_entry(*slot);
        }
        self.medium.fence()?;
        for Placed { slot, extent } in &placed {
            self.medium.store_extent(*slot, extent);
            self.medium.store_clean(*slot, extent);
            self.medium.flush_entry(*slot);
        }
        self.medium.fence()?;
        for Placed { slot, extent } in &placed {
            self.medium.store_state(*slot, version, extent.length);
            self.medium.flush_entry(*slot);
        }
        self.medium.fence()?;
        self.version = version;
        placed
            .iter()
            .try_for_each(|Placed { slot, extent }| self.index_clean(file, *slot, extent, version))
            .map(|()| true)
    }

    /// Commits `changes`, which carry the next version or later ones, by the ring, and stores them.
    /// Data they speak of was streamed. Entries that died before are free afterwards.
    pub(crate) fn commit_changes(&mut self, changes: &[Change]) -> Result<(), FileError> {
        let newest = changes.iter().map(Change::version).fold(self.version, u64::max);
        if newest > VERSION_MAX {
            return Err(FileError::Worn);
        }
        let medium = &self.medium;
        let elements: Vec<LaneElement> = changes.iter().map(|change| LaneElement(FileElement::new(change))).collect();
        self.ring.stream(&medium.region, &elements)?;
        if medium.words_overtake() {
            medium.prepare(changes)?;
        }
        let dead = std::mem::take(&mut self.dying);
        let spoilt = std::mem::take(&mut self.spoilt);
        dead.iter().chain(&spoilt).for_each(|slot| medium.flush_entry(*slot));
        self.ring.commit(&medium.region, &elements, Retire::AsNeeded, |target| medium.flush_target(target))?;
        changes.iter().for_each(|change| medium.carry_out(change));
        self.version = newest;
        dead.into_iter().for_each(|slot| self.free_slot(slot));
        Ok(())
    }

    /// Streams the bytes of `range`, a part of what `extent` is to hold.
    pub(super) fn stream(
        &self,
        file: FileId,
        extent: &Extent,
        range: &Range<u64>,
        source: Source<'_>,
    ) -> Result<(), FileError> {
        let within = range.start - extent.offset;
        let len = usize::try_from(range.end - range.start).expect("a block is small");
        match source {
            Source::Given { at, data } => {
                let from = usize::try_from(range.start - at).expect("inside the data");
                self.medium.stream_block(extent.unit, within, &data[from..from + len]);
            }
            Source::Group(writes) => self.medium.stream_block(extent.unit, within, bytes_of(writes, range)),
            Source::Unsynced => {
                let mut bytes = vec![0; len];
                let written = &self.file(file)?.written;
                self.unsynced.overlay(written, range.start, &mut bytes).map_err(Error::from)?;
                self.medium.stream_block(extent.unit, within, &bytes);
            }
        }
        Ok(())
    }
}
