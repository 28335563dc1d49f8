//! Direct mappings: pages of the pool that a program loads and stores by itself.
//!
//! A *mapped* entry has whole pages of its file in a block that no other process has, is out of
//! sync, and stays where it is as long as it is mapped. Its bytes may change at any time.
//!
//! | act | what happens to a mapped entry |
//! | --- | --- |
//! | a mapping is made | the newest bytes are committed into fresh blocks, which are mapped then |
//! | a store of the program | in place; old, new or torn after a power loss |
//! | `msync` | the program flushes the lines that it dirtied, and fences |
//! | a write, a hole, zeroes by others | in place, flushed and fenced at once |
//! | a sync by others | all lines of the file's mapped entries are flushed, then fenced |
//! | write-back | the entry is passed over: it gets a newer version than the batch |
//! | truncation into it, a group of writes, draining, a lease | refused: [`FileError::Mapped`] |
//! | the mapping ends | it is an entry out of sync like others |
//!
//! # Why a newer version is right
//!
//! Write-back makes every entry up to some version void. A mapped entry up to it is *renewed*
//! first: its last word is stored with the next version, flushed, **fence**. No entry lies over a
//! mapped one, so it covers what it covered before; the other words of the entry are durable since
//! its commit. A power loss leaves each entry with its old version or its new one, and both count,
//! as the batch's commit comes later.
//!
//! # What the kernel may refer to
//!
//! A device or a pipe may have the memory of a mapped block when no program has it mapped any more.
//! So before a block that was mapped is another one's, other memory is put behind it ([`Renewal`]).
//!
//! # Who says that an entry is mapped
//!
//! The medium does not: a program that has a block mapped holds a lock on the block's place in the
//! pool's file, which goes with its last mapping. The caller looks at these locks. So the next
//! process that opens the pool finds the same mappings ([`FileCache::map_again`]), and none after a
//! power loss.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::{Lane, Renewal};
use crate::lanes::slots::Slot;
use crate::sync::finding_room::WithoutRoom;
use crate::tiers::write_back::WRITE_BYTES_MAX;
use std::ops::Range;
use tidegate_layout::file_cache::{CHUNK_BYTES, Class, Extent, MappedRun, VERSION_MAX, between, in_pieces, united};
use tidegate_media::Region;

/// Every byte that a file may have.
const ALL: Range<u64> = 0..u64::MAX;

/// Parts of a lane's blocks that may be mapped: others need room too.
const MAPPED_QUARTERS: u64 = 3;

impl<R: Region> FileCache<R> {
    /// Has whole pages of the file mapped: blocks of class `page` or larger that hold the newest
    /// bytes, durably, and stay until [`FileCache::unmap`]. Says where they lie. The file's lease
    /// ends, and its unsynced writes are committed. As before a write, the caller has
    /// [noted](FileCache::note_modified) when the file is changed. What cannot be mapped wholly is
    /// not mapped.
    pub fn map(&self, file: FileId, range: Range<u64>, page: Class) -> Result<Vec<MappedRun>, FileError> {
        let is_whole = range.start < range.end && [range.start, range.end].iter().all(|at| at % page.bytes() == 0);
        if !is_whole || range.end > self.size(file)? {
            return Err(FileError::NotMappable);
        }
        let (before, page_before) = (self.mapped(file), self.time_page(file));
        let mapped = self.finding_room(|without| match without {
            WithoutRoom::Below => Ok(None),
            _ => self.exclusively(file, || self.map_exclusively(file, (&range, page), without)),
        });
        match mapped {
            Ok(Some(runs)) => Ok(runs),
            failed => {
                let was_mapped = |run: &MappedRun| before.iter().any(|kept| kept.range().contains(&run.at));
                self.unmap(file, 0, |run| page_before == Some(*run) || was_mapped(run))?;
                failed.and(Err(FileError::NoRoomForMapping))
            }
        }
    }

