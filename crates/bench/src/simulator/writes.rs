//! The writes of a prediction, in real time and in virtual time alike.

use std::time::Duration;
use tidegate_media::BlockDevice;
use tidegate_media::Region;
use tidegate_policy::writeback::backoff::{Backoff, Next};
use tidegate_write_cache::WriteCache;

/// Slots of the cache: as many as stay near a core.
pub(super) const SLOTS: u32 = 256;

/// Blocks that one step of draining may evict.
const STEP: u32 = 64;

/// How long a thread that drains sleeps where the program's would park until it is woken.
const PARKED: Duration = Duration::from_micros(300);

/// Random writes over 1 GiB, to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// The block translation table.
    Btt,
    /// A write cache over it, that one thread drains.
    Cache,
    /// A disk cache that holds every block already; its disk is not written.
    DiskCache,
}

/// Drains `cache` until it is `over`.
pub(super) fn drain<R: Region>(cache: &WriteCache<R>, over: impl Fn() -> bool, rest: impl Fn(Duration)) {
    let (mut backoff, mut cursor) = (Backoff::default(), 0);
    let mut scratch = vec![0; cache.geometry().block_size as usize];
    while !over() {
        let step = cache.drain_step(STEP, &mut cursor, &mut scratch).expect("the device writes");
        match backoff.after_step(step.evicted) {
            Next::GoOn => {}
            Next::Sleep(time) => rest(time),
            Next::Park => rest(PARKED),
        }
    }
}
