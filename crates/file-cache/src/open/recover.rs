//! Recovery: what a lane holds, and what a killed process had not synced, goes to the files below.
//!
//! 1. Everything that says something is made durable: a killed process may have left it visible and
//!    no more.
//! 2. For each file: its mark of a file that nobody touched is taken back. **Fence.** It is cut or
//!    extended to the length of its record; its entries are written in the order of their versions;
//!    it gets the length that they give it, and a sync.
//! 3. Unsynced writes of a killed process go over that, if there are any, and it gets the length
//!    that the process saw. Before that its record is given up, durably: what it says is no longer
//!    what the file may be cut to.
//! 4. No record is in use any more. **Fence.** The tail goes to the head. **Fence.**
//!
//! Until the fence of step 4 all of it can be done again, with the same outcome.

use crate::below::{BackingFile, Below, FileIdentity, Refused};
use crate::error::FileError;
use crate::open::format::{OpenError, corrupt, lane_plan};
use crate::region_io::{LaneElement, ring_plan};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_layout::file_cache::{
    Change, Extent, FileEntry, FileRecord, LENGTH_BITS, LanePlan, TrustedRecord, VolatileFile, VolatileHead,
    VolatilePlan, VolatileSlot,
};
use tidegate_media::{Error, Region, Result, Sealed};
use tidegate_wal::Loaded;
use zerocopy::{FromZeros, IntoBytes};

/// What recovery did to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Which file it was.
    pub identity: FileIdentity,
    /// Where it was when it was cached.
    pub path_hint: Vec<u8>,
    /// Bytes applied.
    pub bytes: u64,
    /// Why they went to a salvage file, if they did.
    pub salvaged: Option<Salvaged>,
}

/// Why a file was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salvaged {
    /// It is not there, or another one is in its place.
    Missing,
    /// Somebody else changed it since.
    Changed,
}

/// Why a lane is not recovered. It holds what it held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// There is no such lane.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file could not be written, or the memory not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Bytes for a file, and where they lie.
struct Piece {
    version: u64,
    extent: Extent,
}

/// A file that something is to be done to.
struct Waiting {
    hint: Vec<u8>,
    /// Its number and its record.
    record: Option<(u32, TrustedRecord)>,
    /// By version.
    pieces: Vec<Piece>,
    /// What a killed process knew of it.
    unsynced: Option<Unfinished>,
}

/// A file in the memory of a killed process.
#[derive(Clone, Copy)]
struct Unfinished {
    number: u32,
    size: u64,
    grows_to: u64,
}

/// Applies what lane `lane` holds to the files below, and then what `dram`, the memory of a process
/// that was killed, holds. The lane is empty afterwards. Nobody uses the lane meanwhile. A file
/// that is missing, was replaced or was changed by others is left alone: its data goes to
/// [`Below::salvage`].
pub fn recover<R: Region + ?Sized>(
    region: &R,
    lane: u32,
    dram: Option<&dyn Region>,
    below: &dyn Below,
) -> Result<Vec<Recovered>, RecoverError> {
    let plan = lane_plan(region, lane)?;
    settle_metadata(region, &plan).map_err(OpenError::from)?;
    let loaded: Loaded<LaneElement> = Loaded::begin(region, ring_plan(&plan)).map_err(OpenError::from)?;
    let mut files = lane_files(region, &plan, &loaded).map_err(OpenError::from)?;
    let unsynced = dram.map(Leftover::read).transpose().map_err(OpenError::from)?.flatten();
    if let Some(leftover) = &unsynced {
        leftover.add_files(&mut files).map_err(OpenError::from)?;
    }
    let mut done = Vec::new();
    for (identity, file) in &files {
        done.push(apply(region, &plan, unsynced.as_ref(), *identity, file, below)?);
    }
    finish(region, &plan, loaded).map_err(OpenError::from)?;
    Ok(done)
}

/// Makes durable what a killed process may have left in the CPU's caches: records and entries.
/// Cursors are made so where they are read.
pub(crate) fn settle_metadata<R: Region + ?Sized>(region: &R, plan: &LanePlan) -> Result<(), Sealed> {
    region.flush(plan.record_at(0), plan.chunks_at() - plan.record_at(0));
    region.fence()
}

/// The newest version, if no record is in use: nothing in the lane counts then.
pub(crate) fn is_empty<R: Region + ?Sized>(region: &R, plan: &LanePlan) -> Result<Option<u64>> {
    let mut newest = 0;
    for file in 0..plan.files {
        let raw = record(region, plan, file)?;
        if raw.check().map_err(|broken| corrupt(plan.record_at(file), broken))?.is_some() {
            return Ok(None);
        }
        newest = newest.max(raw.version.get());
    }
    for slot in 0..plan.entries {
        newest = newest.max(region.load_u64(plan.entry_at(slot) + 24)? >> LENGTH_BITS);
    }
    Ok(Some(newest))
}

