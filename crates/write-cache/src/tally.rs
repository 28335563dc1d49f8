//! Counts of what is not counted under a set's lock.

use tidegate_media::sync::{AtomicU64, Ordering, thread_token};

/// Threads that count without a locked instruction; those beyond share one count.
const STRIPES: usize = 32;

/// All counts but those of the sets. On lines of its own, as whoever adds to it takes the line from everyone else.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    pub(crate) replaced: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) forced: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) stalled_ns: AtomicU64,
    pub(crate) wake_ups: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) bypassed: Striped,
}

/// A count that writers on several cores add to at the same time, without a line that passes between them and without a locked instruction,
/// which would wait for what the writer streamed before.
pub(crate) struct Striped {
    /// Each is changed by the thread of one token only.
    own: Box<[Stripe]>,
    /// Counts of threads with higher tokens.
    rest: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Striped {
    /// Counts one more.
    pub(crate) fn add_one(&self) {
        match self.own.get(thread_token() as usize) {
            // No thread alive has the same token, and whoever had it before gave it back under a lock: no addition is lost.
            Some(Stripe(own)) => own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            None => drop(self.rest.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The count.
    pub(crate) fn sum(&self) -> u64 {
        let own: u64 = self.own.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum();
        own + self.rest.load(Ordering::Relaxed)
    }
}

impl Default for Striped {
    fn default() -> Striped {
        Striped { own: (0..STRIPES).map(|_| Stripe::default()).collect(), rest: AtomicU64::new(0) }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_many_threads() {
        const THREADS: u64 = 2 * STRIPES as u64;
        let count = Striped::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| (0..1000).for_each(|_| count.add_one()));
                }
            });
        }
        assert_eq!(count.sum(), 3 * THREADS * 1000);
    }
}
