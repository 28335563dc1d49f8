//! The CPU gate of a write cache. While it is shut, writes bypass the cache.
//!
//! The first drain thread shuts it for a while when it has no core to itself, or when the device is
//! so fast that writers gain nothing by the cache ([`tidegate_policy::admit::bypass`]).

use crate::schedstat::Schedstat;
use std::time::Instant;
use tidegate_media::Region;
use tidegate_policy::admit::bypass::Bypass;
use tidegate_write_cache::WriteCache;

/// The gate of `cache` and what its deciding thread has measured. Dropping this opens the gate.
pub(crate) struct CpuGate<'a, R: Region> {
    cache: &'a WriteCache<R>,
    bypass: Bypass,
    schedstat: Schedstat,
    shut_until: Option<Instant>,
}

impl<'a, R: Region> CpuGate<'a, R> {
    /// Makes the gate of `cache`, for which the calling thread decides.
    pub(crate) fn new(cache: &'a WriteCache<R>) -> CpuGate<'a, R> {
        CpuGate { cache, bypass: Bypass::default(), schedstat: Schedstat::of_this_thread(), shut_until: None }
    }

    /// Learns that a step evicted `evicted` blocks. Returns until when the gate is shut, if it is.
    pub(crate) fn after_step(&mut self, evicted: u32) -> Option<Instant> {
        let now = Instant::now();
        if self.shut_until.is_some_and(|until| now < until) {
            return self.shut_until;
        }
        if self.shut_until.take().is_some() {
            self.cache.take_in();
            self.schedstat.paused();
        }
        if evicted == 0 {
            self.schedstat.paused();
            return None;
        }
        let (times, drained) = self.schedstat.went_on(now, evicted)?;
        let away = self.bypass.measured(times.ran, times.waited, drained)?;
        self.cache.turn_away();
        self.shut_until = self.cache.turns_away().then(|| now + away);
        self.shut_until
    }
}

impl<R: Region> Drop for CpuGate<'_, R> {
    fn drop(&mut self) {
        self.cache.take_in();
    }
}