fn record<R: Region + ?Sized>(region: &R, plan: &LanePlan, file: u32) -> Result<FileRecord> {
    let mut raw = FileRecord::new_zeroed();
    region.read(plan.record_at(file), raw.as_mut_bytes())?;
    Ok(raw)
}

/// The lane's files, elements that count carried out in DRAM.
fn lane_files<R: Region + ?Sized>(
    region: &R,
    plan: &LanePlan,
    loaded: &Loaded<LaneElement>,
) -> Result<BTreeMap<FileIdentity, Waiting>> {
    let mut records: BTreeMap<u32, TrustedRecord> = BTreeMap::new();
    for file in 0..plan.files {
        let checked = record(region, plan, file)?.check().map_err(|broken| corrupt(plan.record_at(file), broken))?;
        records.extend(checked.map(|record| (file, record)));
    }
    let mut entries: BTreeMap<u32, FileEntry> = BTreeMap::new();
    for slot in 0..plan.entries {
        let mut raw = FileEntry::new_zeroed();
        region.read(plan.entry_at(slot), raw.as_mut_bytes())?;
        entries.insert(slot, raw);
    }
    for (at, element) in &loaded.elements {
        carry_out(element.0.check(plan).map_err(|broken| corrupt(*at, broken))?, &mut records, &mut entries);
    }
    let mut pieces: BTreeMap<u32, Vec<Piece>> = BTreeMap::new();
    for (slot, raw) in &entries {
        // An entry that does not count may be torn: it was about to be used again.
        let Some(record) = records.get(&raw.file.get()).filter(|record| raw.version() > record.void) else { continue };
        let entry = raw.check(plan).map_err(|broken| corrupt(plan.entry_at(*slot), broken))?;
        if let Some(mut extent) = entry.extent {
            if entry.version <= record.version && extent.end() > record.size {
                extent.length = u32::try_from(record.size.saturating_sub(extent.offset)).expect("shorter than it was");
            }
            if extent.length > 0 {
                pieces.entry(extent.file).or_default().push(Piece { version: entry.version, extent });
            }
        }
    }
    Ok(records
        .into_iter()
        .map(|(file, record)| waiting(file, record, pieces.remove(&file).unwrap_or_default()))
        .collect())
}

fn waiting(number: u32, record: TrustedRecord, mut pieces: Vec<Piece>) -> (FileIdentity, Waiting) {
    pieces.sort_unstable_by_key(|piece| piece.version);
    let hint = record.hint.clone();
    (identity_of(record.identity), Waiting { hint, record: Some((number, record)), pieces, unsynced: None })
}

fn identity_of([device, inode, generation]: [u64; 3]) -> FileIdentity {
    FileIdentity { device, inode, generation }
}

/// An element that is not behind its target counts in its place. An entry changes without an
/// element too, so one as new as its element is newer.
fn carry_out(change: Change, records: &mut BTreeMap<u32, TrustedRecord>, entries: &mut BTreeMap<u32, FileEntry>) {
    match change {
        Change::Entry { slot, extent, version } => {
            let entry = entries.get_mut(&slot).expect("an element names an entry");
            if version > entry.version() {
                *entry = FileEntry::new(&extent, version);
            }
        }
        Change::Record { file, size, void, version } => {
            if let Some(record) = records.get_mut(&file)
                && version >= record.version
            {
                (record.size, record.void, record.version) = (size, void, version);
            }
        }
    }
}

/// Steps 2 and 3 for one file.
fn apply<R: Region + ?Sized>(
    region: &R,
    plan: &LanePlan,
    leftover: Option<&Leftover<'_>>,
    identity: FileIdentity,
    file: &Waiting,
    below: &dyn Below,
) -> Result<Recovered, FileError> {
    let (target, salvaged) = target(identity, file, below)?;
    if let (Some((number, record)), None) = (&file.record, salvaged)
        && record.stamp != 0
    {
        // A recovery that is cut changes the file, and is no stranger to the next one.
        region.store_u64(plan.record_at(*number) + FileRecord::STAMP_AT, 0);
        region.flush(plan.record_at(*number), 64);
        region.fence()?;
    }
    let (mut bytes, mut durable_size) = (0, 0);
    if let Some((_, record)) = &file.record {
        set_len(&*target, record.size)?;
        let size = file.pieces.iter().map(|piece| piece.extent.end()).fold(record.size, u64::max);
        for Piece { extent, .. } in &file.pieces {
            let mut data = vec![0; extent.length as usize];
            region.read(plan.block_at(extent.unit), &mut data).map_err(Error::from)?;
            target.write(extent.offset, &data)?;
            bytes += data.len() as u64;
        }
        set_len(&*target, size)?;
        durable_size = size;
    }
    if let (Some(leftover), Some(Unfinished { number, size, grows_to })) = (leftover, file.unsynced) {
        if let Some((record, _)) = &file.record {
            target.sync()?;
            forget_record(region, plan, *record);
            region.fence()?;
        }
        bytes += leftover.apply(number, &*target)?;
        // A synchronous write may have been committed and its length not be noted yet.
        let grown = durable_size > size && durable_size == grows_to;
        set_len(&*target, if grown { durable_size } else { size })?;
    }
    target.sync()?;
    Ok(Recovered { identity, path_hint: file.hint.clone(), bytes, salvaged })
}