    /// `None`: the pool has no room for some of the pages.
    fn map_exclusively(
        &self,
        file: FileId,
        (range, page): (&Range<u64>, Class),
        without: WithoutRoom,
    ) -> Result<Option<Vec<MappedRun>>, FileError> {
        self.refresh(file)?;
        if range.end > self.lane().file(file)?.size {
            return Err(FileError::NotMappable);
        }
        self.reserve(file, range.start, range.end - range.start)?;
        self.ensure_record(file)?;
        if self.sync_exclusively(file, without)?.is_none() {
            return Ok(None);
        }
        // A sync that found no room has brought the file below, without a record.
        self.ensure_record(file)?;
        if !self.lane().ensure_time_page(file, page)? {
            return Ok(None);
        }
        let missing = self.lane().unmapped_in(file, range)?;
        if !self.lane().may_map(missing.iter().map(|gap| gap.end - gap.start).sum()) {
            return Err(FileError::NoRoomForMapping);
        }
        for at in in_pieces(missing, WRITE_BYTES_MAX) {
            let mut bytes = vec![0; usize::try_from(at.end - at.start).expect("a piece is small")];
            self.read_exclusively(file, at.start, &mut bytes)?;
            if !self.lane().map_piece(file, at.start, &bytes)? {
                return Ok(None);
            }
        }
        Ok(Some(MappedRun::joined(self.lane().mapped_in(file, range)?)))
    }

    /// Where the mapped entries of a file lie, one by one.
    pub fn mapped(&self, file: FileId) -> Vec<MappedRun> {
        self.lane().mapped_in(file, &ALL).unwrap_or_default()
    }

    /// Where the page lies in which programs say when they stored to the file's mapped pages, if it
    /// is mapped, or was until lately: see `tiers/mapped_times.rs`.
    pub fn time_page(&self, file: FileId) -> Option<MappedRun> {
        self.lane().time_page(file).ok().flatten()
    }

    /// Bytes of the lane's mapped entries.
    pub fn mapped_bytes(&self) -> u64 {
        self.lane().mapped_bytes()
    }

    /// Ends the mapping of the file's entries but those that `stays` names: no program has them
    /// mapped any more. What they stored is durable then. Says how many are left; the time page is
    /// one more, which goes last. `now` is the file's time if a program ended without a word of its
    /// stores; 0: it stays what it is.
    pub fn unmap(&self, file: FileId, now: u64, mut stays: impl FnMut(&MappedRun) -> bool) -> Result<usize, FileError> {
        let gone: Vec<MappedRun> = self.mapped(file).into_iter().filter(|run| !stays(run)).collect();
        // A later sync looks at unsynced writes only.
        self.flush_runs(&gone)?;
        let mut lane = self.lane();
        let cached = lane.file_mut(file)?;
        gone.iter().for_each(|run| _ = cached.mapped.remove(&run.at));
        let left = cached.mapped.len();
        let is_timed = lane.time_page(file)?.is_some_and(|page| left > 0 || stays(&page));
        if left == 0 && !is_timed {
            lane.end_time_page(file, now)?;
        }
        Ok(left + usize::from(is_timed))
    }

    /// From now on, blocks that programs have or had mapped are renewed by `renew` before others
    /// have them. Nobody knows which an earlier process had mapped: if there may have been any, all
    /// that are of class `page` or larger and in use count so. Without `renew`, none is renewed.
    pub fn renew_by(&self, page: Option<Class>, renew: &Option<Renewal>) {
        let mut lane = self.lane();
        lane.renew.clone_from(renew);
        let is_page = |extent: &Extent| page.is_some_and(|page| extent.class >= page);
        let pages = lane.slots.in_use().filter(|(_, slot)| is_page(&slot.extent));
        lane.exposed = pages.map(|(_, slot)| slot.extent.unit).collect();
    }

