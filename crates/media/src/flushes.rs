//! Flushes of the medium below, one at a time, and the effect of a failed one.
//!
//! A medium tells a failure once: the writes that the flush covered may be lost, and a later flush
//! that succeeds does not tell of them. So the first failure is remembered, and every later caller
//! learns of it, even if its own flush would have succeeded.

use crate::error::Error;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// One flush at a time, so that a failure is known before the next begins; and one for all who
/// waited meanwhile. A failure is an `E`.
pub struct Flushes<E = Error> {
    /// How many have begun, for who does not hold `numbers`.
    begun: AtomicU64,
    /// Held for as long as one runs.
    numbers: Mutex<Numbers>,
    failed: AtomicBool,
    failure: Mutex<Option<E>>,
}

impl<E> Default for Flushes<E> {
    fn default() -> Flushes<E> {
        let (begun, numbers) = (AtomicU64::new(0), Mutex::default());
        Flushes { begun, numbers, failed: AtomicBool::new(false), failure: Mutex::new(None) }
    }
}

/// Flushes by their numbers, from 1.
#[derive(Default)]
struct Numbers {
    /// The last that began.
    begun: u64,
    /// The last that went well.
    good: u64,
}

impl<E: Clone> Flushes<E> {
    /// The first failure, if there was one. One that is just happening may be missed: it is told by
    /// the flush that it concerns.
    pub fn check(&self) -> Result<(), E> {
        // Acquire pairs with the Release of `fail`.
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.failure.lock().clone().expect("it is stored before the flag"))
    }

    /// Remembers a failure, if it is the first, and answers `error`.
    pub fn fail(&self, error: E) -> E {
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.failed.store(true, Ordering::Release);
        error
    }

    /// Comes back when a good `flush` has covered everything stored before this call: this one, or
    /// that of another caller. After a failure none begins.
    ///
    /// # Errors
    ///
    /// The first failure there was.
    pub fn cover(&self, flush: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // SeqCst here and at the store: whoever reads the number before a flush changes it has
        // stored what that flush then finds.
        let begun_before = self.begun.load(Ordering::SeqCst);
        let mut numbers = self.numbers.lock();
        self.check()?;
        if numbers.good > begun_before {
            return Ok(());
        }
        numbers.begun += 1;
        self.begun.store(numbers.begun, Ordering::SeqCst);
        flush().map_err(|error| self.fail(error))?;
        numbers.good = numbers.begun;
        self.check()
    }
}

#[cfg(test)]
mod tests;
