//! A lane: everything that its one lock guards.

use crate::below::FileIdentity;
use crate::counters::Counters;
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lease::Lease;
use crate::lanes::slots::Slots;
use crate::region_io::{LaneElement, Medium};
use crate::tiers::dram::{Unsynced, bytes_in};
use crate::tiers::nvm::Blocks;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::CHUNK_BYTES;
use tidegate_media::Region;
use tidegate_policy::placement::Placement;
use tidegate_wal::RedoRing;

/// Has other memory behind these bytes of the pool, whatever they are then. False: it has not.
pub type Renewal = Arc<dyn Fn(Range<u64>) -> bool + Send + Sync>;

/// Everything of a lane, under one lock.
pub(crate) struct Lane<R> {
    pub(crate) medium: Medium<R>,
    pub(crate) ring: RedoRing<LaneElement>,
    /// The newest commit's.
    pub(crate) version: u64,
    pub(crate) files: Vec<Option<Box<File>>>,
    pub(crate) by_identity: BTreeMap<FileIdentity, FileId>,
    /// Numbers that no file has.
    pub(crate) free_files: Vec<FileId>,
    pub(crate) blocks: Blocks,
    /// Blocks that programs have or had mapped: the kernel may refer to their memory still.
    pub(crate) exposed: HashSet<u32>,
    /// For such blocks, before others have them.
    pub(crate) renew: Option<Renewal>,
    /// What entries say.
    pub(crate) slots: Slots,
    /// Entries without a newest byte, freed by a store that is not durable yet.
    pub(crate) dying: Vec<u32>,
    /// Entries that the medium may still call clean, and that are so no more: flushed with the next
    /// commit.
    pub(crate) spoilt: Vec<u32>,
    /// Chooses among entries whose bytes are below too.
    pub(crate) clean: Box<dyn Placement>,
    pub(crate) unsynced: Unsynced,
    /// Leases that were not released yet, by the entries that name their logs.
    pub(crate) leases: BTreeMap<u32, Lease>,
    /// The file for which no block could be had last, since a lease gave its chunks back.
    pub(crate) short_of_room: Option<FileId>,
    pub(crate) counters: Counters,
    /// The caller's time.
    pub(crate) now: u64,
}

impl<R: Region> Lane<R> {
    pub(crate) fn file(&self, file: FileId) -> Result<&File, FileError> {
        self.files.get(file.0 as usize).and_then(Option::as_deref).ok_or(FileError::NotOpen(file.0))
    }

    pub(crate) fn file_mut(&mut self, file: FileId) -> Result<&mut File, FileError> {
        self.files.get_mut(file.0 as usize).and_then(Option::as_deref_mut).ok_or(FileError::NotOpen(file.0))
    }

    /// Bytes that are in DRAM and nowhere else.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.files.iter().flatten().map(|file| bytes_in(&file.written)).sum()
    }

    /// Bytes in entries that are newer than the file below.
    pub(crate) fn out_of_sync_bytes(&self) -> u64 {
        self.slots.out_of_sync_bytes()
    }

    /// Those of them that are not mapped.
    pub(crate) fn bytes_to_write_back(&self) -> u64 {
        self.out_of_sync_bytes().saturating_sub(self.mapped_bytes())
    }

    /// Whether an eighth of the memory is left, or less, for what the files below lack, and
    /// write-back can make as much: in chunks that are free, and in clean entries. What is free in
    /// chunks that were cut is left out, as it is of some use to some writes only.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let eighth = self.medium.plan.data_bytes() / 8;
        let left = self.blocks.whole() as u64 * CHUNK_BYTES + self.slots.clean_bytes();
        left <= eighth && self.bytes_to_write_back() >= eighth
    }

    /// The program sees this length from now on.
    pub(crate) fn set_size(&mut self, file: FileId, size: u64) -> Result<(), FileError> {
        self.file_mut(file)?.size = size;
        self.unsynced.set_size(file.0, size);
        Ok(())
    }

    /// A file that nobody has open and that is below leaves the lane, or rests in it.
    pub(crate) fn forget_if_done(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file(file)?;
        if cached.opens > 0 || cached.pins > 0 || !cached.is_done() {
            return Ok(());
        }
        if cached.can_rest() { self.rest(file) } else { self.forget(file) }
    }

    /// The lane forgets a file of which nothing is promised.
    pub(crate) fn forget(&mut self, file: FileId) -> Result<(), FileError> {
        self.forget_contents(file)?;
        self.remove_file(file)
    }

    /// The lane knows the file no more. Nothing is here of it.
    pub(crate) fn remove_file(&mut self, file: FileId) -> Result<(), FileError> {
        let identity = self.file(file)?.identity;
        self.unsynced.end_file(file.0);
        self.files[file.0 as usize] = None;
        self.by_identity.remove(&identity);
        self.free_files.push(file);
        Ok(())
    }

    /// Files that an earlier process left and that are below leave the lane.
    pub(crate) fn forget_what_is_below(&mut self) -> Result<(), FileError> {
        let files: Vec<FileId> = self.by_identity.values().copied().collect();
        files.into_iter().try_for_each(|file| self.forget_if_done(file))
    }
}
