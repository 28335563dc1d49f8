//! Writers of a cache whose disk does not keep up: each is held back a little, so that all become as slow as the disk before one of them
//! has to wait until the disk has taken a whole step of blocks.

use crate::destager::Destager;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_disk_cache::DiskCache;
use tidegate_media::{BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, Region, Result};

/// Shorter times are saved up: a sleep costs more than that.
const PAUSE_MIN: Duration = Duration::from_micros(200);

/// No writer is held back for longer at once.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// A cache, with its writers held back when more is dirty than its limit.
pub struct HeldBack<R: Region + 'static> {
    cache: Arc<DiskCache<R>>,
    destager: Arc<Destager>,
    pause: fn(Duration),
    /// What writers owe together, in nanoseconds. Relaxed: whoever takes it sleeps it.
    owed_ns: AtomicU64,
}

impl<R: Region + 'static> HeldBack<R> {
    /// `cache`, which `destager` destages. `pause` is how a writer waits.
    pub fn new(cache: Arc<DiskCache<R>>, destager: Arc<Destager>, pause: fn(Duration)) -> HeldBack<R> {
        HeldBack { cache, destager, pause, owed_ns: AtomicU64::new(0) }
    }

    /// Holds back whoever is about to write `blocks` blocks.
    fn hold_back(&self, blocks: u64) {
        let each = self.destager.hold_back(self.cache.dirty_blocks());
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

impl<R: Region + 'static> BlockDevice for HeldBack<R> {
    fn geometry(&self) -> Geometry {
        self.cache.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.cache.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.hold_back(data.len() as u64 / u64::from(self.geometry().block_size));
        self.cache.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.cache.flush()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.cache.discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.hold_back(range.blocks);
        self.cache.write_zeroes(range, durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.cache.extent(range)
    }
}
