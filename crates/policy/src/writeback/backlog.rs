//! The backlog limit: how many blocks may wait in a write cache so that a flush, which drains all
//! of them, takes no longer than a given time.

use std::time::Duration;

/// Weight of the newest measurement: one part in so many.
const NEWEST: f64 = 8.0;

/// Fewer blocks say more about the clock than about draining: steps are put together until they
/// have so many. With a low limit each has one.
const BLOCKS_MIN: u32 = 4;

/// A limit changes only when it is off by this share: setting it costs something too.
const DEADBAND: f64 = 0.2;

/// The backlog limit, from the measured times of draining.
#[derive(Clone, Debug)]
pub struct BacklogLimit {
    within: Duration,
    slots: u32,
    block_ns: Option<f64>,
    limit: u32,
    /// Steps that were too short by themselves.
    short: (u32, Duration),
}

impl BacklogLimit {
    /// What waits in `slots` slots is to be drained within `within`; [`Duration::MAX`] lets all of
    /// them be used.
    pub fn new(within: Duration, slots: u32) -> BacklogLimit {
        let limit = if within == Duration::MAX { slots } else { slots.min(64) };
        BacklogLimit { within, slots, block_ns: None, limit, short: Default::default() }
    }

    /// Slots that may be used now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Draining `blocks` blocks took `time`. The new limit, if it is another one.
    pub fn measured(&mut self, blocks: u32, time: Duration) -> Option<u32> {
        let (before, spent) = std::mem::take(&mut self.short);
        let (blocks, time) = (blocks.saturating_add(before), time.saturating_add(spent));
        if blocks < BLOCKS_MIN || self.within == Duration::MAX {
            self.short = (blocks, time);
            return None;
        }
        let now = time.as_secs_f64() * 1e9 / f64::from(blocks);
        // A thread that was interrupted tells nothing about the device: one measurement counts at
        // most double.
        let known = self.block_ns.unwrap_or(now);
        let block_ns = known + (now.min(known * 2.0) - known) / NEWEST;
        self.block_ns = Some(block_ns);
        let fits = self.within.as_secs_f64() * 1e9 / block_ns.max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the slots")]
        let fits = fits.clamp(1.0, f64::from(self.slots)) as u32;
        let off = f64::from(fits.abs_diff(self.limit)) / f64::from(self.limit);
        if off <= DEADBAND {
            return None;
        }
        self.limit = fits;
        Some(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_limit_follows_the_drain_time() {
        let mut backlog = BacklogLimit::new(MS, 100_000);
        assert_eq!(backlog.limit(), 64);
        assert_eq!(backlog.measured(100, Duration::from_micros(100)), Some(1000));
        assert_eq!(backlog.measured(100, Duration::from_micros(101)), None, "no change worth the trouble");
        let slower = (0..100).filter_map(|_| backlog.measured(100, Duration::from_micros(1000))).last();
        assert!(slower.is_some_and(|limit| (100..125).contains(&limit)), "{slower:?}");
    }

    #[test]
    fn a_limit_that_allows_one_block_at_a_time_rises_again() {
        let mut backlog = BacklogLimit::new(MS, 100_000);
        backlog.measured(4, Duration::from_millis(100));
        assert_eq!(backlog.limit(), 1);
        (0..400).for_each(|_| _ = backlog.measured(1, Duration::from_micros(1)));
        assert!(backlog.limit() > 800, "{}", backlog.limit());
    }

    #[test]
    fn one_interrupted_step_does_not_count_for_more() {
        let mut backlog = BacklogLimit::new(MS, 100_000);
        backlog.measured(100, Duration::from_micros(100));
        assert_eq!(backlog.measured(100, Duration::from_secs(1)), None);
    }

    #[test]
    fn the_slots_are_a_limit_too() {
        assert_eq!(BacklogLimit::new(MS, 10).limit(), 10);
        assert_eq!(BacklogLimit::new(Duration::MAX, 5000).limit(), 5000);
        assert_eq!(BacklogLimit::new(Duration::MAX, 5000).measured(50, MS), None);
        assert_eq!(BacklogLimit::new(MS, 200).measured(50, Duration::from_micros(1)), Some(200));
    }
}
