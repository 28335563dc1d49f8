//! Bringing files up to date below: in steps behind the program's back, or at once before the
//! kernel's path may touch a file.

use crate::below::{BackingFile, Refused};
use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::{Lane, Slot};
use crate::tiers::dram::runs;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::{Change, VERSION_MAX};
use tidegate_media::{Error, Region};

/// Most bytes of one write below.
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// What one step wrote back, and what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes brought below, durably.
    pub bytes: u64,
    /// Bytes that only the pool has durably.
    pub left_bytes: u64,
}

/// A part of a file that is below, but not durably yet.
struct Batch {
    file: FileId,
    backing: Arc<dyn BackingFile>,
    /// Every entry of the file up to this version is part of it.
    version: u64,
    bytes: u64,
    /// The file's counts of changes below, with these.
    touched: u64,
    recast: u64,
}

impl<R: Region> FileCache<R> {
    /// Writes about `budget_bytes` of what only the pool has durably to one file, or all of a
    /// smaller file, syncs that file, and lets its entries be given up. For a thread in the
    /// background: it waits for the disk, the program hardly for it. After an error nothing has
    /// changed, and the step may be tried again.
    pub fn write_back_step(&self, budget_bytes: u64) -> Result<Progress, FileError> {
        let _sweep = self.sweep.lock();
        let Some(batch) = self.lane().write_batch(budget_bytes)? else { return Ok(Progress::default()) };
        batch.backing.sync()?;
        let bytes = self.lane().settle(&batch)?;
        Ok(Progress { bytes, left_bytes: self.fill().out_of_sync })
    }

    /// Brings everything that was written to the file below, durably, and drops it here: the
    /// kernel's path may touch the file then. What is written through the cache afterwards begins
    /// anew.
    pub fn drain(&self, file: FileId) -> Result<(), FileError> {
        let mut lane = self.lane();
        lane.drain(file, None)?;
        lane.file_mut(file)?.passed = true;
        lane.forget_if_done(file)
    }
}

impl<R: Region> Lane<R> {
    /// Writes the oldest entries of the file that has the oldest one.
    fn write_batch(&mut self, budget_bytes: u64) -> Result<Option<Batch>, FileError> {
        let oldest = |(number, file): (u32, &Option<File>)| {
            let file = file.as_ref().filter(|file| !file.is_detached())?;
            let oldest = file.out_of_sync.first().map(|(version, _)| *version);
            // A file that was cut and closed: the pool may forget it after its next sync below.
            let only_synced = || (file.opens == 0 && !file.is_done() && file.written.is_empty()).then_some(0);
            Some((oldest.or_else(only_synced)?, FileId(number)))
        };
        let Some((_, file)) = (0..).zip(&self.files).filter_map(oldest).min() else { return Ok(None) };
        let (version, bytes) = self.choose(file, budget_bytes)?;
        self.touch(file)?;
        let cached = self.file_mut(file)?;
        if cached
            .tail
            .is_some_and(|tail| cached.out_of_sync.range(..=(version, u32::MAX)).any(|(_, slot)| *slot == tail))
        {
            cached.tail = None;
        }
        self.write_entries(file, version)?;
        let cached = self.file(file)?;
        let size = cached.record.expect("entries have a record").size;
        let backing = cached.backing()?.clone();
        if backing.status()?.len < size {
            backing.set_len(size)?;
        }
        let (touched, recast) = (cached.touched, cached.recast);
        Ok(Some(Batch { file, backing, version, bytes, touched, recast }))
    }

    /// Up to which version a batch goes, and its bytes. Commits are not divided.
    fn choose(&self, file: FileId, budget_bytes: u64) -> Result<(u64, u64), FileError> {
        let (mut chosen, mut bytes) = (0, 0);
        for (version, slot) in &self.file(file)?.out_of_sync {
            if bytes >= budget_bytes && *version > chosen {
                break;
            }
            chosen = *version;
            bytes += self.slots[*slot as usize].map_or(0, |slot| slot.newest);
        }
        Ok((chosen, bytes))
    }

