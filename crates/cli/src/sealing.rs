//! A device whose first lost store is told in the log: clients only see errors, and from then on every write fails.

use rustix::fs::statvfs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_media::{BlockDevice, Durability, Error, Extent, Geometry, Lba, LbaRange, Result, Sealed};

/// A served device, and the file of its region.
pub(crate) struct Sealing {
    device: Arc<dyn BlockDevice>,
    pmem: PathBuf,
    is_told: AtomicBool,
}

impl Sealing {
    /// `device`, which lies in `pmem`.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, pmem: &Path) -> Sealing {
        Sealing { device, pmem: pmem.to_owned(), is_told: AtomicBool::new(false) }
    }

    fn told<T>(&self, answer: Result<T>) -> Result<T> {
        // Nothing else hangs on it: one of those that fail at once tells.
        if let Err(Error::Sealed(sealed)) = &answer
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("{}", words(&self.pmem, *sealed));
        }
        answer
    }
}

/// What happened to the volume in `pmem`, and what to do.
fn words(pmem: &Path, sealed: Sealed) -> String {
    let next = match is_full(pmem) {
        true => "its file system is full: make room there, then start the server anew".to_owned(),
        false => format!("see dmesg, then end the server and run: tidegate check --pmem {}", crate::shell::word(pmem)),
    };
    format!("{} takes no more writes: {sealed}; {next}", pmem.display())
}

/// Whether the file system of `path` has no room at all.
pub(crate) fn is_full(path: &Path) -> bool {
    statvfs(path).is_ok_and(|room| room.f_blocks > 0 && room.f_bavail == 0)
}

impl BlockDevice for Sealing {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.told(self.device.read(at, out))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.told(self.device.write(at, data, durability))
    }

    fn flush(&self) -> Result<()> {
        self.told(self.device.flush())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.told(self.device.discard(range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.told(self.device.write_zeroes(range, durability))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.told(self.device.extent(range))
    }
}