    /// Finds the mappings that programs have since an earlier process had the lane open. `has` says
    /// whether a program has any of a range of the pool mapped. Before anything else is done.
    /// `now` is the time of files whose programs ended without a word of their stores.
    pub fn map_again(&self, page: Class, now: u64, has: &mut dyn FnMut(Range<u64>) -> bool) -> Result<(), FileError> {
        let mut lane = self.lane();
        lane.map_again(page, has);
        lane.end_time_pages(now, has)
    }

    /// Writes in place what is mapped of a range, and hands the rest on. `None`: some of that found
    /// no room.
    pub(crate) fn around_mapped(
        &self,
        file: FileId,
        (at, data): (u64, &[u8]),
        mut write: impl FnMut((u64, &[u8])) -> Result<Option<()>, FileError>,
    ) -> Result<Option<()>, FileError> {
        let range = at..at + data.len() as u64;
        let mapped = united(self.lane().mapped_in(file, &range)?.iter().map(MappedRun::range).collect());
        let of = |part: &Range<u64>| {
            let [from, until] = [part.start, part.end].map(|place| usize::try_from(place - at));
            &data[from.unwrap_or(usize::MAX)..until.unwrap_or(usize::MAX)]
        };
        for part in between(&range, &mapped) {
            if write((part.start, of(&part)))?.is_none() {
                return Ok(None);
            }
        }
        for part in mapped {
            self.lane().store_mapped(file, part.start, of(&part))?;
        }
        Ok(Some(()))
    }

    /// Makes durable what programs stored to the file's mapped pages so far.
    pub(crate) fn sync_mapped_of(&self, file: FileId) -> Result<(), FileError> {
        self.flush_runs(&self.mapped(file))
    }

    /// Makes the bytes of mapped blocks durable. One that is mapped no more by now is flushed for
    /// nothing. Others have the lane between one block and the next.
    fn flush_runs(&self, runs: &[MappedRun]) -> Result<(), FileError> {
        for run in runs {
            self.lane().medium.region.flush(run.pool_at, run.bytes);
        }
        if !runs.is_empty() {
            self.lane().medium.fence()?;
        }
        Ok(())
    }

    /// An error if a file has mapped pages behind `end`, or any, and be it the time page.
    pub(crate) fn refuse_mapped(&self, file: FileId, end: u64) -> Result<(), FileError> {
        let lane = self.lane();
        let is_mapped = lane.is_mapped_in(file, &(end..ALL.end))? || end == 0 && lane.time_page(file)?.is_some();
        if is_mapped { Err(FileError::Mapped) } else { Ok(()) }
    }
}

