//! Flushes of what lies below, one at a time, and what a failed one does.
//!
//! A failure is told once by who flushes: what it covered may be lost, and a later flush that goes well says nothing of it. So the first
//! one is remembered, and everybody who asks after it learns of it, a caller too whose own flush would have gone well.

use crate::error::{Error, Result};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// One flush at a time, so that a failure is known before the next begins; and one for all who waited meanwhile.
#[derive(Default)]
pub struct Flushes {
    /// How many have begun. Held for the reading or the counting only.
    begun: Mutex<u64>,
    /// The number of the last good one. Held for as long as one runs.
    last_good: Mutex<u64>,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl Flushes {
    /// The first failure, if there was one. One that is just happening may be missed: it is told by the flush that it concerns.
    pub fn check(&self) -> Result<()> {
        // Acquire pairs with the Release of `fail`.
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.failure.lock().clone().expect("it is stored before the flag"))
    }

    /// Remembers a failure, if it is the first, and answers `error`.
    pub fn fail(&self, error: Error) -> Error {
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.failed.store(true, Ordering::Release);
        error
    }

    /// Comes back when a good `flush` has covered everything stored before this call: this one, or that of another caller. After a failure none
    /// begins.
    ///
    /// # Errors
    ///
    /// The first failure there was.
    pub fn cover(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let begun_before = *self.begun.lock();
        let mut last_good = self.last_good.lock();
        self.check()?;
        if *last_good > begun_before {
            return Ok(());
        }
        let number = {
            let mut begun = self.begun.lock();
            *begun += 1;
            *begun
        };
        flush().map_err(|error| self.fail(error))?;
        *last_good = number;
        self.check()
    }
}

#[cfg(test)]
mod tests;
