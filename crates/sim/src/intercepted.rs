//! A device with something done at its reads and writes: made slower, watched, or overtaken in the middle.

use std::sync::Arc;
use tidegate_media::{BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, Result};

/// What is done at the reads and writes of a device, around the device's own; each is only passed on unless it is given here.
pub trait Intercept: Send + Sync {
    /// Does a read of `device`.
    fn read<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, out: &mut [u8]) -> Result<()> {
        device.read(at, out)
    }

    /// Does a write of `device`.
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        device.write(at, data, durability)
    }
}

/// A device whose reads and writes go through an [`Intercept`], and whose other requests are passed on.
pub struct Intercepted<D: ?Sized, I> {
    /// The device.
    pub device: Arc<D>,
    /// What is done.
    pub by: I,
}

impl<D: BlockDevice + ?Sized, I: Intercept> BlockDevice for Intercepted<D, I> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.by.read(&*self.device, at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.by.write(&*self.device, at, data, durability)
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
