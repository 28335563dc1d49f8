//! Which clean bytes the pool keeps: a [`Placement`] decides, by what programs do.
//!
//! Of its two tiers only NVM is here. The DRAM of clean pages is the kernel's page cache, which the
//! caller's reads come through: what it answers by itself is not known here. Unsynced and
//! out-of-sync bytes are no matter of placement, as they have to be where they are; the placement
//! hears of them when they have become clean.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::io::FILE_BYTES_MAX;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use std::ops::Range;
use tidegate_layout::file_cache::{CHUNK_BYTES, Extent, UNITS_PER_CHUNK};
use tidegate_media::Region;
use tidegate_policy::placement::{
    Condition, Decision, FileExtent, FilePage, FreeSlots, IoKind, IoRequest, LearntPattern, NamedPlacement, PAGE_BYTES,
    Placement, Tier, TierSlots, Work,
};

/// Bytes that are admitted together, aligned.
pub const GRANULE_BYTES: u64 = 64 << 10;

/// A read or write of a program that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramAccess {
    /// Where it began.
    pub at: u64,
    /// How many bytes it read or wrote.
    pub bytes: u64,
    /// Which kind it was.
    pub kind: IoKind,
    /// The program's context: requests of one are alike.
    pub context: u64,
}

/// What the placement did with clean bytes in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementStep {
    /// Nothing was to do.
    Idle,
    /// It made room, or tried.
    Worked,
}

/// The placement of that name for a lane with so many entries.
pub(crate) fn placement(name: NamedPlacement, entries: u32) -> Box<dyn Placement> {
    name.over(TierSlots { dram: 0, nvm: entries })
}

impl<R: Region> FileCache<R> {
    /// Has another placement decide from now on. It knows nothing of what programs did.
    pub fn place_by(&self, name: NamedPlacement) {
        let mut lane = self.lane();
        // The former one's memory first.
        lane.clean = placement(name, 0);
        lane.clean = placement(name, lane.medium.plan.entries);
        let clean = lane.slots.in_use().filter(|(_, slot)| slot.standing.is_clean());
        let clean: Vec<(u32, Extent)> = clean.map(|(number, slot)| (number, slot.extent)).collect();
        clean.into_iter().for_each(|(number, extent)| lane.placed_clean(number, &extent));
    }

    /// What the placement knows of program contexts, the one used last first.
    pub fn known_contexts(&self) -> Vec<LearntPattern> {
        self.lane().clean.known_contexts()
    }

    /// Has the placement take over what an earlier one knew of contexts.
    pub fn take_over_contexts(&self, known: &[LearntPattern]) {
        self.lane().clean.take_over(known);
    }

    /// Tells of a read or write of a file, and returns the ranges that the placement wants to be
    /// [admitted](FileCache::admit). Clean bytes that it does not want are given up. `None`: the
    /// file has no record, which costs more than one read is worth.
    pub fn accessed(&self, file: FileId, access: &ProgramAccess) -> Result<Option<Vec<Range<u64>>>, FileError> {
        let end = access.at.saturating_add(access.bytes).min(FILE_BYTES_MAX);
        let access = ProgramAccess { bytes: end.saturating_sub(access.at), ..*access };
        if access.bytes == 0 { Ok(Some(Vec::new())) } else { self.lane().accessed(file, &access) }
    }

    /// Makes room as the placement wants to have it ahead of need. For a thread in the background.
    pub fn placement_step(&self) -> Result<PlacementStep, FileError> {
        self.lane().placement_step()
    }
}

impl<R: Region> Lane<R> {
    fn accessed(&mut self, file: FileId, access: &ProgramAccess) -> Result<Option<Vec<Range<u64>>>, FileError> {
        let has_record = self.file(file)?.record.is_some();
        if access.kind != IoKind::Read || !has_record {
            self.note_write(file, access)?;
            return Ok(has_record.then(Vec::new));
        }
        let request = self.begin_request(file, access)?;
        let (free, range) = (self.free_slots(), access.at..access.at + access.bytes);
        let cached = self.file(file)?;
        let entries = cached.newest.within(range.clone());
        let missing = tidegate_layout::file_cache::between(&range, &cached.parts_here(&range));
        let last = cached.placed_last;
        let missed = missing.iter().map(|missing| missing.end - missing.start).sum();
        self.count_pattern(access.context, access.bytes, missed);
        let unwanted = self.place_entries(file, &request, (&entries, last), free)?;
        self.give_up(&unwanted)?;
        Ok(Some(self.wanted(file, &request, missing, free)))
    }

    /// Tells the placement of a write. What it wrote is no clean entry, but warms its extent.
    pub(crate) fn note_write(&mut self, file: FileId, access: &ProgramAccess) -> Result<(), FileError> {
        let request = self.begin_request(file, access)?;
        let free = self.free_slots();
        self.clean.place(&request, page_at(file, access.at), None, free);
        Ok(())
    }

    /// The placement hears of a request, whose pages it is asked about next.
    fn begin_request(&mut self, file: FileId, access: &ProgramAccess) -> Result<IoRequest, FileError> {
        let ProgramAccess { at, bytes, kind, context } = *access;
        let request = IoRequest {
            file: u64::from(file.0),
            offset: at,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            kind,
            context,
            now_ms: self.now,
        };
        self.file_mut(file)?.context = context;
        self.clean.begin(&request);
        Ok(request)
    }

