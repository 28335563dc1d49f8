//! Bringing files up to date below: in steps behind the program's back, or at once before the
//! kernel's path may touch a file.

use crate::below::{BackingFile, BackingStatus};
use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::Lane;
use crate::lanes::slots::Slot;
use crate::tiers::dram::runs;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::{Change, VERSION_MAX, in_pieces, united};
use tidegate_media::Region;

/// Most bytes of one write below.
pub(super) const WRITE_BYTES_MAX: u64 = 1 << 20;

/// What one step wrote back, and what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBackStep {
    /// Bytes brought below, durably.
    pub bytes: u64,
    /// Bytes that only the pool has durably.
    pub left_bytes: u64,
    /// Files without such bytes that were cut, and have still to be synced below.
    pub left_cut: u64,
}

/// The oldest entries of a file, on their way below.
struct Batch {
    file: FileId,
    backing: Arc<dyn BackingFile>,
    /// Every entry of the file up to this version is part of it.
    version: u64,
    bytes: u64,
    /// Where the newest bytes lie that these entries have.
    ranges: Vec<Range<u64>>,
    /// The file's durable length.
    size: u64,
    /// The file's counts of changes below, with these.
    touched: u64,
    recast: u64,
    /// The time of modification that its sync gives the file below, or a later one.
    modified: u64,
}

impl<R: Region> FileCache<R> {
    /// Writes about `budget_bytes` of what only the pool has durably to one file, or all of a
    /// smaller file, syncs that file, and lets its entries be given up. Leases go on; what was
    /// written by them is adopted first. For a thread in the
    /// background: it waits for the disk, the program hardly for it. After an error nothing has
    /// changed, and the step may be tried again: files that did not fail, or failed less often in
    /// a row, have their turn first.
    pub fn write_back_step(&self, budget_bytes: u64) -> Result<WriteBackStep, FileError> {
        self.write_back_step_until(budget_bytes, VERSION_MAX)
    }

    /// Writes back as [`FileCache::write_back_step`] does, but only what was committed up to
    /// `version`: see [`FileCache::version`]. What is written again and again is brought below once
    /// then.
    pub fn write_back_step_until(&self, budget_bytes: u64, version: u64) -> Result<WriteBackStep, FileError> {
        let _sweep = self.sweep.lock();
        self.lane().adopt_all();
        let Some(file) = self.lane().pin_oldest(version)? else { return Ok(WriteBackStep::default()) };
        let done = self.write_back(file, budget_bytes, version);
        self.lane().file_mut(file)?.was_tried(done.is_ok());
        self.unpin(file)?;
        let lane = self.lane();
        Ok(WriteBackStep { bytes: done?, left_bytes: lane.bytes_to_write_back(), left_cut: lane.only_cut() })
    }

    /// The newest commit's number, with what was written by leases so far.
    pub fn version(&self) -> u64 {
        let mut lane = self.lane();
        lane.adopt_all();
        lane.version
    }

    fn write_back(&self, file: FileId, budget_bytes: u64, newest: u64) -> Result<u64, FileError> {
        let batch = self.gated(file, || {
            self.refuse_changed(file)?;
            self.cut_below(file)?;
            let Some(batch) = self.lane().begin_batch(file, budget_bytes, newest)? else { return Ok(None) };
            for range in &batch.ranges {
                let bytes = self.lane().durable_bytes(file, range)?;
                batch.backing.write(range.start, &bytes)?;
            }
            if batch.backing.status()?.len < batch.size {
                batch.backing.set_len(batch.size)?;
            }
            // Here, as others may change the file below while it is synced.
            batch.backing.set_times()?;
            Ok(Some(batch))
        })?;
        let Some(batch) = batch else { return Ok(0) };
        batch.backing.sync()?;
        let status = batch.backing.status()?;
        if status.is_removed {
            return Err(FileError::Changed);
        }
        self.lane().end_batch(&batch, status)
    }

