//! Slower media on top of a region: the same bytes, with the time that another memory would take.
//!
//! Reads take their time at once. Writes take none until they are flushed: each flush or stream
//! adds its time to a debt of the calling thread, and the thread's next fence pays it, as a real
//! fence waits for the lines on their way. Beside that, all threads share the medium's write
//! bandwidth: each flush or stream reserves a piece of one time line, and a fence waits for the end
//! of its thread's last piece.
//!
//! Every read is charged as if no line of it were in the processor's caches, and every flush as if
//! each line of it were dirty: the emulation errs to the slow side.

mod clock;
mod profile;

pub use clock::{Clock, TickClock};
pub use profile::{Delay, Profile, UnknownProfile};

use crate::error::{Poison, Sealed};
use crate::region::{LineOrder, Region};
use crate::sync::{AtomicU64, Ordering, thread_token};

/// Threads past this many share debts: the first of them to fence pays for all who share it.
const DEBTORS: u32 = 256;

/// A region that takes the time of another medium.
#[derive(Debug)]
pub struct Emulated<R, C = TickClock> {
    region: R,
    profile: Profile,
    clock: C,
    /// When the medium will have written all that it was given so far, in nanoseconds of the clock.
    busy_until: AtomicU64,
    debts: Box<[Debt]>,
}

/// What a thread owes at its next fence. Two lines apart, as processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Debt {
    /// Nanoseconds of latency.
    latency_ns: AtomicU64,
    /// When the medium will have written this thread's last piece, in nanoseconds of the clock.
    written_at: AtomicU64,
}

impl<R: Region> Emulated<R> {
    /// `region` with the times of `profile`, spun on the processor's tick counter.
    pub fn new(region: R, profile: Profile) -> Emulated<R> {
        Emulated::with_clock(region, profile, TickClock::calibrated())
    }
}

impl<R: Region, C: Clock> Emulated<R, C> {
    /// `region` with the times of `profile`, told and waited for by `clock`.
    pub fn with_clock(region: R, profile: Profile, clock: C) -> Emulated<R, C> {
        let debts = (0..DEBTORS).map(|_| Debt::default()).collect();
        Emulated { region, profile, clock, busy_until: AtomicU64::new(0), debts }
    }

    /// The region below.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// The times added.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    fn pay_read(&self, at: u64, len: u64) {
        let cost_ns = self.profile.read.of_lines(self.profile.lines(at, len));
        if cost_ns > 0 {
            self.clock.wait_until(self.clock.now_ns() + cost_ns);
        }
    }

    /// Puts the lines of `at..at + len` on their way to the medium. Relaxed: only numbers are
    /// passed on, and each exchange of the time line is atomic.
    fn owe_write(&self, at: u64, len: u64) {
        let lines = self.profile.lines(at, len);
        if lines == 0 {
            return;
        }
        let debt = self.debt();
        debt.latency_ns.fetch_add(self.profile.write.of_lines(lines), Ordering::Relaxed);
        let transfer_ns = self.profile.transfer_ns(lines);
        if transfer_ns > 0 {
            let now = self.clock.now_ns();
            let reserve = |busy: u64| Some(busy.max(now) + transfer_ns);
            let before = self.busy_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
            let end = before.unwrap_or_else(|busy| busy).max(now) + transfer_ns;
            debt.written_at.fetch_max(end, Ordering::Relaxed);
        }
    }

    fn pay_write(&self) {
        let debt = self.debt();
        let latency_ns = debt.latency_ns.swap(0, Ordering::Relaxed);
        let written_at = debt.written_at.load(Ordering::Relaxed);
        if latency_ns > 0 || written_at > 0 {
            let now = self.clock.now_ns();
            let end = written_at.max(now + latency_ns);
            if end > now {
                self.clock.wait_until(end);
            }
        }
    }

    fn debt(&self) -> &Debt {
        &self.debts[(thread_token() % DEBTORS) as usize]
    }
}

impl<R: Region, C: Clock> Region for Emulated<R, C> {
    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(at, out)?;
        self.pay_read(at, out.len() as u64);
        Ok(())
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        let word = self.region.load_u64(at)?;
        self.pay_read(at, 8);
        Ok(word)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write(at, bytes);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.region.stream(at, bytes);
        self.owe_write(at, bytes.len() as u64);
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.region.store_u64(at, word);
    }

    fn flush(&self, at: u64, len: u64) {
        self.region.flush(at, len);
        self.owe_write(at, len);
    }

    fn fence(&self) -> Result<(), Sealed> {
        let answer = self.region.fence();
        self.pay_write();
        answer
    }

    fn line_order(&self) -> LineOrder {
        self.region.line_order()
    }
}

#[cfg(test)]
mod tests;
