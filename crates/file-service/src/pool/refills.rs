//! Refilling leases before their programs run out of blocks: a program that asks waits for the
//! service, which takes over all that was written meanwhile. So one thread looks at the leases as
//! often as their programs write: it comes back when a part of what is left is used, as programs
//! write faster at times. It begins when a program had to ask, and sleeps when no program writes.

use crate::service::nodes::open_files::OpenFiles;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tidegate_file_cache::{LeaseStock, PoolLease};

/// Between two looks.
const REFILL_PAUSE_MIN: Duration = Duration::from_micros(200);
const REFILL_PAUSE_MAX: Duration = Duration::from_millis(20);

/// One in so many of the blocks that are left is used until the next look.
const PART: u64 = 8;

/// A lease that nobody has written by for so long is forgotten until its program asks.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// What was seen of the leases that are written by.
#[derive(Default)]
pub(crate) struct Refills(HashMap<PoolLease, SeenLease>);

struct SeenLease {
    written: u64,
    /// When it was looked at, and when more was there than before.
    looked: Instant,
    grew: Instant,
}

impl Refills {
    /// Refills the leases whose programs asked lately, and says after how long to look again.
    /// `None`: when a program asks.
    pub(crate) fn look(&mut self, files: &OpenFiles) -> Option<Duration> {
        for lease in files.leases.take_asked() {
            self.0.entry(lease).or_insert_with(|| SeenLease::new(Instant::now()));
        }
        let mut next = None;
        self.0.retain(|lease, seen| {
            let pause = refilled(files, *lease).and_then(|stock| seen.pause(stock, Instant::now()));
            next = next.into_iter().chain(pause).min();
            pause.is_some()
        });
        next
    }
}

/// Refills a lease. `None`: it has ended, or that fails.
fn refilled(files: &OpenFiles, lease: PoolLease) -> Option<LeaseStock> {
    files.pool.refill(lease).unwrap_or_else(|error| {
        tracing::debug!("a lease is not refilled: {error}");
        None
    })
}

impl SeenLease {
    fn new(now: Instant) -> SeenLease {
        SeenLease { written: 0, looked: now, grew: now }
    }

    /// How long the lease's program needs for [`PART`] of what is left.
    fn pause(&mut self, stock: LeaseStock, now: Instant) -> Option<Duration> {
        let written = stock.written.saturating_sub(self.written);
        let passed = now.duration_since(self.looked);
        (self.written, self.looked) = (stock.written, now);
        if written > 0 {
            self.grew = now;
        } else if now.duration_since(self.grew) > IDLE_MAX {
            return None;
        }
        let each = passed.checked_div(u32::try_from(written).unwrap_or(u32::MAX)).unwrap_or(REFILL_PAUSE_MAX);
        let part = u32::try_from(stock.left / PART).unwrap_or(u32::MAX);
        Some(each.saturating_mul(part).clamp(REFILL_PAUSE_MIN, REFILL_PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_looked_at_when_a_part_of_what_is_left_is_used() {
        let began = Instant::now();
        let mut seen = SeenLease { written: 1000, ..SeenLease::new(began) };
        let after = |micros| began + Duration::from_micros(micros);
        // A write each 10 us.
        let pause = seen.pause(LeaseStock { written: 1100, left: 1600 }, after(1000));
        assert_eq!(pause, Some(Duration::from_millis(2)));
        assert_eq!(seen.pause(LeaseStock { written: 1300, left: 0 }, after(3000)), Some(REFILL_PAUSE_MIN));
        assert_eq!(seen.pause(LeaseStock { written: 1301, left: 2000 }, after(4000)), Some(REFILL_PAUSE_MAX));
        assert_eq!(seen.pause(LeaseStock { written: 1301, left: 2000 }, after(24_000)), Some(REFILL_PAUSE_MAX));
        assert_eq!(seen.pause(LeaseStock { written: 1301, left: 2000 }, after(105_000)), None);
        let again = seen.pause(LeaseStock { written: 1302, left: 2000 }, after(9_000_000));
        assert_eq!(again, Some(REFILL_PAUSE_MAX));
    }
}
