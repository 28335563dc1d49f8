//! The clock of an emulated medium, and its way of waiting.

use crate::memory;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A clock of nanoseconds that never runs backwards.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment.
    fn now_ns(&self) -> u64;

    /// Comes back when [`Clock::now_ns`] is `ns` or more.
    fn wait_until(&self, ns: u64);
}

/// How long the tick counter is compared with the system's clock.
const CALIBRATION: Duration = Duration::from_millis(20);

/// The processor's tick counter, spun on: precise to tens of nanoseconds, which no sleep is.
#[derive(Clone, Copy, Debug)]
pub struct TickClock {
    /// Nanoseconds in 2³² ticks.
    ns_per_4g_ticks: u64,
}

impl TickClock {
    /// The clock, its rate measured once in the life of the process (that takes 20 ms). The counter
    /// has to run at a constant rate, as on every x86-64 processor since 2008 and every aarch64.
    pub fn calibrated() -> TickClock {
        static RATE: OnceLock<u64> = OnceLock::new();
        TickClock { ns_per_4g_ticks: *RATE.get_or_init(measure_rate) }
    }
}

impl Clock for TickClock {
    fn now_ns(&self) -> u64 {
        // Fits for the first 584 years after the processor started.
        #[expect(clippy::cast_possible_truncation, reason = "the line above")]
        let ns = ((u128::from(memory::ticks()) * u128::from(self.ns_per_4g_ticks)) >> 32) as u64;
        ns
    }

    fn wait_until(&self, ns: u64) {
        // No spin hint: on some processors it alone takes longer than the shortest wait.
        while self.now_ns() < ns {}
    }
}

fn measure_rate() -> u64 {
    let (start, first) = (Instant::now(), memory::ticks());
    while start.elapsed() < CALIBRATION {}
    let (elapsed, last) = (start.elapsed(), memory::ticks());
    let rate = (elapsed.as_nanos() << 32) / u128::from(last - first).max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}