    /// Writes below what entries up to `version` have and no newer one, neighbours in one go.
    fn write_entries(&self, file: FileId, version: u64) -> Result<(), FileError> {
        let cached = self.file(file)?;
        let backing = cached.backing()?;
        let mut parts: Vec<(Range<u64>, u32)> = Vec::new();
        for (_, number) in cached.out_of_sync.range(..=(version, u32::MAX)) {
            let Slot { extent, .. } = self.slots[*number as usize].expect("it is in use");
            let newest = cached.newest.within(extent.offset..extent.end());
            parts.extend(newest.into_iter().filter(|(_, slot)| slot == number));
        }
        parts.sort_unstable_by_key(|(range, _)| range.start);
        let mut run: (u64, Vec<u8>) = (0, Vec::new());
        for (range, slot) in parts {
            let follows = run.0 + run.1.len() as u64 == range.start && (run.1.len() as u64) < WRITE_BYTES_MAX;
            if !follows {
                write_run(&**backing, &mut run)?;
                run.0 = range.start;
            }
            let from = run.1.len();
            run.1.resize(from + usize::try_from(range.end - range.start).expect("a block is small"), 0);
            let Slot { extent, .. } = self.slots[slot as usize].expect("it is in use");
            self.medium.read_extent(&extent, range.start, &mut run.1[from..]).map_err(Error::from)?;
        }
        Ok(write_run(&**backing, &mut run)?)
    }

    /// The batch is below, durably: its entries are void from now on, in one commit. Not if the
    /// file was cut or drained meanwhile: its sync may not cover that, and what the record says
    /// would no longer be carried out.
    fn settle(&mut self, batch: &Batch) -> Result<u64, FileError> {
        self.counters.syncs_below += 1;
        let Ok(cached) = self.file(batch.file) else { return Ok(0) };
        let (Some(record), true) = (cached.record, cached.recast == batch.recast) else { return Ok(0) };
        let version = self.version + 1;
        let void = batch.version.max(record.void);
        self.commit_changes(&[Change::Record { file: batch.file.0, size: record.size, void, version }])?;
        let cached = self.file_mut(batch.file)?;
        let record = cached.record.as_mut().expect("it had one");
        (record.version, record.void) = (version, void);
        cached.cut_below = None;
        let newer = cached.out_of_sync.split_off(&(batch.version + 1, 0));
        let settled = std::mem::replace(&mut cached.out_of_sync, newer);
        self.clean.extend(settled.into_iter().map(|(version, slot)| (slot, version)));
        self.counters.bytes_written_back += batch.bytes;
        let cached = self.file_mut(batch.file)?;
        if cached.touched == batch.touched {
            cached.changed_below = false;
            self.stamp(batch.file)?;
        }
        self.forget_if_done(batch.file)?;
        Ok(batch.bytes)
    }

    /// Notes the file's own mark of its last change, all of which is durable.
    fn stamp(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        let stamp = cached.backing()?.status()?.stamp;
        if let Some(record) = &mut cached.record {
            record.stamp = stamp;
            self.medium.store_stamp(file.0, stamp);
        }
        Ok(())
    }

    /// Brings everything below, durably, `more` too, and drops it here. What it writes over older
    /// bytes below is not atomic.
    pub(crate) fn drain(&mut self, file: FileId, more: Option<(u64, &[u8])>) -> Result<(), FileError> {
        let cached = self.file(file)?;
        if cached.passed && cached.is_below() && more.is_none() {
            return Ok(());
        }
        self.touch(file)?;
        self.file_mut(file)?.recast += 1;
        self.write_entries(file, VERSION_MAX)?;
        let cached = self.file(file)?;
        let backing = cached.backing()?;
        for range in runs(&cached.written) {
            for at in (range.start..range.end).step_by(usize::try_from(WRITE_BYTES_MAX).expect("small")) {
                let mut bytes = vec![0; usize::try_from((range.end - at).min(WRITE_BYTES_MAX)).expect("small")];
                self.unsynced.overlay(&cached.written, at, &mut bytes).map_err(Error::from)?;
                backing.write(at, &bytes)?;
            }
        }
        let mut size = cached.size;
        if let Some((at, data)) = more {
            backing.write(at, data)?;
            size = size.max(at + data.len() as u64);
        }
        if backing.status()?.len != size {
            backing.set_len(size)?;
        }
        backing.sync()?;
        self.counters.syncs_below += 1;
        let cached = self.file_mut(file)?;
        (cached.cut_below, cached.changed_below) = (None, false);
        self.forget_contents(file)?;
        let mut written = std::mem::take(&mut self.file_mut(file)?.written);
        self.unsynced.clear(&mut written);
        Ok(())
    }
}

/// Writes what was collected, if anything was.
fn write_run(backing: &dyn BackingFile, run: &mut (u64, Vec<u8>)) -> Result<(), Refused> {
    if !run.1.is_empty() {
        backing.write(run.0, &run.1)?;
        run.0 += run.1.len() as u64;
        run.1.clear();
    }
    Ok(())
}
