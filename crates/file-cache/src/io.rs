//! Reads and writes.

pub(crate) mod direct;
pub(crate) mod holes;
pub(crate) mod reserved;

use crate::below::{BackingFile, BackingStatus, Fallocate, Refused, Stamp};
use crate::cache::{FileCache, Persistence};
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::Lane;
use crate::sync::finding_room::WithoutRoom;
use crate::tiers::dram::touching;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::united;
use tidegate_media::Region;

/// Offsets and lengths of files stay below this, as the kernel's do.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The kernel's errno for a write that would end past every file's end.
const EFBIG: i32 = 27;

/// How often a read looks below while the file may change, before it has the file stand still.
const READ_TRIES: u32 = 4;

/// Bytes that leave DRAM at a time for the file below, to make room for a write.
const PASSED_BYTES: u64 = 4 << 20;

/// The file below, while it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileBelow {
    /// Bytes may be written there, and leave the cache.
    MayChange,
    /// The file's gate is held. What leaves the cache now are clean entries: their bytes were
    /// written below before.
    StandsStill,
}

impl<R: Region> FileCache<R> {
    /// Copies bytes from offset `at`, each from its newest copy; says how many, which is fewer at
    /// the end of the file only. Ends the file's lease, if it has one.
    pub fn read(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<usize, FileError> {
        Ok(self.read_and_tell(file, at, out)?.0)
    }

    /// Reads, and says how many of the bytes came from below.
    pub(crate) fn read_and_tell(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<(usize, u64), FileError> {
        self.revoke(file)?;
        self.read_adopted(file, at, out)
    }

    /// Copies bytes from offset `at`, as [`FileCache::read`] does, for the process that has the
    /// file's lease: what it wrote is adopted, and the lease goes on.
    /// Says how many bytes there are, and how many of them came from below.
    pub fn read_leased(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<(usize, u64), FileError> {
        self.read_adopted(file, at, out)
    }

    fn read_adopted(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<(usize, u64), FileError> {
        self.refresh_where(file, FileBelow::MayChange)?;
        for _ in 0..READ_TRIES {
            if let Some(read) = self.try_read(file, at, out, FileBelow::MayChange)? {
                return Ok(read);
            }
        }
        self.while_busy(file, || Ok(self.try_read(file, at, out, FileBelow::StandsStill)?.unwrap_or((0, 0))))
    }

    /// Reads for an operation that has the file's gate.
    pub(crate) fn read_exclusively(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<(), FileError> {
        self.try_read(file, at, out, FileBelow::StandsStill).map(drop)
    }

    /// The bytes read, and those from below; `None` if bytes left the cache while the file below
    /// was read, and may have been written there after that.
    fn try_read(
        &self,
        file: FileId,
        at: u64,
        out: &mut [u8],
        below: FileBelow,
    ) -> Result<Option<(usize, u64)>, FileError> {
        let (backing, dropped, uncut, len) = {
            let mut lane = self.lane();
            let cached = lane.file(file)?;
            let len = usize::try_from(cached.size.saturating_sub(at)).unwrap_or(usize::MAX).min(out.len());
            if len == 0 {
                return Ok(Some((0, 0)));
            }
            if cached.has_all(at, len) {
                return Ok(Some((len, lane.overlay(file, at, &mut out[..len])?)));
            }
            (cached.backing()?.clone(), cached.dropped, cached.uncut, len)
        };
        let there = uncut.map_or(u64::MAX, |uncut| uncut.saturating_sub(at));
        let (there, hole) = out[..len].split_at_mut(usize::try_from(there).unwrap_or(usize::MAX).min(len));
        read_below(&*backing, at, there)?;
        hole.fill(0);
        // What was not here was below, and is below still unless something was dropped since, which
        // may have been written after that look.
        let mut lane = self.lane();
        let cached = lane.file(file)?;
        if below == FileBelow::MayChange && (cached.dropped != dropped || cached.size < at + len as u64) {
            return Ok(None);
        }
        let len = usize::try_from(cached.size.saturating_sub(at)).unwrap_or(usize::MAX).min(len);
        Ok(Some((len, lane.overlay(file, at, &mut out[..len])?)))
    }

    /// Writes bytes at offset `at`. The file below has reserved room for them when this returns.
    pub fn write(&self, file: FileId, at: u64, data: &[u8], persistence: Persistence) -> Result<(), FileError> {
        if data.is_empty() || self.ready(file)?.write(file, at, data, persistence)? {
            return Ok(());
        }
        self.finding_room(|without| {
            self.exclusively(file, || self.write_exclusively(file, (at, data), persistence, without))
        })
        .map(drop)
    }

    /// Writes bytes at the end of the file, and says where that was (`O_APPEND`).
    pub fn append(&self, file: FileId, data: &[u8], persistence: Persistence) -> Result<u64, FileError> {
        {
            let mut lane = self.ready(file)?;
            let at = lane.file(file)?.size;
            if data.is_empty() || lane.write(file, at, data, persistence)? {
                return Ok(at);
            }
        }
        let mut appended_at = 0;
        self.finding_room(|without| {
            self.exclusively(file, || {
                self.refresh(file)?;
                appended_at = self.lane().file(file)?.size;
                self.write_exclusively(file, (appended_at, data), persistence, without)
            })
        })?;
        Ok(appended_at)
    }

    /// The file's length in bytes, as the program sees it. A lease goes on.
    pub fn size(&self, file: FileId) -> Result<u64, FileError> {
        self.refresh_where(file, FileBelow::MayChange)?;
        Ok(self.lane().file(file)?.size)
    }

    /// Adopts what a process with a lease wrote, and takes the length over that the kernel's path
    /// left, if it may have touched the file. For exclusive operations, when they begin.
    pub(crate) fn refresh(&self, file: FileId) -> Result<(), FileError> {
        self.refresh_where(file, FileBelow::StandsStill)
    }

    /// [Refreshes](Self::refresh) for an operation beside which an exclusive one may be under way.
    /// That one knows the length, from its beginning on.
    fn refresh_where(&self, file: FileId, below: FileBelow) -> Result<(), FileError> {
        let (backing, touched) = {
            let mut lane = self.lane();
            lane.adopt(file)?;
            let cached = lane.file(file)?;
            if !cached.passed || (below == FileBelow::MayChange && cached.busy) {
                return Ok(());
            }
            (cached.backing()?.clone(), cached.touched)
        };
        let len = backing.status()?.len;
        let mut lane = self.lane();
        let cached = lane.file(file)?;
        let stands = below == FileBelow::StandsStill || (!cached.busy && cached.touched == touched);
        if cached.passed && stands && cached.size != len { lane.set_size(file, len) } else { Ok(()) }
    }

    /// A write that goes below, for room there, for the file's first record or for want of room
    /// here. `None`: nothing is written, for want of room here.
    fn write_exclusively(
        &self,
        file: FileId,
        (at, data): (u64, &[u8]),
        how: Persistence,
        without: WithoutRoom,
    ) -> Result<Option<()>, FileError> {
        let end = end_in_file(at, data.len() as u64)?;
        self.refresh(file)?;
        self.reserve(file, at, data.len() as u64)?;
        let written = self.around_mapped(file, (at, data), |part| match how {
            Persistence::Asynchronous => self.write_as_room_allows(file, part, without),
            Persistence::Synchronous => Ok(self.write_synced(file, part, without)?.map(drop)),
        })?;
        if written.is_some() {
            self.lane().has_written(file, end)?;
        }
        Ok(written)
    }

    /// Has the file below reserve room, so that it gives an error now or never. One that others
    /// changed is left alone.
    pub(crate) fn reserve(&self, file: FileId, at: u64, len: u64) -> Result<(), FileError> {
        let Some(lacking) = self.lane().file(file)?.lacks_room(at, len) else { return Ok(()) };
        let (backing, known_by) = self.known_below(file)?;
        if let Some(end) = backing.has_plenty_for(lacking.end) {
            self.lane().file_mut(file)?.room.reserve(lacking.start..end.max(lacking.end));
            return Ok(());
        }
        match self.refuse_changed(file) {
            Err(FileError::Changed) => return Ok(()),
            unchanged => unchanged?,
        }
        let touched = self.lane().touch(file)?;
        // With what will be needed next if there is room for it; what is needed, if there is not.
        match backing.fallocate(lacking.start, lacking.end - lacking.start, Fallocate::Reserve) {
            Ok(()) => self.lane().file_mut(file)?.room.reserve(lacking),
            // Such a file system answers for itself when it is written to.
            Err(refused) if refused.is_unsupported() => self.lane().file_mut(file)?.room.reserve(lacking),
            Err(_) => backing.fallocate(at, len, Fallocate::Reserve)?,
        }
        let Some(known_by) = known_by else { return Ok(()) };
        let now = backing.status()?.stamp;
        if now.has_contents_of(known_by) { self.lane().room_was_reserved(file, touched, now) } else { Ok(()) }
    }

    /// The file below, and the mark by which it is known.
    pub(crate) fn known_below(&self, file: FileId) -> Result<(Arc<dyn BackingFile>, Option<Stamp>), FileError> {
        let lane = self.lane();
        let cached = lane.file(file)?;
        Ok((cached.backing()?.clone(), cached.stamp()))
    }

    /// An error if others changed the file below since the cache knows it. Before the cache changes
    /// it: what they wrote is not written over.
    pub(crate) fn refuse_changed(&self, file: FileId) -> Result<(), FileError> {
        let (backing, stamp) = self.known_below(file)?;
        let BackingStatus { stamp: now, is_removed, .. } = backing.status()?;
        let is_own = |stamp| stamp == Stamp::DISPLACED || now.has_contents_of(stamp);
        if !is_removed && stamp.is_none_or(is_own) { Ok(()) } else { Err(FileError::Changed) }
    }

    /// Writes to DRAM. If it has no room for all of the write, the file's unsynced writes are
    /// committed, or leave DRAM for the file below if a power cut may tear them; if there are none,
    /// this one is written durably. So no commit has a part of it. `None`: nothing is written, for
    /// want of room in the pool.
    pub(crate) fn write_as_room_allows(
        &self,
        file: FileId,
        (at, data): (u64, &[u8]),
        without: WithoutRoom,
    ) -> Result<Option<()>, FileError> {
        loop {
            let has_none = {
                let mut lane = self.lane();
                let written = &lane.file(file)?.written;
                let has_none = written.is_empty();
                if lane.unsynced.has_room_for(written, at, data.len() as u64) {
                    return lane.write_unsynced(file, at, data).map(|_| Some(()));
                }
                has_none
            };
            if has_none {
                return Ok(self.write_synced(file, (at, data), without)?.map(drop));
            }
            let made_room = if self.may_pass_below(file)? {
                self.pass_below(file, PASSED_BYTES).map(|_| Some(()))?
            } else {
                let without = self.lane().for_unsynced(file, without)?;
                self.sync_exclusively(file, without)?.map(drop)
            };
            if made_room.is_none() {
                return Ok(None);
            }
        }
    }
}

impl<R: Region> Lane<R> {
    /// Puts the newer bytes that are here over those from below, and counts them by tier. Says how
    /// many are those from below.
    fn overlay(&mut self, file: FileId, at: u64, out: &mut [u8]) -> Result<u64, FileError> {
        self.overlay_durable(file, at, out)?;
        self.overlay_unsynced(file, at, out)?;
        let range = at..at + out.len() as u64;
        let cached = self.file(file)?;
        let (dram, pool) = (cached.unsynced_bytes(range.clone()), cached.durable_bytes(range));
        let below = out.len() as u64 - dram - pool;
        let counters = &mut self.counters;
        counters.reads_dram += u64::from(dram > 0);
        counters.reads_pool += u64::from(pool > 0);
        counters.reads_below += u64::from(below > 0);
        counters.bytes_read_dram += dram;
        counters.bytes_read_pool += pool;
        counters.bytes_read_below += below;
        Ok(below)
    }

    pub(crate) fn overlay_durable(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<(), FileError> {
        for (range, slot) in self.file(file)?.newest.within(at..at + out.len() as u64) {
            let extent = &self.slots.used(slot).extent;
            let from = usize::try_from(range.start - at).expect("inside the buffer");
            let until = usize::try_from(range.end - at).expect("inside the buffer");
            self.medium.read_extent(extent, range.start, &mut out[from..until]).map_err(tidegate_media::Error::from)?;
        }
        Ok(())
    }

    pub(crate) fn overlay_unsynced(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<(), FileError> {
        Ok(self.unsynced.overlay(&self.file(file)?.written, at, out).map_err(tidegate_media::Error::from)?)
    }

    /// Writes if nothing is to be done below for that; says whether it was done.
    fn write(&mut self, file: FileId, at: u64, data: &[u8], how: Persistence) -> Result<bool, FileError> {
        let end = end_in_file(at, data.len() as u64)?;
        let cached = self.file(file)?;
        let needs_gate = cached.passed || cached.is_detached() || cached.lacks_room(at, data.len() as u64).is_some();
        if needs_gate || self.is_mapped_in(file, &(at..end))? {
            return Ok(false);
        }
        let written = match how {
            Persistence::Asynchronous if !self.unsynced.has_room_for(&cached.written, at, data.len() as u64) => false,
            Persistence::Asynchronous => self.write_unsynced(file, at, data)? == data.len(),
            Persistence::Synchronous => cached.record.is_some() && self.commit_given(file, at, data)?,
        };
        if written {
            self.has_written(file, end)?;
        }
        Ok(written)
    }

    /// Writes to DRAM as much as there is room for, and says how much that was.
    pub(crate) fn write_unsynced(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<usize, FileError> {
        let now = self.now;
        let cached = self.file_mut(file)?;
        if cached.written.is_empty() {
            cached.dirty_since = now;
        }
        let size = cached.size;
        let mut written = std::mem::take(&mut cached.written);
        self.unsynced.begin_write(file.0, &written, size, (at, data));
        let bytes = self.unsynced.write(file.0, &mut written, at, data);
        self.file_mut(file)?.written = written;
        let has_length = if bytes > 0 { self.has_written(file, at + bytes as u64) } else { Ok(()) };
        self.unsynced.end_write();
        has_length.map(|()| bytes)
    }

    /// The file reaches this far, and is no longer only the kernel's.
    pub(crate) fn has_written(&mut self, file: FileId, end: u64) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        cached.passed = false;
        if end > cached.size { self.set_size(file, end) } else { Ok(()) }
    }
}

/// Where `len` bytes from `at` on end, if a file may be that long.
pub(crate) fn end_in_file(at: u64, len: u64) -> Result<u64, FileError> {
    let end = at.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
    end.ok_or(FileError::Below(Refused { errno: EFBIG }))
}

impl File {
    /// What is to be reserved below for `len` bytes from `at` on, if it is not yet.
    fn lacks_room(&self, at: u64, len: u64) -> Option<Range<u64>> {
        self.room.lacking(&(at..at + len), self.size)
    }

    /// Whether every byte from `at` to `at + len` is here.
    fn has_all(&self, at: u64, len: usize) -> bool {
        let range = at..at + len as u64;
        range.is_empty() || self.parts_here(&range) == [range]
    }

    /// The parts of a range that are in DRAM or in entries: ascending, none touching the next.
    pub(crate) fn parts_here(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let entries = self.newest.within(range.clone()).into_iter().map(|(part, _)| part);
        united(entries.chain(touching(&self.written, range.clone()).map(|(part, ..)| part)).collect())
    }

    /// Bytes of a range whose newest copy is in DRAM.
    pub(crate) fn unsynced_bytes(&self, range: Range<u64>) -> u64 {
        touching(&self.written, range).map(|(part, ..)| part.end - part.start).sum()
    }

    /// Bytes of a range whose newest copy is in an entry.
    fn durable_bytes(&self, range: Range<u64>) -> u64 {
        let parts = self.newest.within(range).into_iter();
        parts.map(|(part, _)| part.end - part.start - self.unsynced_bytes(part)).sum()
    }
}

/// Reads from below; what lies past the end there is zeroes.
fn read_below(backing: &dyn BackingFile, at: u64, out: &mut [u8]) -> Result<(), Refused> {
    let mut done = 0;
    while done < out.len() {
        match backing.read(at + done as u64, &mut out[done..])? {
            0 => break,
            bytes => done += bytes,
        }
    }
    out[done..].fill(0);
    Ok(())
}
