//! A served device, as the log tells of it: its first lost store, as clients only see errors, and
//! from then on every write fails; and at the level of traces every request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_media::{BlockDevice, Durability, Error, Extent, Geometry, Lba, LbaRange, Result, Sealed};

/// A served device, and the file of its region.
pub struct SealReporter {
    device: Arc<dyn BlockDevice>,
    pmem: PathBuf,
    is_told: AtomicBool,
}

impl SealReporter {
    /// `device`, which lies in `pmem`.
    pub fn new(device: Arc<dyn BlockDevice>, pmem: &Path) -> SealReporter {
        SealReporter { device, pmem: pmem.to_owned(), is_told: AtomicBool::new(false) }
    }

    /// Lets the log tell of the answer to a request, whose words are made only if they are wanted.
    fn told<T>(&self, answer: Result<T>, request: impl FnOnce() -> String) -> Result<T> {
        tracing::trace!("{}: {}: {}", self.pmem.display(), request(), outcome(&answer));
        // Nothing else hangs on it: one of those that fail at once tells.
        if let Err(Error::Sealed(sealed)) = &answer
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("{}", words(&self.pmem, *sealed));
        }
        answer
    }
}

fn outcome<T>(answer: &Result<T>) -> String {
    answer.as_ref().err().map_or_else(|| "done".to_owned(), ToString::to_string)
}

fn ranged(request: &str, range: LbaRange) -> String {
    format!("{request} {} blocks at {}", range.blocks, range.first)
}

/// What happened to the volume in `pmem`, and what to do.
fn words(pmem: &Path, sealed: Sealed) -> String {
    let next = match Error::from(sealed).is_for_want_of_room() {
        true => format!(
            "its file system is full: make room there, then start the server anew; to have all the room in advance: fallocate --length {} {}",
            std::fs::metadata(pmem).map_or(0, |there| there.len()),
            tidegate_host::shell::word(pmem)
        ),
        false => format!(
            "see dmesg, then end the server and run: tidegate check --pmem {}",
            tidegate_host::shell::word(pmem)
        ),
    };
    format!("{} takes no more writes: {sealed}; {next}", pmem.display())
}

impl BlockDevice for SealReporter {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.told(self.device.read(at, out), || format!("read {} bytes at {at}", out.len()))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let written = self.device.write(at, data, durability);
        self.told(written, || format!("write {} bytes at {at}, {durability:?}", data.len()))
    }

    fn flush(&self) -> Result<()> {
        self.told(self.device.flush(), || "flush".to_owned())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.told(self.device.discard(range), || ranged("discard", range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.told(self.device.write_zeroes(range, durability), || ranged("write zeroes to", range))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.told(self.device.extent(range), || ranged("look for holes in", range))
    }
}
