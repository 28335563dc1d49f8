//! A device that notes how long each block was on its way: the block's first bytes say when it was written.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tidegate_media::{BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, Result};

/// The device.
pub(super) struct Arrivals {
    device: Arc<dyn BlockDevice>,
    origin: Instant,
    stays: Mutex<Vec<f64>>,
}

impl Arrivals {
    pub(super) fn new(device: Arc<dyn BlockDevice>) -> Arrivals {
        Arrivals { device, origin: Instant::now(), stays: Mutex::new(Vec::new()) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).expect("a benchmark ends before 64 bits do")
    }

    /// What a block written now begins with.
    pub(super) fn stamp(&self) -> [u8; 8] {
        self.now().to_le_bytes()
    }

    /// Nanoseconds that each block was on its way, and forgets them.
    pub(super) fn take_stays(&self) -> Vec<f64> {
        std::mem::take(&mut *self.stays.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BlockDevice for Arrivals {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.device.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.device.write(at, data, durability)?;
        let written = data.first_chunk().map_or(0, |stamp| u64::from_le_bytes(*stamp));
        let stay = self.now().saturating_sub(written);
        self.stays.lock().unwrap_or_else(PoisonError::into_inner).push(stay as f64);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.device.discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.device.write_zeroes(range, durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.device.extent(range)
    }
}
