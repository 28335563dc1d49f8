//! Locks, atomics and threads, from one place.
//!
//! Engines take every lock and atomic from here and never from `std`, so that a checker can stand
//! in for them: `--cfg shuttle` replaces all of them by shuttle's, whose scheduler chooses each
//! interleaving; `--cfg virtual_cores` by those of virtual cores, which also have clocks. On a
//! plain thread the latter behave as `std`'s.

#[cfg(not(any(shuttle, virtual_cores)))]
pub(crate) mod spin;
pub mod thread_local_counters;

#[cfg(not(any(shuttle, virtual_cores)))]
use std as provider;

#[cfg(virtual_cores)]
use tidegate_virtual_cores as provider;

#[cfg(shuttle)]
use shuttle as provider;

use provider::sync as locks;
pub use provider::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
pub use provider::thread::yield_now;

/// A lock held for the time of one write at most. Checkers stand in for it as for every other.
#[cfg(not(any(shuttle, virtual_cores)))]
pub use crate::sync::spin::{SpinGuard, SpinLock};
#[cfg(any(shuttle, virtual_cores))]
pub use {Mutex as SpinLock, MutexGuard as SpinGuard};

/// A lock without poison: a panic of its holder goes on in everyone who meets the lock after it.
#[derive(Debug, Default)]
pub struct Mutex<T>(locks::Mutex<T>);

/// Access to what a [`Mutex`] guards; unlocks when dropped.
pub type MutexGuard<'a, T> = locks::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// An unlocked lock around `value`.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(locks::Mutex::new(value))
    }

    /// Waits until the lock is free, and takes it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("the lock's last holder panicked")
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::WouldBlock) => None,
            Err(std::sync::TryLockError::Poisoned(_)) => panic!("the lock's last holder panicked"),
        }
    }

    /// What the lock guards, for its only owner.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect("the lock's last holder panicked")
    }
}

/// A sequentially consistent fence for a thread that has taken a lock since the accesses that the
/// fence is to order.
///
/// On x86-64 taking a lock is a locked instruction, which orders everything before it and after it,
/// so only the compiler has to be held back; a fence would cost as much again.
pub fn fence_after_lock() {
    if cfg!(all(target_arch = "x86_64", not(shuttle))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// A small number for the calling thread: unique among the threads alive, given again after a
/// thread's end.
///
/// A fence covers the calling thread's flushes only, so engines remember by it who flushed what.
pub fn thread_token() -> u32 {
    #[cfg(virtual_cores)]
    if let Some(token) = provider::token() {
        return token;
    }
    token::current()
}

/// Makes the calling thread answer `token` from now on.
///
/// For tests: the simulator's cores have tokens of their own.
pub fn set_thread_token(token: u32) {
    #[cfg(virtual_cores)]
    if provider::set_token(token) {
        return;
    }
    token::set(token);
}

mod token {
    //! Tokens of threads: the lowest number free, returned at the thread's end.

    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    static FREE: Mutex<(u32, BTreeSet<u32>)> = Mutex::new((0, BTreeSet::new()));

    struct Owned(Cell<Option<u32>>);

    impl Drop for Owned {
        fn drop(&mut self) {
            if let (Some(token), Ok(mut free)) = (self.0.get(), FREE.lock()) {
                free.1.insert(token);
            }
        }
    }

    #[cfg(not(shuttle))]
    std::thread_local! {
        static CURRENT: Cell<u32> = const { Cell::new(u32::MAX) };
        static OWNED: Owned = const { Owned(Cell::new(None)) };
    }

    #[cfg(shuttle)]
    shuttle::thread_local! {
        static CURRENT: Cell<u32> = Cell::new(u32::MAX);
        static OWNED: Owned = Owned(Cell::new(None));
    }

    pub(super) fn current() -> u32 {
        CURRENT.with(|current| {
            if current.get() == u32::MAX {
                current.set(take());
            }
            current.get()
        })
    }

    pub(super) fn set(token: u32) {
        CURRENT.with(|current| current.set(token));
    }

    fn take() -> u32 {
        let mut free = FREE.lock().expect("no holder of this lock panics");
        let token = free.1.pop_first().unwrap_or_else(|| {
            free.0 += 1;
            free.0 - 1
        });
        drop(free);
        OWNED.with(|owned| owned.0.set(Some(token)));
        token
    }
}
