//! Truncation: a commit of the record, then of every entry, then the file below.

use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::slots::{Slot, Standing};
use tidegate_layout::file_cache::Change;
use tidegate_media::Region;

impl<R: Region> FileCache<R> {
    /// Cuts the file at `size` bytes, or extends it by zeroes; below too. Durable at once if the
    /// file was ever synced, and otherwise with its first sync.
    pub fn truncate(&self, file: FileId, size: u64) -> Result<(), FileError> {
        self.exclusively(file, || {
            self.refresh(file)?;
            self.truncate_exclusively(file, size)
        })
    }

    /// For a kill the length in DRAM counts first. For a power cut the record does: one commit,
    /// then every entry is cut, and then the file below.
    pub(crate) fn truncate_exclusively(&self, file: FileId, size: u64) -> Result<(), FileError> {
        self.refuse_changed(file)?;
        self.refuse_mapped(file, size)?;
        self.cut_below(file)?;
        let mut lane = self.lane();
        lane.touch(file)?;
        let cached = lane.file_mut(file)?;
        cached.recast += 1;
        let backing = cached.backing()?.clone();
        let (grows, comes_back) = (size > cached.size, cached.cut_below.is_some_and(|cut| cut < size));
        drop(lane);
        if comes_back {
            // The record is about to say this length: what the file has behind that cut must not
            // come back.
            backing.sync_with_times()?;
            self.lane().file_mut(file)?.cut_below = None;
        }
        if grows {
            // A file may not become that long: the kernel says so before anything is done.
            backing.set_len(size)?;
        }
        let len = backing.status()?.len;
        self.lane().cut_cached(file, size, len)?;
        let cut = backing.set_len(size);
        self.lane().cut_unsynced(file, size)?;
        cut?;
        self.lane().file_mut(file)?.uncut = None;
        Ok(())
    }

    /// Cuts the file below if an earlier attempt was refused.
    pub(crate) fn cut_below(&self, file: FileId) -> Result<(), FileError> {
        let (backing, uncut) = {
            let lane = self.lane();
            let cached = lane.file(file)?;
            let Some(uncut) = cached.uncut else { return Ok(()) };
            (cached.backing()?.clone(), uncut)
        };
        backing.set_len(uncut)?;
        self.lane().file_mut(file)?.uncut = None;
        Ok(())
    }
}

impl<R: Region> Lane<R> {
    /// Everything but the file below, which has `len` bytes, and unsynced writes gets this length.
    fn cut_cached(&mut self, file: FileId, size: u64, len: u64) -> Result<(), FileError> {
        self.unsynced.grows_to(file.0, 0);
        self.set_size(file, size)?;
        if let Some(record) = self.file(file)?.record {
            self.begin_modified(file)?;
            let version = self.version + 1;
            self.commit_changes(&[Change::Record { file: file.0, size, void: record.void, version }])?;
            if let Some(record) = &mut self.file_mut(file)?.record {
                (record.size, record.version) = (size, version);
            }
            self.cut_entries(file, size)?;
        }
        let cached = self.file_mut(file)?;
        cached.tail = None;
        cached.dropped += 1;
        cached.room.lose(&(size..u64::MAX));
        if size < len {
            cached.cut_below = Some(size);
            cached.uncut = Some(size);
        }
        Ok(())
    }

    /// Cuts a file that cannot be cut below now.
    pub(crate) fn cut_here(&mut self, file: FileId, size: u64, len: u64) -> Result<(), FileError> {
        self.touch(file)?;
        let cached = self.file_mut(file)?;
        cached.recast += 1;
        let before = cached.uncut;
        self.cut_cached(file, size, len)?;
        self.cut_unsynced(file, size)?;
        let cached = self.file_mut(file)?;
        cached.uncut = cached.uncut.into_iter().chain(before).min();
        Ok(())
    }

    /// Last: as long as dirty blocks are there, a file that was never synced is cut once more after
    /// a kill.
    pub(crate) fn cut_unsynced(&mut self, file: FileId, size: u64) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        cached.dropped += 1;
        let mut written = std::mem::take(&mut cached.written);
        self.unsynced.cut(file.0, &mut written, size);
        self.file_mut(file)?.written = written;
        Ok(())
    }

    /// Cuts every entry of a file at `size`, durably: a later, greater length must not bring their
    /// bytes back.
    fn cut_entries(&mut self, file: FileId, size: u64) -> Result<(), FileError> {
        let living = self.slots.of(self.file(file)?.out_of_sync);
        let dying = self.dying.iter().map(|number| (*number, self.slots.used(*number)));
        let is_cut = |(_, slot): &(u32, Slot)| slot.extent.file == file.0 && slot.extent.end() > size;
        let cut: Vec<(u32, Slot)> = living.chain(dying).filter(is_cut).collect();
        for (number, slot) in cut {
            let left = u32::try_from(size.saturating_sub(slot.extent.offset)).expect("shorter than it was");
            self.slots.set_length(number, left);
            let length = if slot.standing == Standing::Dying { 0 } else { left };
            self.medium.store_state(number, slot.version, length);
            self.medium.flush_entry(number);
        }
        let behind: Vec<u32> =
            self.file(file)?.newest.within(size..u64::MAX).into_iter().map(|(_, slot)| slot).collect();
        self.free_on_medium(&behind);
        self.medium.fence()?;
        let losses = self.file_mut(file)?.newest.remove(size..u64::MAX);
        self.lose(file, &losses)
    }
}
