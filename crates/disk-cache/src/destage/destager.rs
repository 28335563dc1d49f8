//! The state that destaging shares: sweeps, failed flushes, blocks in doubt, and the doorbell.

use crate::destage::first_blocks::FirstBlocks;
use crate::destage::order::Order;
use crate::destage::sweep::Sweep;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_media::sync::{AtomicBool, Mutex, Ordering};

/// Wakes whoever drains. Called at most once after a call of `DiskCache::may_sleep`.
pub trait Doorbell: Send + Sync {
    /// There is something to drain.
    fn ring(&self);
}

/// The state that destaging shares.
pub(crate) struct Destager {
    pub(super) sweep: Mutex<Sweep>,
    /// How often a flush of the disk failed.
    pub(super) flush_failures: Mutex<u64>,
    /// Blocks of the disk that a failed write left in doubt. Looked at with their stripes locked.
    in_doubt: Mutex<BTreeSet<u64>>,
    /// Held by the writer that makes room for itself and for those behind it.
    pub(super) helping: Mutex<Sweep>,
    /// Whether the disk flushed since the cache was opened: until then a power cut may change what
    /// a read of it saw.
    pub(super) disk_settled: AtomicBool,
    /// What is known of the disk's first blocks.
    pub(super) first_blocks: FirstBlocks,
    /// What keeps the order of commits on the disk, if the cache is to.
    pub(super) order: Option<Order>,
    pub(super) doorbell: Mutex<Option<Arc<dyn Doorbell>>>,
    /// Whether whoever drains sleeps and wants the doorbell rung.
    pub(super) asleep: AtomicBool,
}

impl Destager {
    /// Of a disk that has flushed if `disk_settled` says so, and keeps the `order` of commits if
    /// there is one.
    pub(crate) fn new(disk_settled: AtomicBool, first_blocks: FirstBlocks, order: Option<Order>) -> Destager {
        Destager {
            sweep: Mutex::default(),
            flush_failures: Mutex::default(),
            in_doubt: Mutex::default(),
            helping: Mutex::default(),
            disk_settled,
            first_blocks,
            order,
            doorbell: Mutex::new(None),
            asleep: AtomicBool::new(false),
        }
    }

    /// What keeps the order of commits on the disk, if the cache is to.
    pub(crate) fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }

    /// Whether the disk flushed since the cache was opened.
    pub(crate) fn disk_has_flushed(&self) -> bool {
        // Acquire, with the release in `flush_disk_since`: what is read from here on was flushed
        // before.
        self.disk_settled.load(Ordering::Acquire)
    }

    /// Whether nobody knows what a power cut leaves of block `lba`.
    pub(crate) fn is_in_doubt(&self, lba: u64) -> bool {
        self.in_doubt.lock().contains(&lba)
    }

    /// A write of block `lba` to the disk failed.
    pub(super) fn doubt(&self, lba: u64) {
        self.in_doubt.lock().insert(lba);
    }

    /// The disk has a content of block `lba` for good.
    pub(super) fn settle_doubt(&self, lba: u64) {
        self.in_doubt.lock().remove(&lba);
    }

    /// A block turned dirty.
    pub(crate) fn ring_doorbell(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(doorbell) = &*self.doorbell.lock()
        {
            doorbell.ring();
        }
    }
}
