//! Reads and writes.

use crate::below::Refused;
use crate::cache::{FileCache, Persistence};
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::Lane;
use crate::tiers::dram::{NoBlock, touching};
use std::sync::Arc;
use tidegate_media::Region;

/// Offsets and lengths of files stay below this, as the kernel's do.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The kernel's errno for a write that would end past every file's end.
const EFBIG: i32 = 27;

/// How often a read looks below without the lock, while what it found there comes to be out of
/// date.
const READ_TRIES: u32 = 4;

impl<R: Region> FileCache<R> {
    /// Copies bytes from offset `at`, each from its newest copy; says how many, which is fewer at
    /// the end of the file only.
    pub fn read(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<usize, FileError> {
        for _ in 0..READ_TRIES {
            let (backing, dropped, len) = {
                let mut lane = self.lane();
                let len = lane.readable(file, at, out.len())?;
                let cached = lane.file(file)?;
                if len == 0 {
                    return Ok(0);
                }
                if cached.has_all(at, len) {
                    lane.overlay(file, at, &mut out[..len])?;
                    return Ok(len);
                }
                (cached.backing()?.clone(), cached.dropped, len)
            };
            read_below(&*backing, at, &mut out[..len])?;
            // What was not here was below, and is below still unless something was dropped since,
            // which may have been written after that look.
            let lane = self.lane();
            let cached = lane.file(file)?;
            if cached.dropped == dropped && cached.size >= at + len as u64 {
                lane.overlay(file, at, &mut out[..len])?;
                return Ok(len);
            }
        }
        let mut lane = self.lane();
        let len = lane.readable(file, at, out.len())?;
        let backing = Arc::clone(lane.file(file)?.backing()?);
        read_below(&*backing, at, &mut out[..len])?;
        lane.overlay(file, at, &mut out[..len])?;
        Ok(len)
    }

    /// Writes bytes at offset `at`. The file below has reserved room for them when this returns.
    pub fn write(&self, file: FileId, at: u64, data: &[u8], persistence: Persistence) -> Result<(), FileError> {
        self.lane().write(file, at, data, persistence)
    }

    /// Writes bytes at the end of the file, and says where that was (`O_APPEND`).
    pub fn append(&self, file: FileId, data: &[u8], persistence: Persistence) -> Result<u64, FileError> {
        let mut lane = self.lane();
        lane.look_below(file)?;
        let at = lane.file(file)?.size;
        lane.write(file, at, data, persistence)?;
        Ok(at)
    }
}

impl<R: Region> Lane<R> {
    /// How many of `len` bytes from `at` on the file has.
    fn readable(&mut self, file: FileId, at: u64, len: usize) -> Result<usize, FileError> {
        self.look_below(file)?;
        let left = self.file(file)?.size.saturating_sub(at);
        Ok(usize::try_from(left).unwrap_or(usize::MAX).min(len))
    }

    /// Puts the newer bytes that are here over those from below.
    fn overlay(&self, file: FileId, at: u64, out: &mut [u8]) -> Result<(), FileError> {
        let cached = self.file(file)?;
        for (range, slot) in cached.newest.within(at..at + out.len() as u64) {
            let extent = &self.slots[slot as usize].expect("whoever has bytes is in use").extent;
            let from = usize::try_from(range.start - at).expect("inside the buffer");
            let until = usize::try_from(range.end - at).expect("inside the buffer");
            self.medium.read_extent(extent, range.start, &mut out[from..until]).map_err(tidegate_media::Error::from)?;
        }
        Ok(self.unsynced.overlay(&cached.written, at, out).map_err(tidegate_media::Error::from)?)
    }

    fn write(&mut self, file: FileId, at: u64, data: &[u8], persistence: Persistence) -> Result<(), FileError> {
        let len = data.len() as u64;
        let end = at.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Refused { errno: EFBIG })?;
        if data.is_empty() {
            return Ok(());
        }
        self.look_below(file)?;
        self.reserve(file, at, len)?;
        self.file_mut(file)?.passed = false;
        match persistence {
            Persistence::Asynchronous => self.write_unsynced(file, at, data)?,
            Persistence::Synchronous => drop(self.write_synced(file, at, data)?),
        }
        if end > self.file(file)?.size {
            self.set_size(file, end)?;
        }
        Ok(())
    }

    /// Has the file below reserve room, so that it gives an error now or never.
    fn reserve(&mut self, file: FileId, at: u64, len: u64) -> Result<(), FileError> {
        let Some((from, bytes)) = self.file(file)?.unreserved(at, len) else { return Ok(()) };
        self.touch(file)?;
        let cached = self.file_mut(file)?;
        // Whole chunks if there is room for them; what is needed, if there is not.
        let backing = cached.backing()?.clone();
        match backing.reserve(from, bytes) {
            Ok(()) => cached.reserved(from, bytes),
            Err(_) => backing.reserve(at, len)?,
        }
        Ok(())
    }

    /// Writes to DRAM. Without a free block there, this file's unsynced writes are committed first,
    /// or else another's.
    pub(crate) fn write_unsynced(&mut self, file: FileId, at: u64, data: &[u8]) -> Result<(), FileError> {
        let mut done = 0;
        while done < data.len() {
            let here = at + done as u64;
            let mut written = std::mem::take(&mut self.file_mut(file)?.written);
            let (bytes, full) = self.unsynced.write(file.0, &mut written, here, &data[done..]);
            self.file_mut(file)?.written = written;
            done += bytes;
            let end = at + done as u64;
            if end > self.file(file)?.size {
                self.set_size(file, end)?;
            }
            if let Some(NoBlock) = full {
                self.make_room_in_dram(file)?;
            }
        }
        Ok(())
    }

    fn make_room_in_dram(&mut self, file: FileId) -> Result<(), FileError> {
        let has_some =
            |file: &Option<File>| file.as_ref().is_some_and(|file| !file.is_detached() && !file.written.is_empty());
        let mut others = (0..).zip(&self.files).filter(|(_, file)| has_some(file));
        let full = match self.file(file)?.written.is_empty() {
            false => Some(file),
            true => others.next().map(|(number, _)| FileId(number)),
        };
        // Memory without a single block: nothing can be cached.
        let full = full.ok_or(Refused { errno: ENOMEM })?;
        self.sync(full).map(drop)
    }
}

/// The kernel's errno for want of memory.
const ENOMEM: i32 = 12;

impl File {
    /// Whether every byte from `at` to `at + len` is here.
    fn has_all(&self, at: u64, len: usize) -> bool {
        let end = at + len as u64;
        let mut parts: Vec<_> = self.newest.within(at..end).into_iter().map(|(range, _)| range).collect();
        parts.extend(touching(&self.written, at..end).map(|(range, ..)| range));
        parts.sort_unstable_by_key(|range| range.start);
        let reached =
            parts.iter().fold(at, |reached, part| if part.start <= reached { reached.max(part.end) } else { reached });
        reached >= end
    }
}

/// Reads from below; what lies past the end there is zeroes.
fn read_below(backing: &dyn crate::below::BackingFile, at: u64, out: &mut [u8]) -> Result<(), Refused> {
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
