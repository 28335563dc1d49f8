//! Thread-local counters: counting takes no line from another core and no locked instruction.
//!
//! A thread's counters are chosen by its [`thread_token`]. Tokens are unique among the threads
//! alive, so no other thread stores to them, and a token passes from a dead thread to a new one
//! through a lock. Threads with high tokens share the last counters.

use crate::sync::{AtomicU64, Ordering, thread_token};

/// One `T` for each of the first threads, and one that all others share.
#[derive(Debug)]
pub struct ThreadLocalCounters<T> {
    values: Box<[Apart<T>]>,
}

/// Two lines apart, as processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T: Default> ThreadLocalCounters<T> {
    /// `count` values, the shared last one included; at least that one.
    pub fn new(count: usize) -> ThreadLocalCounters<T> {
        ThreadLocalCounters { values: (0..count.max(1)).map(|_| Apart::default()).collect() }
    }
}

impl<T> ThreadLocalCounters<T> {
    /// The calling thread's value, and whether it alone stores to it.
    pub fn mine(&self) -> (&T, bool) {
        let token = thread_token() as usize;
        let last = self.values.len() - 1;
        (&self.values[token.min(last)].0, token < last)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|value| &value.0)
    }
}

/// Adds to a count of [`ThreadLocalCounters::mine`]; `sole`: no other thread stores to it. Relaxed:
/// a number is all that is passed on.
pub fn add(sole: bool, count: &AtomicU64, more: u64) {
    if sole {
        count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    } else {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_many_threads() {
        const VALUES: usize = 32;
        const THREADS: u64 = 2 * VALUES as u64;
        let counts = ThreadLocalCounters::<AtomicU64>::new(VALUES);
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        (0..1000).for_each(|_| {
                            let (count, sole) = counts.mine();
                            add(sole, count, 1);
                        });
                    });
                }
            });
        }
        assert_eq!(counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>(), 3 * THREADS * 1000);
    }
}