    /// Brings everything that was written to the file below, durably, and drops it here: the
    /// kernel's path may touch the file then. What is written through the cache afterwards begins
    /// anew.
    pub fn drain(&self, file: FileId) -> Result<(), FileError> {
        self.exclusively(file, || {
            let drained = self.drain_exclusively(file, None);
            self.lane().file_mut(file)?.passed |= drained.is_ok();
            drained
        })
    }

    /// Brings everything below, durably, `more` too, and drops it here. What it writes over older
    /// bytes below is not atomic.
    pub(crate) fn drain_exclusively(&self, file: FileId, more: Option<(u64, &[u8])>) -> Result<(), FileError> {
        self.refuse_changed(file)?;
        self.refuse_mapped(file, 0)?;
        self.cut_below(file)?;
        let (backing, ranges, mut size, modified) = {
            let mut lane = self.lane();
            let cached = lane.file_mut(file)?;
            if cached.passed && cached.is_below() && more.is_none() {
                return Ok(());
            }
            cached.recast += 1;
            lane.touch(file)?;
            let cached = lane.file(file)?;
            (cached.backing()?.clone(), lane.newer_than_below(cached), cached.size, cached.modified)
        };
        for range in ranges {
            let mut bytes = self.lane().durable_bytes(file, &range)?;
            self.lane().overlay_unsynced(file, range.start, &mut bytes)?;
            backing.write(range.start, &bytes)?;
        }
        if let Some((at, data)) = more {
            backing.write(at, data)?;
            size = size.max(at + data.len() as u64);
        }
        if backing.status()?.len != size {
            backing.set_len(size)?;
        }
        backing.sync_with_times()?;
        self.lane().end_drain(file, modified)
    }
}

impl<R: Region> Lane<R> {
    /// The file that has the oldest entry up to version `newest`, of those that were refused least.
    /// It keeps its number.
    fn pin_oldest(&mut self, newest: u64) -> Result<Option<FileId>, FileError> {
        let oldest = |(number, file): (u32, &Option<Box<File>>)| {
            let file = file.as_deref().filter(|file| !file.is_detached())?;
            let mut waiting = self.slots.of(file.out_of_sync).filter(|entry| !Lane::<R>::is_mapped(file, entry));
            let oldest = waiting.next().map(|(_, oldest)| oldest.version);
            let oldest = oldest.or_else(|| file.is_only_cut().then_some(0)).filter(|oldest| *oldest <= newest)?;
            Some((file.refusals, oldest, FileId(number)))
        };
        let Some((.., file)) = (0..).zip(&self.files).filter_map(oldest).min() else { return Ok(None) };
        self.file_mut(file)?.pins += 1;
        Ok(Some(file))
    }

    /// How many files were cut, and have nothing else to be brought below.
    fn only_cut(&self) -> u64 {
        self.files.iter().flatten().filter(|file| file.is_only_cut()).count() as u64
    }

    /// Chooses the oldest entries of a file, up to version `newest`.
    fn begin_batch(&mut self, file: FileId, budget_bytes: u64, newest: u64) -> Result<Option<Batch>, FileError> {
        let Some(record) = self.file(file)?.record else { return Ok(None) };
        let (version, bytes) = self.choose(file, budget_bytes, newest)?;
        self.renew_mapped(file, version)?;
        self.touch(file)?;
        // What is put behind the last block from now on is not part of the batch.
        if self.file(file)?.tail.is_some_and(|tail| self.slots.used(tail).version <= version) {
            self.file_mut(file)?.tail = None;
        }
        let cached = self.file(file)?;
        let (backing, touched, recast) = (cached.backing()?.clone(), cached.touched, cached.recast);
        let modified = cached.modified;
        let ranges = in_pieces(united(self.newest_up_to(cached, version)), WRITE_BYTES_MAX);
        Ok(Some(Batch { file, backing, version, bytes, ranges, size: record.size, touched, recast, modified }))
    }

