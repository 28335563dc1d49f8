//! A lock whose waiters the machine knows.

use crate::flaw::FlawKind;
use crate::machine;
use std::cell::{Cell, OnceCell};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// `std`'s lock; waiting for it, on a virtual core, lets other threads go on.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// Access to what a [`Mutex`] guards; unlocks when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    /// Present until it is dropped; while it is loose, only from an access to the next change.
    guard: OnceCell<std::sync::MutexGuard<'a, T>>,
    lock: &'a std::sync::Mutex<T>,
    /// Whether the lock is left out on purpose, but for single accesses.
    loose: bool,
    /// Where and when it was taken, if that is of interest.
    taken: Option<Taken>,
}

/// Where a lock was taken, and whether it would make a difference if it were loose.
#[derive(Debug)]
struct Taken {
    place: &'static Location<'static>,
    /// Points until then.
    points: u64,
    accessed: Cell<bool>,
    differs: Cell<bool>,
}

impl Taken {
    /// What is guarded is accessed. A loose lock would have been free until the first access, and
    /// is again at every change.
    fn access(&self, change: bool) {
        let waited = machine::points_surveyed().is_some_and(|points| points > self.points);
        let first = !self.accessed.replace(true);
        if waited && (first || change) {
            self.differs.set(true);
        }
    }
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
        if machine::is_flawed(FlawKind::Lock, Location::caller()) {
            return Ok(self.loose());
        }
        self.guarded(take(&self.0))
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        machine::point(machine::LOCK);
        if machine::is_flawed(FlawKind::Lock, Location::caller()) {
            return Ok(self.loose());
        }
        match self.0.try_lock() {
            Ok(guard) => self.guarded(Ok(guard)).map_err(TryLockError::Poisoned),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poison)) => self.guarded(Err(poison)).map_err(TryLockError::Poisoned),
        }
    }

    fn loose(&self) -> MutexGuard<'_, T> {
        MutexGuard { guard: OnceCell::new(), lock: &self.0, loose: true, taken: None }
    }

    #[track_caller]
    fn guarded<'a>(&'a self, taken: LockResult<std::sync::MutexGuard<'a, T>>) -> LockResult<MutexGuard<'a, T>> {
        let place = Location::caller();
        let taken_at = || {
            let points = machine::points_surveyed()?;
            Some(Taken { place, points, accessed: Cell::new(false), differs: Cell::new(false) })
        };
        let with = |guard| MutexGuard { guard: OnceCell::from(guard), lock: &self.0, loose: false, taken: taken_at() };
        taken.map(with).map_err(|poison| PoisonError::new(with(poison.into_inner())))
    }
}

/// Waits until `lock` is free, and takes it.
#[track_caller]
fn take<T: ?Sized>(lock: &std::sync::Mutex<T>) -> LockResult<std::sync::MutexGuard<'_, T>> {
    loop {
        match lock.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poison)) => return Err(poison),
            Err(TryLockError::WouldBlock) => machine::wait_for(place(lock)),
        }
    }
}

/// Tells locks apart; its value decides nothing.
fn place<T: ?Sized>(lock: &std::sync::Mutex<T>) -> usize {
    std::ptr::from_ref(lock).addr()
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// A loose lock, for an access: others may have had it since the last one.
    fn taken_again(&self) -> std::sync::MutexGuard<'a, T> {
        machine::point(machine::LOCK);
        take(self.lock).expect("no holder of the lock panicked")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        machine::access();
        self.taken.iter().for_each(|taken| taken.access(false));
        self.guard.get_or_init(|| self.taken_again())
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        machine::access();
        self.taken.iter().for_each(|taken| taken.access(true));
        if self.loose && self.guard.take().is_some() {
            machine::released(place(self.lock));
        }
        self.guard.get_or_init(|| self.taken_again());
        self.guard.get_mut().expect("it was just put there")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.guard.take();
        if let Some(taken) = &self.taken {
            if !taken.accessed.get() {
                taken.access(false);
            }
            if taken.differs.get() {
                machine::used_lock(taken.place);
            }
        }
        if machine::is_unwinding() {
            // The thread did not fail: its machine has ended.
            self.lock.clear_poison();
        }
        machine::released(place(self.lock));
    }
}