/// The file itself, or one beside it that takes its data.
fn target(
    identity: FileIdentity,
    file: &Waiting,
    below: &dyn Below,
) -> Result<(Arc<dyn BackingFile>, Option<Salvaged>), FileError> {
    let found = below.find(identity, &file.hint)?.filter(|found| found.identity() == identity);
    let stamp = file.record.as_ref().map_or(0, |(_, record)| record.stamp);
    let salvaged = match found {
        None => Salvaged::Missing,
        Some(found) if stamp != 0 && found.status()?.stamp != stamp => Salvaged::Changed,
        Some(found) => return Ok((found, None)),
    };
    Ok((below.salvage(identity, &file.hint)?, Some(salvaged)))
}

fn set_len(file: &dyn BackingFile, len: u64) -> Result<(), Refused> {
    if file.status()?.len == len { Ok(()) } else { file.set_len(len) }
}

/// Step 4.
fn finish<R: Region + ?Sized>(region: &R, plan: &LanePlan, loaded: Loaded<LaneElement>) -> Result<()> {
    for file in 0..plan.files {
        if region.load_u64(plan.record_at(file) + FileRecord::STATE_AT)? != 0 {
            forget_record(region, plan, file);
        }
    }
    region.fence()?;
    loaded.finish(region)?;
    Ok(())
}

/// The record is not in use any more, with the next fence.
fn forget_record<R: Region + ?Sized>(region: &R, plan: &LanePlan, file: u32) {
    let at = plan.record_at(file) + FileRecord::STATE_AT;
    region.store_u64(at, 0);
    region.flush(at, 8);
}

/// What a killed process left in its memory.
struct Leftover<'a> {
    memory: &'a dyn Region,
    plan: VolatilePlan,
}

impl<'a> Leftover<'a> {
    /// `None` if it never came to write anything.
    fn read(memory: &'a dyn Region) -> Result<Option<Leftover<'a>>> {
        let mut head = VolatileHead::new_zeroed();
        memory.read(0, head.as_mut_bytes())?;
        // The first word is stored last.
        if head.magic[..8] == [0; 8] {
            return Ok(None);
        }
        let plan = head.check(memory.len()).map_err(|broken| corrupt(0, broken))?;
        Ok(plan.map(|plan| Leftover { memory, plan }))
    }

    /// Its files join those of the lane. One without a record matters only if it has blocks.
    fn add_files(&self, files: &mut BTreeMap<FileIdentity, Waiting>) -> Result<()> {
        let with_blocks = self.blocks()?;
        for number in 0..self.plan.files {
            let mut raw = VolatileFile::new_zeroed();
            self.memory.read(self.plan.file_at(number), raw.as_mut_bytes())?;
            if raw.state.get() == 0 {
                continue;
            }
            let (size, grows_to) = (raw.size.get(), raw.grows_to.get());
            let (identity, unsynced) = (identity_of(raw.identity()), Some(Unfinished { number, size, grows_to }));
            match files.get_mut(&identity) {
                Some(file) => file.unsynced = unsynced,
                None if with_blocks.iter().any(|(file, ..)| *file == number) => {
                    let hint = raw.path_hint().to_vec();
                    files.insert(identity, Waiting { hint, record: None, pieces: Vec::new(), unsynced });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Writes the blocks of a file, and says how many bytes that was.
    fn apply(&self, number: u32, target: &dyn BackingFile) -> Result<u64, FileError> {
        let mut bytes = 0;
        for (_, offset, block, length) in self.blocks()?.into_iter().filter(|(file, ..)| *file == number) {
            let mut data = vec![0; length];
            self.memory.read(self.plan.block_at(block), &mut data).map_err(Error::from)?;
            target.write(offset, &data)?;
            bytes += length as u64;
        }
        Ok(bytes)
    }

    /// File, offset, number and length of each block in use.
    fn blocks(&self) -> Result<Vec<(u32, u64, u32, usize)>> {
        let mut blocks = Vec::new();
        for block in 0..self.plan.blocks {
            let mut slot = VolatileSlot::new_zeroed();
            self.memory.read(self.plan.slot_at(block), slot.as_mut_bytes())?;
            if slot.length.get() != 0 {
                blocks.push((slot.file.get(), slot.offset.get(), block, slot.length.get() as usize));
            }
        }
        Ok(blocks)
    }
}