    /// Tells the placement of clean entries that a request touched, but of the one that the request
    /// before it ended in. Returns those that are not wanted any more.
    fn place_entries(
        &mut self,
        file: FileId,
        request: &IoRequest,
        (entries, last): (&[(Range<u64>, u32)], Option<u32>),
        free: FreeSlots,
    ) -> Result<Vec<u32>, FileError> {
        let (mut before, mut unwanted) = (last, Vec::new());
        for (range, number) in entries {
            let is_another = before.replace(*number) != Some(*number);
            if !is_another || !self.slots.used(*number).standing.is_clean() {
                continue;
            }
            if let Decision::Below(_) = self.clean.place(request, page_at(file, range.start), Some(*number), free) {
                unwanted.push(*number);
            }
        }
        self.file_mut(file)?.placed_last = before;
        unwanted.sort_unstable();
        unwanted.dedup();
        Ok(unwanted)
    }

    /// The granules of missing ranges that the placement wants in the pool.
    fn wanted(
        &mut self,
        file: FileId,
        request: &IoRequest,
        missing: Vec<Range<u64>>,
        free: FreeSlots,
    ) -> Vec<Range<u64>> {
        let mut wanted: Vec<Range<u64>> = Vec::new();
        for missing in missing {
            let first = missing.start - missing.start % GRANULE_BYTES;
            for granule in (first..missing.end).step_by(usize::try_from(GRANULE_BYTES).expect("small")) {
                if wanted.last().is_some_and(|last| last.start == granule) {
                    continue;
                }
                let page = page_at(file, granule.max(missing.start));
                if let Decision::ToNvm(_) = self.clean.place(request, page, None, free) {
                    wanted.push(granule..granule + GRANULE_BYTES);
                }
            }
        }
        wanted
    }

    /// Room for clean pages, whatever sizes they come in: that of chunks none of whose blocks is in
    /// use, as long as there are entries.
    fn free_slots(&self) -> FreeSlots {
        let pages = self.blocks.whole() as u64 * (CHUNK_BYTES / PAGE_BYTES);
        FreeSlots { dram: 0, nvm: u32::try_from(pages).unwrap_or(u32::MAX).min(self.slots.free_entries()) }
    }

    fn count_pattern(&mut self, context: u64, bytes: u64, missed: u64) {
        let Some(pattern) = self.clean.pattern(context) else { return };
        let counts = self.counters.by_pattern.of_mut(pattern);
        counts.hit_bytes += bytes - missed.min(bytes);
        counts.missed_bytes += missed;
    }

    /// A clean entry was made: by what the file's last program does, the placement decides how long
    /// it stays. One in a chunk that is lent stays anyway, as nobody else gets its block.
    pub(crate) fn placed_clean(&mut self, number: u32, extent: &Extent) {
        if self.blocks.is_lent(extent.unit) {
            return;
        }
        let context = self.file(FileId(extent.file)).map_or(0, |file| file.context);
        self.clean.resume(context);
        self.clean.insert(number, page_of(extent));
    }

    /// The clean entry that goes next, which the placement has forgotten.
    pub(crate) fn victim(&mut self) -> Option<u32> {
        let (slots, blocks, mut lent) = (&self.slots, &self.blocks, Vec::new());
        let mut condition = |number: u32| {
            if blocks.is_lent(slots.used(number).extent.unit) {
                lent.push(number);
                Condition::Pinned
            } else {
                Condition::Clean
            }
        };
        let victim = self.clean.evict(Tier::Nvm, &mut condition);
        // Their chunk was lent since: nobody looks at them again until it is everybody's.
        lent.into_iter().for_each(|number| self.clean.remove(number));
        Some(victim?.slot)
    }

    /// The clean entries of a file in chunks that were lent, and are everybody's now, are placed.
    pub(crate) fn place_returned(&mut self, file: FileId, chunks: &[u32]) {
        // A file that is gone has none.
        for number in self.clean_within(file, 0..u64::MAX).unwrap_or_default() {
            let extent = self.slots.used(number).extent;
            if chunks.contains(&(extent.unit / UNITS_PER_CHUNK)) {
                self.clean.remove(number);
                self.placed_clean(number, &extent);
            }
        }
    }

    /// How hot the extents of a range are, but for those without clean bytes.
    pub(crate) fn temperatures(&self, file: FileId, range: &Range<u64>) -> Vec<(u64, f64)> {
        let first = page_at(file, range.start).extent();
        let extents = (first.extent..).map(|extent| FileExtent { extent, ..first });
        let within = extents.map(|extent| (extent.bytes().start, extent)).take_while(|(from, _)| *from < range.end);
        let hot = within.filter_map(|(from, extent)| Some((from, self.clean.temperature(extent)?)));
        hot.filter(|(_, temperature)| *temperature > 0.0).collect()
    }

    fn placement_step(&mut self) -> Result<PlacementStep, FileError> {
        match self.clean.work(self.free_slots()) {
            Some(Work::Reclaim { extent, .. }) => {
                self.reclaim(extent)?;
                Ok(PlacementStep::Worked)
            }
            // Clean pages come to DRAM as programs read them.
            Some(Work::Migrate { .. }) => Ok(PlacementStep::Worked),
            None => Ok(PlacementStep::Idle),
        }
    }

    /// Gives up the clean entries that begin in an extent.
    fn reclaim(&mut self, extent: FileExtent) -> Result<(), FileError> {
        let file = FileId(u32::try_from(extent.file).expect("the lane named it"));
        // A file that is gone has none.
        let mut clean = self.clean_within(file, extent.bytes()).unwrap_or_default();
        clean.retain(|number| extent.bytes().contains(&self.slots.used(*number).extent.offset));
        self.give_up(&clean)
    }
}

fn page_at(file: FileId, at: u64) -> FilePage {
    FilePage { file: u64::from(file.0), page: at / PAGE_BYTES }
}

fn page_of(extent: &Extent) -> FilePage {
    page_at(FileId(extent.file), extent.offset)
}
