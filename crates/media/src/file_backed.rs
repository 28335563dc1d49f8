//! Blocks in a file on a disk: the operating system's `fdatasync` makes them durable, not a fence.
//!
//! A region over such a file lies in the page cache, and its fences reach no further.
//! [`FileBacked`] ends each flush and each write with forced unit access by an `fdatasync` of the
//! file. When one fails, the kernel may have dropped the pages and forgotten that it did, so no
//! flush is tried again: from then on every write and flush is refused.

use crate::block::{BlockDevice, Durability, Geometry, Lba, LbaRange};
use crate::error::{Result, Sealed};
use crate::flushes::Flushes;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// A block device over a region of the domain `disk-file`.
///
/// Its geometry says what the disk leaves of the promises below: completed writes may be lost until
/// the next flush, and a power cut may tear any block.
pub struct FileBacked {
    device: Arc<dyn BlockDevice>,
    file: File,
    flushes: Flushes,
}

impl FileBacked {
    /// `device`, whose region lies in `file`.
    pub fn new(device: Arc<dyn BlockDevice>, file: &File) -> io::Result<FileBacked> {
        Ok(FileBacked { device, file: file.try_clone()?, flushes: Flushes::default() })
    }

    fn sync(&self) -> Result<()> {
        self.flushes.cover(|| self.file.sync_data().map_err(|error| Sealed::by_failed_sync(&error).into()))
    }

    fn sync_if(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua => self.sync(),
        }
    }
}

impl BlockDevice for FileBacked {
    crate::forward!(self => self.device; read, extent);

    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, atomic_blocks: 0, ..self.device.geometry() }
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.flushes.check()?;
        self.device.write(at, data, durability)?;
        self.sync_if(durability)
    }

    fn flush(&self) -> Result<()> {
        self.flushes.check()?;
        self.device.flush()?;
        self.sync()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.flushes.check()?;
        self.device.discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.flushes.check()?;
        self.device.write_zeroes(range, durability)?;
        self.sync_if(durability)
    }
}

#[cfg(test)]
mod tests;
