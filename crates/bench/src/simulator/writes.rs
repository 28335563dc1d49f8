//! What is written, in real time and in virtual time alike.

use std::ops::Range;
use std::time::Duration;
use tidegate_media::BlockDevice;
use tidegate_media::Region;
use tidegate_media::sync::{AtomicU64, Ordering};
use tidegate_policy::pace::{Next, Pace};
use tidegate_write_cache::WriteCache;

/// Slots of the cache: as many as stay near a core.
pub(super) const SLOTS: u32 = 256;

/// Writes that a writer takes at once.
const LEG_WRITES: u64 = 256;

/// Blocks that one step of draining may evict.
const STEP: u32 = 64;

/// How long a thread that drains sleeps where the program's would park until it is woken.
const PARKED: Duration = Duration::from_micros(300);

/// Random writes of 4 KiB over 1 GiB, to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// The block translation table.
    Btt,
    /// A write cache over it, that one thread drains.
    Cache,
}

/// A part of a walk that one writer takes.
pub(super) struct Leg;

impl Leg {
    /// The next part of a walk of `len` writes, if one is left.
    pub(super) fn take(next: &AtomicU64, len: usize) -> Option<Range<usize>> {
        // Relaxed: a leg is handed out once, and orders nothing else.
        let first = usize::try_from(next.fetch_add(LEG_WRITES, Ordering::Relaxed)).ok()?;
        let end = (first + usize::try_from(LEG_WRITES).ok()?).min(len);
        (first < end).then_some(first..end)
    }
}

/// Drains `cache` until it is `over`.
pub(super) fn drain<R: Region>(cache: &WriteCache<R>, over: impl Fn() -> bool, rest: impl Fn(Duration)) {
    let (mut pace, mut cursor) = (Pace::default(), 0);
    let mut scratch = vec![0; cache.geometry().block_size as usize];
    while !over() {
        let step = cache.drain_step(STEP, &mut cursor, &mut scratch).expect("the device writes");
        match pace.after_step(step.evicted) {
            Next::GoOn => {}
            Next::Sleep(time) => rest(time),
            Next::Park => rest(PARKED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_cover_a_walk_once() {
        let next = AtomicU64::new(0);
        let legs: Vec<_> = std::iter::from_fn(|| Leg::take(&next, 600)).collect();
        assert_eq!(legs, [0..256, 256..512, 512..600]);
        assert_eq!(Leg::take(&next, 600), None);
    }
}
