//! A lock whose waiters the machine knows.

use crate::machine;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// `std`'s lock; waiting for it, on a virtual core, lets other threads go on.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// Access to what a [`Mutex`] guards; unlocks when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    /// Present until it is dropped.
    guard: Option<std::sync::MutexGuard<'a, T>>,
    lock: &'a std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// What the lock guards, for its only owner.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is free, and takes it.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if !machine::is_inside() {
            return self.guarded(self.0.lock());
        }
        machine::point(machine::LOCK);
        loop {
            match self.0.try_lock() {
                Ok(guard) => return self.guarded(Ok(guard)),
                Err(TryLockError::Poisoned(poison)) => return self.guarded(Err(poison)),
                Err(TryLockError::WouldBlock) => machine::wait_for(place(&self.0)),
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        machine::point(machine::LOCK);
        match self.0.try_lock() {
            Ok(guard) => self.guarded(Ok(guard)).map_err(TryLockError::Poisoned),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poison)) => self.guarded(Err(poison)).map_err(TryLockError::Poisoned),
        }
    }

    fn guarded<'a>(&'a self, taken: LockResult<std::sync::MutexGuard<'a, T>>) -> LockResult<MutexGuard<'a, T>> {
        let with = |guard| MutexGuard { guard: Some(guard), lock: &self.0 };
        taken.map(with).map_err(|poison| PoisonError::new(with(poison.into_inner())))
    }
}

/// Tells locks apart; its value decides nothing.
fn place<T: ?Sized>(lock: &std::sync::Mutex<T>) -> usize {
    std::ptr::from_ref(lock).addr()
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("present until it is dropped")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("present until it is dropped")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        if machine::is_unwinding() {
            // The thread did not fail: its machine has ended.
            self.lock.clear_poison();
        }
        machine::released(place(self.lock));
    }
}
