//! Back-pressure on the writers of a disk cache while more is dirty than its limit.
//!
//! Each write is delayed a little, so that writers become as slow as the disk. Without it, one of
//! them would have to wait until the disk has taken a whole step of blocks.

use crate::destage_thread::Destager;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_disk_cache::DiskCache;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Region, Result};

/// Shorter times are saved up: a sleep costs more than that.
const PAUSE_MIN: Duration = Duration::from_micros(200);

/// Longest sleep of a writer at once.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// A disk cache whose writers are delayed while more is dirty than its limit.
pub struct Throttled<R: Region + 'static> {
    cache: Arc<DiskCache<R>>,
    destager: Arc<Destager>,
    pause: fn(Duration),
    /// Delay that writers owe together, in nanoseconds. Relaxed: the writer that takes it sleeps
    /// it.
    owed_ns: AtomicU64,
}

impl<R: Region + 'static> Throttled<R> {
    /// Throttles `cache`, which `destager` destages. A writer waits by calling `pause`.
    pub fn new(cache: Arc<DiskCache<R>>, destager: Arc<Destager>, pause: fn(Duration)) -> Throttled<R> {
        Throttled { cache, destager, pause, owed_ns: AtomicU64::new(0) }
    }

    /// Delays a writer of `blocks` blocks.
    fn throttle(&self, blocks: u64) {
        let each = self.destager.write_delay(self.cache.dirty_blocks());
        if each.is_zero() {
            return;
        }
        let ns = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX).saturating_mul(blocks);
        let owed = self.owed_ns.fetch_add(ns, Ordering::Relaxed).saturating_add(ns);
        if Duration::from_nanos(owed) >= PAUSE_MIN {
            let owed = Duration::from_nanos(self.owed_ns.swap(0, Ordering::Relaxed));
            (self.pause)(owed.min(PAUSE_MAX));
        }
    }
}

impl<R: Region + 'static> BlockDevice for Throttled<R> {
    tidegate_media::forward!(self => self.cache; geometry, read, flush, discard, extent);

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.throttle(data.len() as u64 / u64::from(self.geometry().block_size));
        self.cache.write(at, data, durability)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.throttle(range.blocks);
        self.cache.write_zeroes(range, durability)
    }
}
