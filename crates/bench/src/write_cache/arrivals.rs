//! How long each block was on its way to a device: the block's first bytes say when it was written.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tidegate_media::{BlockDevice, Durability, Lba, Result};
use tidegate_sim::Intercept;

/// What arrived at a device, and when.
pub(super) struct Arrivals {
    origin: Instant,
    stays: Mutex<Vec<f64>>,
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals { origin: Instant::now(), stays: Mutex::new(Vec::new()) }
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

impl Intercept for Arrivals {
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        device.write(at, data, durability)?;
        let written = data.first_chunk().map_or(0, |stamp| u64::from_le_bytes(*stamp));
        let stay = self.now().saturating_sub(written);
        self.stays.lock().unwrap_or_else(PoisonError::into_inner).push(stay as f64);
        Ok(())
    }
}
