//! The gate of a cache: shut for a while when whoever drains has no core to itself, or takes what writers would better have written themselves.

use crate::turns::Turns;
use std::time::Instant;
use tidegate_media::Region;
use tidegate_policy::admission::Admission;
use tidegate_write_cache::WriteCache;

/// What the thread that decides for `cache` knows. Open again when this is dropped.
pub(crate) struct Gate<'a, R: Region> {
    cache: &'a WriteCache<R>,
    admission: Admission,
    turns: Turns,
    shut_until: Option<Instant>,
}

impl<'a, R: Region> Gate<'a, R> {
    /// The gate of `cache`, decided for by the calling thread.
    pub(crate) fn new(cache: &'a WriteCache<R>) -> Gate<'a, R> {
        Gate { cache, admission: Admission::default(), turns: Turns::of_this_thread(), shut_until: None }
    }

    /// After a step that evicted `evicted` blocks: until when the gate is shut, if it is.
    pub(crate) fn after_step(&mut self, evicted: u32) -> Option<Instant> {
        let now = Instant::now();
        if self.shut_until.is_some_and(|until| now < until) {
            return self.shut_until;
        }
        if self.shut_until.take().is_some() {
            self.cache.take_in();
            self.turns.paused();
        }
        if evicted == 0 {
            self.turns.paused();
            return None;
        }
        let (times, drained) = self.turns.went_on(now, evicted)?;
        let away = self.admission.measured(times.ran, times.waited, drained)?;
        self.cache.turn_away();
        self.shut_until = self.cache.turns_away().then(|| now + away);
        self.shut_until
    }
}

impl<R: Region> Drop for Gate<'_, R> {
    fn drop(&mut self) {
        self.cache.take_in();
    }
}
