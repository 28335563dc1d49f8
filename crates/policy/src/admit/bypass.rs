//! Write-cache bypass: whether blocks enter the write cache or go straight to the device for a
//! while.
//!
//! A cached block is copied twice more than one that goes straight to the device. While a core is
//! idle, the drain thread copies there, and writers lose no time. While every core is busy,
//! draining takes the cores from the writers, and they get less done than without a cache. The
//! drain thread notices this because it waits for a core itself.
//!
//! If writers never pause, draining never catches up. If the device is as fast as DRAM too, a block
//! costs the writer more in the cache than in the device.
//!
//! In both cases writes bypass the cache for a while. The time grows with each attempt that ends in
//! the same way and shrinks with each that does not. So under lasting load the attempts cost
//! little, and the cache is used again soon after the load ends.

use std::time::Duration;

/// Time in which a thread ran or waited for a core, before anything is concluded from it. Long
/// enough for another thread's turn in it (4 ms at 250 ticks a second) to decide nothing.
const WINDOW: Duration = Duration::from_millis(20);

/// Time in which a thread ran, before it is concluded that the device is as fast as DRAM.
const WINDOW_FAST: Duration = Duration::from_millis(8);

/// A thread that waits for a core for more than one part in so many of its time has none to itself.
const WAITED_PARTS: u32 = 4;

/// Draining a block takes longer than this where passing through DRAM pays under lasting load. A
/// cached write costs the writer 0.7 to 1 µs then, on the machines that were measured, most of it
/// for lines that pass between two cores, and the copy out of its slot is in this time too.
const PAYS_FROM: Duration = Duration::from_nanos(1800);

/// The time of a bypass changes by this factor.
const FACTOR: u32 = 4;

/// How long the first bypass lasts.
const BYPASS_MIN: Duration = Duration::from_millis(20);

/// How long a bypass lasts at most: fifty times the window, so that attempts take 2 % of the time.
const BYPASS_MAX: Duration = Duration::from_secs(1);

/// The decision of one drain thread about its cache.
#[derive(Clone, Debug)]
pub struct Bypass {
    ran: Duration,
    waited: Duration,
    drained: u32,
    /// How long the next bypass lasts.
    next: Duration,
}

impl Default for Bypass {
    fn default() -> Bypass {
        Bypass { ran: Duration::ZERO, waited: Duration::ZERO, drained: 0, next: BYPASS_MIN }
    }
}

impl Bypass {
    /// Learns that the thread, while it always had blocks to drain, had a core for the time `ran`,
    /// waited for one for the time `waited`, and drained `drained` blocks. Returns how long writes
    /// are to bypass the cache from now on, if they are.
    pub fn measured(&mut self, ran: Duration, waited: Duration, drained: u32) -> Option<Duration> {
        self.ran += ran;
        self.waited += waited;
        self.drained = self.drained.saturating_add(drained);
        let all = self.ran + self.waited;
        let pays = self.ran > PAYS_FROM.saturating_mul(self.drained);
        if all < WINDOW && (pays || self.ran < WINDOW_FAST) {
            return None;
        }
        let contended = self.waited * WAITED_PARTS > all;
        (self.ran, self.waited, self.drained) = (Duration::ZERO, Duration::ZERO, 0);
        if pays && !contended {
            self.next = (self.next / FACTOR).max(BYPASS_MIN);
            return None;
        }
        let time = self.next;
        self.next = (time * FACTOR).min(BYPASS_MAX);
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One window in which the thread waited for `waited` parts of ten, and drained a slow device's
    /// blocks.
    fn window(bypass: &mut Bypass, waited: u32) -> Option<Duration> {
        let mut step = || bypass.measured(MS * (10 - waited) / 5, MS * waited / 5, 10);
        assert!((0..9).all(|_| step().is_none()), "nothing is concluded before the window is full");
        step()
    }

    #[test]
    fn a_thread_with_a_core_to_itself_starts_no_bypass() {
        let mut bypass = Bypass::default();
        assert!((0..1000).all(|turn| window(&mut bypass, turn % 3).is_none()));
    }

    #[test]
    fn another_threads_turn_decides_nothing() {
        let mut bypass = Bypass::default();
        assert_eq!(bypass.measured(Duration::ZERO, 4 * MS, 0), None);
        assert_eq!(bypass.measured(16 * MS, Duration::ZERO, 100), None);
        assert_eq!(window(&mut bypass, 0), None);
        assert_eq!(bypass.measured(MS, 8 * MS, 1000), None, "nor is it taken for a fast device");
    }

    #[test]
    fn writers_that_never_pause_write_to_a_device_as_fast_as_dram_themselves() {
        let windows = |block_ns: u32| Bypass::default().measured(20 * MS, Duration::ZERO, 20_000_000 / block_ns);
        assert_eq!((windows(1000), windows(1700)), (Some(BYPASS_MIN), Some(BYPASS_MIN)));
        assert_eq!((windows(2500), windows(13_000)), (None, None));
        let mut bypass = Bypass::default();
        assert_eq!(bypass.measured(4 * MS, Duration::ZERO, 4000), None);
        assert_eq!(bypass.measured(4 * MS, Duration::ZERO, 4000), Some(BYPASS_MIN));
    }

    #[test]
    fn under_lasting_load_attempts_take_little_of_the_time() {
        let mut bypass = Bypass::default();
        let times: Vec<Duration> = (0..20).filter_map(|_| window(&mut bypass, 5)).collect();
        assert!(
            times.len() == 20 && times.is_sorted() && times[0] == BYPASS_MIN && times[19] == BYPASS_MAX,
            "{times:?}"
        );
        let until_longest: Duration =
            times.iter().take_while(|time| **time < BYPASS_MAX).map(|time| *time + WINDOW).sum();
        assert!(until_longest < BYPASS_MAX / 2, "{until_longest:?}");
        assert!(WINDOW * 50 <= BYPASS_MAX);
    }

    #[test]
    fn what_has_grown_shrinks_when_cores_are_idle_again() {
        let mut bypass = Bypass::default();
        (0..2).for_each(|_| assert!(window(&mut bypass, 9).is_some()));
        assert_eq!(window(&mut bypass, 1), None);
        assert_eq!(window(&mut bypass, 9), Some(BYPASS_MIN * FACTOR), "one step down from two up");
        (0..9).for_each(|_| assert_eq!(window(&mut bypass, 0), None));
        assert_eq!(window(&mut bypass, 9), Some(BYPASS_MIN));
    }
}
