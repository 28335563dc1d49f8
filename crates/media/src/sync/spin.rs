//! A lock for the time of one write at most, whose release is an ordinary store.
//!
//! On x86-64 a locked instruction waits until the stores before it are in the cache, and after a
//! flush until that is done. A lock that wakes its sleepers needs one to be released, to see
//! whether there are any. Who waits for this one looks again by himself.

use std::cell::UnsafeCell;
use std::fmt;
use std::hint;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// Nobody holds the lock.
const FREE: u8 = 0;

/// Somebody holds it.
const HELD: u8 = 1;

/// Somebody who held it panicked.
const POISONED: u8 = 2;

/// Looks at a held lock before the core is given to others: about as long as a write holds it.
const LOOKS: u32 = 100;

/// How often the core is given to others who can use it, before it is given up for a while.
const YIELDS: u32 = 50;

/// For how long: less than what a holder waits for that keeps the lock longer than it is meant for,
/// a disk.
const NAP: Duration = Duration::from_micros(50);

/// A lock that is waited for awake, giving the core to others in between; after a while, in short
/// naps. A panic of its holder goes on in everyone who meets it afterwards.
pub struct SpinLock<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one guard at a time: it comes
// from the exchange of FREE for HELD, and FREE is stored again when it is dropped. So threads have
// the value in turn, for which it has to be `Send`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Access to what a [`SpinLock`] guards; unlocks when dropped.
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// Whether the thread was panicking already: then the lock was taken by a destructor, and is
    /// none the worse for it.
    was_panicking: bool,
}

// SAFETY: a shared guard gives shared references to the value only. (Without this, a guard could be
// shared wherever the lock can.)
unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

impl<T> SpinLock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> SpinLock<T> {
        SpinLock { state: AtomicU8::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_held(),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire pairs with the Release of the guard's end: the holder before has done what it
        // did.
        match self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(SpinGuard { lock: self, was_panicking: thread::panicking() }),
            Err(POISONED) => panic!("the lock's last holder panicked"),
            Err(_) => None,
        }
    }

    #[cold]
    fn lock_held(&self) -> SpinGuard<'_, T> {
        let mut yields = 0;
        loop {
            for _ in 0..LOOKS {
                if self.state.load(Ordering::Relaxed) != HELD
                    && let Some(guard) = self.try_lock()
                {
                    return guard;
                }
                hint::spin_loop();
            }
            if yields < YIELDS {
                yields += 1;
                thread::yield_now();
            } else {
                thread::sleep(NAP);
            }
        }
    }
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> SpinLock<T> {
        SpinLock::new(T::default())
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, see `Sync` above, and lends the value for no longer than
        // itself.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let panicked = !self.was_panicking && thread::panicking();
        // Release: what was done to the value comes before.
        self.lock.state.store(if panicked { POISONED } else { FREE }, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Instant;

    #[test]
    fn one_holder_at_a_time() {
        const ROUNDS: u32 = 20_000;
        let lock = SpinLock::new((0_u32, 0_u32));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut both = lock.lock();
                        both.0 += 1;
                        both.1 += 1;
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (3 * ROUNDS, 3 * ROUNDS));
    }

    #[test]
    fn a_lock_held_for_long_is_waited_for() {
        let lock = SpinLock::new(1);
        let mut held = lock.lock();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| *lock.lock());
            // Long enough for naps on most machines; right on the others too.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(10) {
                hint::spin_loop();
            }
            *held = 2;
            drop(held);
            assert_eq!(waiter.join().unwrap(), 2);
        });
    }

    #[test]
    fn what_is_held_is_not_taken() {
        let lock = SpinLock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(1));
    }

    #[test]
    fn a_panic_of_the_holder_goes_on_in_the_next() {
        let lock = SpinLock::new(1);
        let holder = || {
            let _held = lock.lock();
            panic!("while it is held");
        };
        assert!(catch_unwind(AssertUnwindSafe(holder)).is_err());
        let meets: [fn(&SpinLock<i32>); 2] = [|lock| drop(lock.lock()), |lock| drop(lock.try_lock())];
        for meet in meets {
            assert!(catch_unwind(AssertUnwindSafe(|| meet(&lock))).is_err());
        }
    }
}
