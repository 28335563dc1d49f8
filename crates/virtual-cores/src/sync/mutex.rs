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
    place: usize,
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
    /// Tells locks apart; its value decides nothing.
    fn place(&self) -> usize {
        std::ptr::from_ref(&self.0).addr()
    }

    /// Waits until the lock is free, and takes it.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let place = self.place();
        if !machine::is_inside() {
            return guarded(self.0.lock(), place);
        }
        machine::point(machine::LOCK);
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(MutexGuard { guard: Some(guard), place }),
                Err(TryLockError::Poisoned(poison)) => return guarded(Err(poison), place),
                Err(TryLockError::WouldBlock) => machine::wait_for(place),
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let place = self.place();
        machine::point(machine::LOCK);
        match self.0.try_lock() {
            Ok(guard) => Ok(MutexGuard { guard: Some(guard), place }),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poison)) => guarded(Err(poison), place).map_err(TryLockError::Poisoned),
        }
    }
}

fn guarded<T: ?Sized>(taken: LockResult<std::sync::MutexGuard<'_, T>>, place: usize) -> LockResult<MutexGuard<'_, T>> {
    let with = |guard| MutexGuard { guard: Some(guard), place };
    taken.map(with).map_err(|poison| PoisonError::new(with(poison.into_inner())))
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
        machine::released(self.place);
    }
}
