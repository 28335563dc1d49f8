//! Loading a lane: the records in use and the entries that count.
//!
//! 1. Records and entries are flushed. **Fence.** A killed process may have left them visible only.
//! 2. Each element between the cursors is carried out, durably; then the ring is empty. **Fences.**
//!    Until the tail reaches the head the elements stand in for their targets, so a cut recovery is
//!    repeated.
//! 3. An entry that is longer than its record allows is cut, durably: a later record may say a
//!    greater length.

use crate::open::format::corrupt;
use crate::region_io::{LaneElement, Medium, Target, ring_plan};
use std::collections::{BTreeMap, BTreeSet};
use tidegate_layout::file_cache::{Change, Extent, FileEntry, FileRecord, LENGTH_BITS, TrustedRecord};
use tidegate_media::{Region, Result};
use tidegate_wal::{Loaded, RedoRing};
use zerocopy::{FromZeros, IntoBytes};

/// What a lane holds.
pub(crate) struct Contents {
    /// The records in use, by number.
    pub(crate) records: BTreeMap<u32, TrustedRecord>,
    /// The entries that count.
    pub(crate) entries: Vec<Counted>,
    /// The greatest version that any entry or record has.
    pub(crate) version: u64,
    pub(crate) ring: RedoRing<LaneElement>,
}

/// An entry that counts.
pub(crate) struct Counted {
    pub(crate) slot: u32,
    pub(crate) version: u64,
    pub(crate) extent: Extent,
}

/// Reads a lane, and brings it into a state that a process at work may leave.
pub(crate) fn load<R: Region>(medium: &Medium<R>) -> Result<Contents> {
    let Medium { region, plan } = medium;
    region.flush(plan.record_at(0), plan.chunks_at() - plan.record_at(0));
    region.fence()?;
    let loaded: Loaded<LaneElement> = Loaded::begin(region, ring_plan(plan))?;
    let mut raw = Raw::read(medium)?;
    for (at, element) in &loaded.elements {
        raw.carry_out(&element.0.check(plan).map_err(|broken| corrupt(*at, broken))?);
    }
    raw.store_changed(medium)?;
    let ring = loaded.finish(region)?;
    let entries = raw.counted(medium)?;
    Ok(Contents { version: raw.version(), records: raw.records, entries, ring })
}

/// Records and entries, as they are or as the elements say.
struct Raw {
    records: BTreeMap<u32, TrustedRecord>,
    entries: Vec<FileEntry>,
    /// The greatest version of a record, in use or not.
    record_version: u64,
    /// What elements changed, by number.
    changed_records: BTreeSet<u32>,
    changed_entries: BTreeMap<u32, Change>,
}

impl Raw {
    fn read<R: Region>(medium: &Medium<R>) -> Result<Raw> {
        let plan = &medium.plan;
        let (mut records, mut record_version) = (BTreeMap::new(), 0);
        for file in 0..plan.files {
            let mut raw = FileRecord::new_zeroed();
            medium.region.read(plan.record_at(file), raw.as_mut_bytes())?;
            let checked = raw.check().map_err(|broken| corrupt(plan.record_at(file), broken))?;
            records.extend(checked.map(|record| (file, record)));
            record_version = record_version.max(raw.version.get());
        }
        let mut entries = vec![FileEntry::new_zeroed(); plan.entries as usize];
        for (slot, raw) in (0..).zip(&mut entries) {
            medium.region.read(plan.entry_at(slot), raw.as_mut_bytes())?;
        }
        Ok(Raw { records, entries, record_version, changed_records: BTreeSet::new(), changed_entries: BTreeMap::new() })
    }

    /// An entry changes without an element too, so one as new as its element is newer.
    fn carry_out(&mut self, change: &Change) {
        match *change {
            Change::Entry { slot, extent, version } => {
                let Some(entry) = self.entries.get_mut(slot as usize) else { return };
                if version > entry.version() {
                    *entry = FileEntry::new(&extent, version);
                    self.changed_entries.insert(slot, *change);
                }
            }
            Change::Record { file, size, void, version } => {
                if let Some(record) = self.records.get_mut(&file)
                    && version >= record.version
                {
                    (record.size, record.void, record.version) = (size, void, version);
                    self.changed_records.insert(file);
                }
            }
        }
    }

    /// Stores what the elements changed, durably.
    fn store_changed<R: Region>(&self, medium: &Medium<R>) -> Result<()> {
        let mut changes: Vec<Change> = self.changed_entries.values().copied().collect();
        changes.extend(self.changed_records.iter().filter_map(|file| {
            let TrustedRecord { size, void, version, .. } = *self.records.get(file)?;
            Some(Change::Record { file: *file, size, void, version })
        }));
        if medium.words_overtake() {
            medium.prepare(&changes)?;
            medium.fence()?;
        }
        for change in &changes {
            medium.carry_out(change);
            medium.flush_target(Target::of(change));
        }
        Ok(medium.fence()?)
    }

    /// The entries that count, each as long as its record allows.
    fn counted<R: Region>(&self, medium: &Medium<R>) -> Result<Vec<Counted>> {
        let mut counted = Vec::new();
        for (slot, raw) in (0..).zip(&self.entries) {
            // An entry that does not count may be torn: it was about to be used again.
            let Some(record) = self.records.get(&raw.file.get()).filter(|record| raw.version() > record.void) else {
                continue;
            };
            let entry = raw.check(&medium.plan).map_err(|broken| corrupt(medium.plan.entry_at(slot), broken))?;
            let Some(mut extent) = entry.extent else { continue };
            if entry.version <= record.version && extent.end() > record.size {
                let left = record.size.saturating_sub(extent.offset);
                extent.length = extent.length.min(u32::try_from(left).unwrap_or(u32::MAX));
                medium.store_state(slot, entry.version, extent.length);
                medium.flush_entry(slot);
            }
            if extent.length > 0 {
                counted.push(Counted { slot, version: entry.version, extent });
            }
        }
        medium.fence()?;
        Ok(counted)
    }

    fn version(&self) -> u64 {
        let entries = self.entries.iter().map(|entry| entry.state.get() >> LENGTH_BITS);
        let records = self.records.values().map(|record| record.version);
        entries.chain(records).fold(self.record_version, u64::max)
    }
}
