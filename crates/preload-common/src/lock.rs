//! A lock that knows its thread, so that a signal handler that comes back for it is told so instead
//! of waiting for ever.

use rustix::thread::futex;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// What tells the holder's thread from others; 0: free. The highest bit: somebody sleeps.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Default for Lock {
    fn default() -> Lock {
        Lock::new()
    }
}

const SLEEPER: u32 = 1 << 31;

impl Lock {
    /// A free one.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Takes the lock. False: this very thread has it already, below a signal handler.
    pub fn take(&self) -> bool {
        let own = this_thread();
        loop {
            // Acquire: pairs with `give`.
            let Err(seen) = self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) else { return true };
            if seen & !SLEEPER == own {
                return false;
            }
            let marked = seen | SLEEPER;
            if seen == marked || self.0.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // Woken, interrupted or too late: look again.
                let _ = futex::wait(&self.0, futex::Flags::PRIVATE, marked, None);
            }
        }
    }

    /// Gives it back.
    pub fn give(&self) {
        // Release: pairs with `take`.
        if self.0.swap(0, Ordering::Release) & SLEEPER != 0 {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, ALL);
        }
    }

    /// Free again, whoever held it: in a forked child, where its thread does not exist.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What tells this thread from the others, without a system call. Never 0. In the rare case that
/// two threads' own memory lies as far apart as the numbers reach, one is taken for a signal
/// handler of the other.
#[expect(clippy::cast_possible_truncation, reason = "the high bits do not fit")]
fn this_thread() -> u32 {
    // SAFETY: it has no conditions.
    let place = unsafe { libc::pthread_self() };
    (place >> 3) as u32 & !SLEEPER | 1
}

const ALL: u32 = NonZeroU32::MAX.get() >> 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_thread_at_a_time_has_the_lock_and_all_get_it() {
        let (lock, count) = (Lock::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        assert!(lock.take());
                        // Not one act: others in between would be lost.
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                        lock.give();
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 40_000);
    }

    #[test]
    fn the_same_thread_is_told_that_it_has_the_lock() {
        let lock = Lock::default();
        assert!(lock.take() && !lock.take());
        lock.give();
        assert!(lock.take());
        lock.reset();
        std::thread::scope(|scope| scope.spawn(|| assert!(lock.take())).join()).expect("it is free");
    }
}
