//! Loading a lane: the records in use and the entries that count.
//!
//! 1. Records and entries are flushed. **Fence.** A killed process may have left them visible only.
//! 2. Each element between the cursors is carried out, durably; then the ring is empty. **Fences.**
//!    Until the tail reaches the head the elements stand in for their targets, so a cut recovery is
//!    repeated.
//! 3. An entry that is longer than its record allows is cut, durably: a later record may say a
//!    greater length. A clean entry that does not count is freed, durably.

use crate::lanes::leases::found::{FoundChunk, FoundLease};
use crate::region_io::{LaneElement, Medium, Target, ring_plan};
use crate::tiers::mapped_times::FoundTimePage;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_layout::Broken;
use tidegate_layout::file_cache::{
    Change, EntryState, Extent, FileEntry, FileRecord, LENGTH_BITS, LanePlan, TrustedLease, TrustedRecord,
};
use tidegate_media::{Corrupt, Region, Result};
use tidegate_wal::{Loaded, RedoRing, corrupt};
use zerocopy::{FromZeros, IntoBytes};

/// Records that are read at once.
const RECORDS_AT_ONCE: usize = 256;

/// What a lane holds.
pub(crate) struct Contents {
    /// The records in use, by number.
    pub(crate) records: BTreeMap<u32, TrustedRecord>,
    /// The entries that count.
    pub(crate) entries: Vec<Counted>,
    /// The greatest version that any entry or record has.
    pub(crate) version: u64,
    pub(crate) ring: RedoRing<LaneElement>,
    /// Lease logs.
    pub(crate) leases: Vec<FoundLease>,
    /// Chunks of leases.
    pub(crate) chunks: Vec<FoundChunk>,
    /// Time pages of mapped files.
    pub(crate) times: Vec<FoundTimePage>,
}

/// An entry that counts.
pub(crate) struct Counted {
    pub(crate) slot: u32,
    pub(crate) version: u64,
    pub(crate) extent: Extent,
    /// Whether the file below has its bytes too.
    pub(crate) is_clean: bool,
}

/// Reads a lane, and brings it into a state that a process at work may leave.
pub(crate) fn load<R: Region>(medium: &Medium<R>) -> Result<Contents> {
    let Medium { region, plan } = medium;
    region.flush(plan.record_at(0), plan.chunks_at() - plan.record_at(0));
    region.fence()?;
    let loaded: Loaded<LaneElement> = Loaded::begin(region, ring_plan(plan))?;
    let mut raw = Raw::read(medium, &mut refuse)?;
    for (at, element) in &loaded.elements {
        raw.carry_out(&element.0.check(plan).map_err(|broken| corrupt(*at, broken))?);
    }
    raw.store_changed(medium)?;
    let ring = loaded.finish(region)?;
    let entries = raw.counted(medium)?;
    let leases = raw.leases(&medium.plan, &mut refuse)?;
    let chunks = raw.chunks(&medium.plan, &mut refuse)?;
    let times = raw.times(&medium.plan, &mut refuse)?;
    Ok(Contents { version: raw.version(), records: raw.records, entries, ring, leases, chunks, times })
}

/// Called with each broken rule; an error ends the look.
pub(super) type OnBroken<'a> = &'a mut dyn FnMut(Corrupt) -> Result<()>;

/// Whether an entry is of this kind, and what one of it names.
type Kind<T> = (fn(&FileEntry) -> bool, fn(&FileEntry, &LanePlan) -> std::result::Result<T, Broken>);

/// The first broken rule ends the look.
fn refuse(broken: Corrupt) -> Result<()> {
    Err(broken.into())
}

/// Records and entries, as they are or as the elements say.
pub(super) struct Raw {
    pub(super) records: BTreeMap<u32, TrustedRecord>,
    entries: Vec<FileEntry>,
    /// The greatest version of a record, in use or not.
    record_version: u64,
    /// What elements changed, by number.
    changed_records: BTreeSet<u32>,
    changed_entries: BTreeMap<u32, Change>,
}

impl Raw {
    pub(super) fn read<R: Region>(medium: &Medium<R>, on_broken: OnBroken<'_>) -> Result<Raw> {
        let plan = &medium.plan;
        let (mut records, mut record_version) = (BTreeMap::new(), 0);
        let mut piece = vec![FileRecord::new_zeroed(); RECORDS_AT_ONCE];
        for first in (0..plan.files).step_by(RECORDS_AT_ONCE) {
            let count = RECORDS_AT_ONCE.min((plan.files - first) as usize);
            medium.region.read(plan.record_at(first), piece[..count].as_mut_bytes())?;
            for (file, raw) in (first..).zip(&piece[..count]) {
                match raw.check() {
                    Ok(checked) => records.extend(checked.map(|record| (file, record))),
                    Err(broken) => on_broken(corrupt(plan.record_at(file), broken))?,
                }
                record_version = record_version.max(raw.version.get());
            }
        }
        let mut entries = vec![FileEntry::new_zeroed(); plan.entries as usize];
        medium.region.read(plan.entry_at(0), entries.as_mut_bytes())?;
        Ok(Raw { records, entries, record_version, changed_records: BTreeSet::new(), changed_entries: BTreeMap::new() })
    }