    /// Up to which version a batch goes, and its bytes. Commits are not divided.
    fn choose(&self, file: FileId, budget_bytes: u64, most: u64) -> Result<(u64, u64), FileError> {
        let (mut chosen, mut bytes) = (0, 0);
        let cached = self.file(file)?;
        let entries = self.slots.up_to(cached.out_of_sync, most).filter(|entry| !Lane::<R>::is_mapped(cached, entry));
        for (_, Slot { version, newest, .. }) in entries {
            if bytes >= budget_bytes && version > chosen {
                break;
            }
            chosen = version;
            bytes += newest;
        }
        Ok((chosen, bytes))
    }

    /// Where the bytes lie of which an entry up to `version` has the newest durable copy, and the
    /// file below an older one.
    fn newest_up_to(&self, file: &File, version: u64) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (number, Slot { extent, .. }) in self.slots.up_to(file.out_of_sync, version) {
            let newest = file.newest.within(extent.offset..extent.end());
            ranges.extend(newest.into_iter().filter(|(_, slot)| *slot == number).map(|(range, _)| range));
        }
        ranges
    }

    /// Where the bytes lie that the file below does not have.
    pub(crate) fn newer_than_below(&self, file: &File) -> Vec<Range<u64>> {
        let mut ranges = self.newest_up_to(file, VERSION_MAX);
        ranges.extend(runs(&file.written));
        in_pieces(united(ranges), WRITE_BYTES_MAX)
    }

    /// The newest durable copies that the pool has of a range; zeroes where it has none. Those may
    /// be newer than the batch: a byte that is here leaves the pool only after it is below.
    fn durable_bytes(&self, file: FileId, range: &Range<u64>) -> Result<Vec<u8>, FileError> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("at most a write's")];
        self.overlay_durable(file, range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// The batch is below, durably: its entries are void from now on, in one commit. Not if the
    /// file was cut or drained meanwhile: its sync may not cover that, and what the record says
    /// would no longer be carried out.
    fn end_batch(&mut self, batch: &Batch, status: BackingStatus) -> Result<u64, FileError> {
        self.counters.syncs_below += 1;
        let cached = self.file(batch.file)?;
        let (Some(record), true) = (cached.record, cached.recast == batch.recast) else { return Ok(0) };
        let version = self.version + 1;
        let void = batch.version.max(record.void);
        self.commit_changes(&[Change::Record { file: batch.file.0, size: record.size, void, version }])?;
        let cached = self.file_mut(batch.file)?;
        let record = cached.record.as_mut().expect("it had one");
        (record.version, record.void) = (version, void);
        cached.cut_below = None;
        let mut chain = cached.out_of_sync;
        let brought = self.slots.clean_up_to(&mut chain, batch.version);
        self.file_mut(batch.file)?.out_of_sync = chain;
        self.counters.bytes_written_back += batch.bytes;
        self.stamp_if_untouched(batch, status.stamp.word())?;
        brought.into_iter().for_each(|slot| self.has_become_clean(slot));
        Ok(batch.bytes)
    }

    /// Notes the file's own mark of its last change, if all changes of it are durable. Mapped bytes
    /// have still to go below, which changes the file's time.
    fn stamp_if_untouched(&mut self, batch: &Batch, stamp: u64) -> Result<(), FileError> {
        let cached = self.file_mut(batch.file)?;
        if cached.touched == batch.touched
            && cached.mapped.is_empty()
            && let Some(record) = &mut cached.record
        {
            record.stamp = stamp;
            cached.was_synced_below();
            self.modified_is_below(batch.file, batch.modified)?;
            self.medium.store_stamp(batch.file.0, stamp);
        }
        Ok(())
    }

    /// All of the file is below, durably, with this time of its last change or a later one.
    fn end_drain(&mut self, file: FileId, modified: u64) -> Result<(), FileError> {
        self.counters.syncs_below += 1;
        self.forget_contents(file)?;
        self.modified_is_below(file, modified)?;
        let cached = self.file_mut(file)?;
        cached.cut_below = None;
        cached.was_synced_below();
        let mut written = std::mem::take(&mut cached.written);
        self.unsynced.clear(&mut written);
        Ok(())
    }
}
