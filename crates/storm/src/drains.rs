//! The threads that drain the caches of a storm, and the doorbell that wakes them.

use crate::scene::{Stack, Tier};
use crate::seen::{Drain, Seen, seen};
use std::sync::{Arc, Mutex};
use tidegate_disk_cache::SweepScope;
use tidegate_media::sync::yield_now;
use tidegate_virtual_cores::{begin, park, unpark};
use tidegate_write_cache::Doorbell;

/// Wakes every thread that drains.
pub(crate) struct Bell {
    pub(crate) first: u32,
    pub(crate) drains: u32,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

impl Doorbell for Bell {
    fn ring(&self) {
        seen(&self.seen).drains.fill(Drain::Awake);
        (self.first..self.first + self.drains).for_each(|thread| unpark(thread as usize));
    }
}

impl tidegate_disk_cache::Doorbell for Bell {
    fn ring(&self) {
        Doorbell::ring(self);
    }
}

/// Destages until the clients are through, as drain number `own`. What it leaves out, clients who
/// drain take along.
pub(crate) fn destages(cache: &Tier, seen_by: &Mutex<Seen>, own: usize) {
    let in_order = cache.identity().journal_blocks > 0;
    loop {
        begin();
        let progress = cache.destage_step_in(2, SweepScope::Neighbours);
        let failed = progress.flush_failed.is_some() || !progress.failed.is_empty();
        if failed {
            let mut seen = seen(seen_by);
            assert!(seen.faulted, "destaging failed without a reason: {progress:?}");
            seen.destaging_failed += 1;
        }
        // A group is brought to the disk in steps, and its blocks turn clean with the last.
        let goes_on = in_order && progress.more && !failed;
        if progress.cleaned > 0 || goes_on {
            continue;
        }
        if seen(seen_by).busy == 0 {
            return;
        } else if !sleeps_unless(seen_by, own, || cache.may_sleep()) {
            yield_now();
        }
    }
}

/// Sleeps until the doorbell rings, if it `may_sleep`; whether it did.
fn sleeps_unless(seen_by: &Mutex<Seen>, own: usize, may_sleep: impl Fn() -> bool) -> bool {
    seen(seen_by).drains[own] = Drain::Asking;
    let sleeps = may_sleep();
    {
        let mut seen = seen(seen_by);
        let rung = seen.drains[own] == Drain::Awake;
        seen.drains[own] = if sleeps && !rung { Drain::Asleep } else { Drain::Awake };
    }
    if sleeps {
        park();
        seen(seen_by).drains[own] = Drain::Awake;
    }
    sleeps
}

/// Between two operations, with nobody else in the middle of one, somebody is awake if something is
/// `left` to drain.
pub(crate) fn assert_awake(seen_by: &Mutex<Seen>, left: impl FnOnce() -> usize) {
    let quiet = |seen: &Seen| {
        let asleep = !seen.drains.is_empty() && seen.drains.iter().all(|drain| *drain == Drain::Asleep);
        (asleep && seen.acting.0 == 0).then_some(seen.acting.1)
    };
    let before = quiet(&seen(seen_by));
    if before.is_none() {
        return;
    }
    let left = left();
    assert!(left == 0 || quiet(&seen(seen_by)) != before, "{left} blocks wait, and everyone who drains sleeps");
}

/// Drains until the clients are through and nothing is left.
pub(crate) fn drains_cache(stack: &Stack, seen_by: &Mutex<Seen>, block_bytes: usize) {
    let cache = stack.cache.as_ref().expect("drains are for caches");
    let (mut cursor, mut scratch) = (0, vec![0; block_bytes]);
    loop {
        begin();
        let Ok(progress) = cache.drain_step(2, &mut cursor, &mut scratch) else {
            return seen(seen_by).refused = true;
        };
        if progress.evicted > 0 {
            continue;
        }
        if progress.more {
            yield_now();
        } else if seen(seen_by).busy == 0 {
            return;
        } else if cache.may_sleep() {
            park();
        }
    }
}