    /// An entry changes without an element too, so one as new as its element is newer.
    pub(super) fn carry_out(&mut self, change: &Change) {
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
            Change::Lease { slot, mark, version } => {
                let Some(entry) = self.entries.get_mut(slot as usize) else { return };
                if version > entry.version() {
                    entry.state = FileEntry::lease_word(mark, version).into();
                    self.changed_entries.insert(slot, *change);
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

    /// The entries that count, as they are.
    pub(super) fn counting<R: Region>(&self, medium: &Medium<R>, on_broken: OnBroken<'_>) -> Result<Vec<Counted>> {
        let mut counting = Vec::new();
        for (slot, raw) in (0..).zip(&self.entries) {
            if raw.is_lease() || raw.is_lent_chunk() || raw.is_time_page() {
                continue;
            }
            let is_clean = raw.is_clean();
            // Without a stamp nobody can tell later that the file below was changed by others.
            let counts = |record: &TrustedRecord| {
                if is_clean { record.stamp != 0 } else { raw.version() > record.void }
            };
            // An entry that does not count may be torn: it was about to be used again.
            if !self.records.get(&raw.file.get()).is_some_and(counts) {
                continue;
            }
            match raw.check(&medium.plan) {
                Ok(EntryState { version, extent }) => {
                    counting.extend(extent.map(|extent| Counted { slot, version, extent, is_clean }))
                }
                Err(broken) => on_broken(corrupt(medium.plan.entry_at(slot), broken))?,
            }
        }
        Ok(counting)
    }

    /// The lease logs that entries name.
    pub(super) fn leases(&self, plan: &LanePlan, on_broken: OnBroken<'_>) -> Result<Vec<FoundLease>> {
        let found = self.named(plan, (FileEntry::is_lease, FileEntry::lease), on_broken)?.into_iter();
        let has_file = |lease: &TrustedLease| self.records.contains_key(&lease.file);
        Ok(found.map(|(slot, lease)| FoundLease { slot, lease, has_file: has_file(&lease) }).collect())
    }

    /// The chunks that entries lend.
    pub(super) fn chunks(&self, plan: &LanePlan, on_broken: OnBroken<'_>) -> Result<Vec<FoundChunk>> {
        let found = self.named(plan, (FileEntry::is_lent_chunk, FileEntry::lent_chunk), on_broken)?;
        Ok(found.into_iter().map(|(slot, lent)| FoundChunk { slot, lent }).collect())
    }

    /// The time pages that entries name.
    pub(super) fn times(&self, plan: &LanePlan, on_broken: OnBroken<'_>) -> Result<Vec<FoundTimePage>> {
        let found = self.named(plan, (FileEntry::is_time_page, FileEntry::time_page), on_broken)?;
        Ok(found.into_iter().map(|(slot, page)| FoundTimePage { slot, page }).collect())
    }

    /// What entries of one kind name, with their numbers.
    fn named<T>(&self, plan: &LanePlan, (is_such, check): Kind<T>, on_broken: OnBroken<'_>) -> Result<Vec<(u32, T)>> {
        let mut named = Vec::new();
        for (slot, raw) in (0..).zip(&self.entries).filter(|(_, raw)| is_such(raw)) {
            match check(raw, plan) {
                Ok(what) => named.push((slot, what)),
                Err(broken) => on_broken(corrupt(plan.entry_at(slot), broken))?,
            }
        }
        Ok(named)
    }

    /// The entries that count, each cut, durably, as its record says.
    fn counted<R: Region>(&self, medium: &Medium<R>) -> Result<Vec<Counted>> {
        let mut counted = self.counting(medium, &mut refuse)?;
        let counting: BTreeSet<u32> = counted.iter().filter(|entry| entry.is_clean).map(|entry| entry.slot).collect();
        for (slot, raw) in (0..).zip(&self.entries) {
            // Their record may be another file's next.
            if raw.is_clean() && !counting.contains(&slot) {
                medium.store_state(slot, raw.version(), 0);
                medium.flush_entry(slot);
            }
        }
        for Counted { slot, version, extent, .. } in &mut counted {
            let Some(record) = self.records.get(&extent.file) else { continue };
            if *version <= record.version && extent.end() > record.size {
                let left = record.size.saturating_sub(extent.offset);
                extent.length = extent.length.min(u32::try_from(left).unwrap_or(u32::MAX));
                medium.store_state(*slot, *version, extent.length);
                medium.flush_entry(*slot);
            }
        }
        counted.retain(|entry| entry.extent.length > 0);
        medium.fence()?;
        Ok(counted)
    }

    fn version(&self) -> u64 {
        let entries = self.entries.iter().map(|entry| entry.state.get() >> LENGTH_BITS);
        let records = self.records.values().map(|record| record.version);
        entries.chain(records).fold(self.record_version, u64::max)
    }
}
