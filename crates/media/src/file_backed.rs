//! Blocks in a file on a disk: what makes them durable is the operating system's `fdatasync`, not a fence.
//!
//! A region over such a file lies in the page cache, and its fences reach no further. [`FileBacked`] ends each flush and
//! each write with forced unit access by an `fdatasync` of the file. When one fails, the kernel may have dropped the
//! pages and forgotten that it did, so nothing is tried again: from then on every write and flush is refused.

use crate::block::{BlockDevice, Durability, Extent, Geometry, Lba, LbaRange};
use crate::error::{Result, Sealed};
use crate::sync::{AtomicU32, Mutex, Ordering};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// A block device over a region of the domain `disk-file`.
///
/// Its geometry says what the disk leaves of the promises below: completed writes may be lost until the next flush, and a power
/// cut may tear any block.
pub struct FileBacked {
    device: Arc<dyn BlockDevice>,
    file: File,
    syncs: Syncs,
}

impl FileBacked {
    /// `device`, whose region lies in `file`.
    pub fn new(device: Arc<dyn BlockDevice>, file: &File) -> io::Result<FileBacked> {
        Ok(FileBacked { device, file: file.try_clone()?, syncs: Syncs::default() })
    }

    fn sync(&self) -> Result<()> {
        Ok(self.syncs.cover(|| self.file.sync_data())?)
    }

    fn sync_if(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua => self.sync(),
        }
    }
}

impl BlockDevice for FileBacked {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, atomic_blocks: 0, ..self.device.geometry() }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.device.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.syncs.check()?;
        self.device.write(at, data, durability)?;
        self.sync_if(durability)
    }

    fn flush(&self) -> Result<()> {
        self.syncs.check()?;
        self.device.flush()?;
        self.sync()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.syncs.check()?;
        self.device.discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.syncs.check()?;
        self.device.write_zeroes(range, durability)?;
        self.sync_if(durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.device.extent(range)
    }
}

/// One `fdatasync` at a time, so that a failure, which the kernel tells once, is known before the next begins; and one for all
/// who waited meanwhile.
#[derive(Default)]
struct Syncs {
    /// How many have begun. Held for the reading or the counting only.
    begun: Mutex<u64>,
    /// The number of the last good one. Held for as long as one runs.
    last_good: Mutex<u64>,
    /// The error number of the first failed one; 0: none failed. Relaxed: under `last_good` where it decides about
    /// durability; elsewhere a write that just misses a failure is refused at its flush.
    failed: AtomicU32,
}

impl Syncs {
    fn check(&self) -> Result<(), Sealed> {
        match self.failed.load(Ordering::Relaxed).cast_signed() {
            0 => Ok(()),
            errno => Err(Sealed::SyncFailed { errno }),
        }
    }

    /// Comes back when a good sync has covered everything stored before this call.
    fn cover(&self, sync: impl FnOnce() -> io::Result<()>) -> Result<(), Sealed> {
        let begun_before = *self.begun.lock();
        let mut last_good = self.last_good.lock();
        self.check()?;
        if *last_good > begun_before {
            return Ok(());
        }
        let number = {
            let mut begun = self.begun.lock();
            *begun += 1;
            *begun
        };
        match sync() {
            Ok(()) => *last_good = number,
            Err(error) => {
                let errno =
                    error.raw_os_error().filter(|&errno| errno != 0).unwrap_or(rustix::io::Errno::IO.raw_os_error());
                self.failed.store(errno.cast_unsigned(), Ordering::Relaxed);
            }
        }
        self.check()
    }
}

#[cfg(test)]
mod tests;
