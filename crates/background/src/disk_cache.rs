//! A disk cache as a [`Destager`](crate::Destager) drives it.

use crate::destage_thread::{Bell, Dirty};
use crate::step::Step;
use std::sync::Arc;
use tidegate_disk_cache::{DestageStep, DiskCache, Doorbell};
use tidegate_media::{BlockDevice, Region};
use tidegate_policy::writeback::destage::{Caps, Limits, Load, SweepScope};

impl Doorbell for Bell {
    fn ring(&self) {
        Bell::ring(self);
    }
}

impl<R: Region + 'static> Dirty for DiskCache<R> {
    fn load(&self) -> Load {
        let dirty = u32::try_from(self.dirty_blocks()).unwrap_or(u32::MAX);
        Load { dirty, writes: self.counters().commits }
    }

    fn blocks(&self) -> u32 {
        self.fill().blocks
    }

    fn limits(&self, caps: &Caps) -> Limits {
        caps.limits(self.fill().blocks, self.geometry().block_size)
    }

    fn step(&self, blocks_max: u32, scope: SweepScope) -> Step {
        let DestageStep { cleaned, failed, flush_failed, more, .. } = self.destage_step_in(blocks_max, scope);
        Step { cleaned, refused: failed, not_durable: flush_failed, more }
    }

    fn shares_sweeps(&self) -> bool {
        self.identity().journal_blocks > 0
    }

    fn may_sleep(&self) -> bool {
        DiskCache::may_sleep(self)
    }

    fn set_bell(&self, bell: Bell) {
        self.set_doorbell(Arc::new(bell));
    }
}