impl<R: Region> Lane<R> {
    /// The mapped parts of a range of a file, ascending.
    fn runs<'l>(&'l self, file: &'l File, range: &'l Range<u64>) -> impl Iterator<Item = MappedRun> + 'l {
        // No block is longer than a chunk.
        let touching = file.mapped.range(range.start.saturating_sub(CHUNK_BYTES)..range.end);
        let run = |slot: &u32| {
            let extent = self.slots.used(*slot).extent;
            let (pool_at, bytes) = (self.medium.plan.block_at(extent.unit), extent.length.into());
            MappedRun { at: extent.offset, pool_at, bytes }
        };
        touching.filter_map(move |(_, slot)| run(slot).within(range))
    }

    fn mapped_in(&self, file: FileId, range: &Range<u64>) -> Result<Vec<MappedRun>, FileError> {
        Ok(self.runs(self.file(file)?, range).collect())
    }

    /// The parts of a range that are not mapped.
    fn unmapped_in(&self, file: FileId, range: &Range<u64>) -> Result<Vec<Range<u64>>, FileError> {
        let mapped: Vec<_> = self.mapped_in(file, range)?.iter().map(MappedRun::range).collect();
        Ok(between(range, &mapped))
    }

    /// Whether any of a range is mapped.
    pub(crate) fn is_mapped_in(&self, file: FileId, range: &Range<u64>) -> Result<bool, FileError> {
        Ok(self.runs(self.file(file)?, range).next().is_some())
    }

    /// Whether a slot of the file is mapped.
    pub(crate) fn is_mapped(file: &File, (number, slot): &(u32, Slot)) -> bool {
        file.mapped.get(&slot.extent.offset) == Some(number)
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.files.iter().flatten().flat_map(|file| self.runs(file, &ALL)).map(|run| run.bytes).sum()
    }

    fn may_map(&self, bytes: u64) -> bool {
        self.mapped_bytes() + bytes <= self.medium.plan.data_bytes() / 4 * MAPPED_QUARTERS
    }

    /// Commits pages into fresh blocks, and has these mapped. False: there is no room.
    fn map_piece(&mut self, file: FileId, at: u64, bytes: &[u8]) -> Result<bool, FileError> {
        let Some(entries) = self.commit_fresh(file, at, bytes)? else { return Ok(false) };
        for slot in entries {
            let Extent { offset, unit, .. } = self.slots.used(slot).extent;
            self.exposed.insert(unit);
            self.file_mut(file)?.mapped.insert(offset, slot);
        }
        // Nothing is put behind the bytes of a mapped block.
        self.file_mut(file)?.tail = None;
        Ok(true)
    }

    fn store_mapped(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<(), FileError> {
        self.store_time(file)?;
        for run in self.mapped_in(file, &(at..at + data.len() as u64))? {
            let from = usize::try_from(run.at - at).expect("inside the data");
            let until = from + usize::try_from(run.bytes).expect("inside the data");
            self.medium.region.stream(run.pool_at, &data[from..until]);
        }
        Ok(self.medium.fence()?)
    }

    /// Gives the mapped entries of a file up to `version` the next version, durably.
    pub(crate) fn renew_mapped(&mut self, file: FileId, version: u64) -> Result<(), FileError> {
        let cached = self.file(file)?;
        let old = self.slots.up_to(cached.out_of_sync, version);
        let old: Vec<(u32, Slot)> = old.filter(|entry| Lane::<R>::is_mapped(cached, entry)).collect();
        if old.is_empty() {
            return Ok(());
        }
        if self.version == VERSION_MAX {
            return Err(FileError::Worn);
        }
        let next = self.version + 1;
        for (number, slot) in &old {
            self.medium.store_state(*number, next, slot.extent.length);
            self.medium.flush_entry(*number);
        }
        self.medium.fence()?;
        self.version = next;
        let mut chain = self.file(file)?.out_of_sync;
        old.iter().for_each(|(number, _)| self.slots.renew(*number, next, &mut chain));
        self.file_mut(file)?.out_of_sync = chain;
        Ok(())
    }

    /// Gives up time pages that no program has mapped, of files that none has mapped.
    fn end_time_pages(&mut self, now: u64, has: &mut dyn FnMut(Range<u64>) -> bool) -> Result<(), FileError> {
        for number in 0..u32::try_from(self.files.len()).unwrap_or(u32::MAX) {
            let file = FileId(number);
            let Ok(Some(page)) = self.time_page(file) else { continue };
            if self.file(file)?.mapped.is_empty() && !has(page.pool_at..page.pool_at + page.bytes) {
                self.end_time_page(file, now)?;
            }
        }
        Ok(())
    }

    fn map_again(&mut self, page: Class, has: &mut dyn FnMut(Range<u64>) -> bool) {
        let plan = &self.medium.plan;
        if !has(plan.chunks_at()..plan.chunks_at() + plan.data_bytes()) {
            return;
        }
        for file in self.files.iter_mut().flatten() {
            for (number, Slot { extent, newest, .. }) in self.slots.of(file.out_of_sync) {
                let length = u64::from(extent.length);
                let is_page = [extent.offset, length].iter().all(|at| at % page.bytes() == 0);
                let at = plan.block_at(extent.unit);
                if is_page && extent.class >= page && newest == length && has(at..at + length) {
                    file.mapped.insert(extent.offset, number);
                    file.tail = file.tail.filter(|tail| *tail != number);
                }
            }
        }
    }
}
