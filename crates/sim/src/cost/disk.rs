//! A disk whose requests take virtual time: a system call, the disk's latency, and its one queue.

use super::{Act, CoreCosts, Disk, Figure, Queue, Timeline, VirtualTime};
use std::sync::Mutex;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Result};

/// A block device that takes the time of a disk.
pub struct TimedDisk<D, T = VirtualTime> {
    device: D,
    disk: Disk,
    processor: CoreCosts,
    timeline: T,
    queue: Mutex<Queue>,
}

impl<D: BlockDevice> TimedDisk<D> {
    /// `device` with the times of `disk`, on virtual cores that cost what `processor` does.
    pub fn new(device: D, disk: Disk, processor: CoreCosts) -> TimedDisk<D> {
        TimedDisk::with_timeline(device, disk, processor, VirtualTime)
    }
}

impl<D: BlockDevice, T: Timeline> TimedDisk<D, T> {
    /// `device` with the times of `disk`, charged to `timeline`.
    pub fn with_timeline(device: D, disk: Disk, processor: CoreCosts, timeline: T) -> TimedDisk<D, T> {
        TimedDisk { device, disk, processor, timeline, queue: Mutex::default() }
    }

    /// One request: it waits for those before it while `bytes` go over, and then for its own
    /// latency.
    fn request(&self, latency: &Figure, bytes: u64) {
        if self.timeline.thread().is_none() {
            return;
        }
        let now_ps = self.timeline.now_ns() * 1000 + self.processor.ps(Act::SystemCall, 1);
        let work_ps = bytes * self.disk.transfer_4k.ps / 4096;
        let over_ps = self.queue.lock().expect("no holder of this lock panics").reserve(now_ps, work_ps);
        let done_ns = (over_ps + latency.ps).div_ceil(1000);
        self.timeline.charge(done_ns - self.timeline.now_ns());
    }

    fn durable(&self, durability: Durability) {
        if durability == Durability::Fua {
            self.request(&self.disk.flush, 0);
        }
    }
}

impl<D: BlockDevice, T: Timeline> BlockDevice for TimedDisk<D, T> {
    tidegate_media::forward!(self => self.device; geometry, extent);

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.device.read(at, out)?;
        self.request(&self.disk.read, out.len() as u64);
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.device.write(at, data, durability)?;
        self.request(&self.disk.write, data.len() as u64);
        self.durable(durability);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()?;
        self.request(&self.disk.flush, 0);
        Ok(())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.device.discard(range)?;
        self.request(&self.disk.write, 0);
        Ok(())
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.device.write_zeroes(range, durability)?;
        self.request(&self.disk.write, range.blocks * u64::from(self.geometry().block_size));
        self.durable(durability);
        Ok(())
    }
}
