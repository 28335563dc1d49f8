//! Whether a cache takes blocks in, or lets them go past it for a while.
//!
//! A cached block is copied twice more than one that goes straight to the device. While a core is idle, whoever drains does that
//! there, and it costs the writers nothing. When every core is busy, draining takes the cores from the writers, and
//! they get less done than without a cache. Whoever drains notices it by waiting for a core itself.
//!
//! And when writers never pause, so that draining never catches up, a block may cost the writer more in the cache than in the device, if
//! that is as fast as DRAM.
//!
//! Then blocks are turned away for a while, which grows as long as every new attempt ends in the same way, and shrinks when
//! one does not. So under lasting load the attempts cost little, and a cache that may be used again soon is.

use std::time::Duration;

/// Time in which a thread ran or waited for a core, before anything is concluded from it. Long enough for another thread's turn in it (4 ms at 250
/// ticks a second) to decide nothing.
const WINDOW: Duration = Duration::from_millis(20);

/// Time in which a thread ran, before it is concluded that the device is as fast as DRAM.
const WINDOW_FAST: Duration = Duration::from_millis(8);

/// A thread that waits for a core for more than one part in so many of its time has none to itself.
const WAITED_PARTS: u32 = 4;

/// Draining a block takes longer than this where passing through DRAM pays under lasting load. A cached write costs the writer 0.7 to 1 µs then,
/// on the machines that were measured, most of it for lines that pass between two cores, and the copy out of its slot is in this time too.
const PAYS_FROM: Duration = Duration::from_nanos(1800);

/// The time for which blocks are turned away changes by this factor.
const FACTOR: u32 = 4;

/// How long blocks are turned away the first time.
const AWAY_MIN: Duration = Duration::from_millis(20);

/// How long they are at most: fifty times the window, so that attempts take 2 % of the time.
const AWAY_MAX: Duration = Duration::from_secs(1);

/// What one thread that drains found out.
#[derive(Clone, Debug)]
pub struct Admission {
    ran: Duration,
    waited: Duration,
    drained: u32,
    /// How long blocks are turned away the next time.
    away: Duration,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission { ran: Duration::ZERO, waited: Duration::ZERO, drained: 0, away: AWAY_MIN }
    }
}

impl Admission {
    /// While it always had blocks to drain, the thread had a core for the time `ran`, waited for one for the time `waited`, and drained
    /// `drained` blocks. Answers how long blocks are to be turned away from now on, if they are.
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
            self.away = (self.away / FACTOR).max(AWAY_MIN);
            return None;
        }
        let away = self.away;
        self.away = (away * FACTOR).min(AWAY_MAX);
        Some(away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One window in which the thread waited for `waited` parts of ten, and drained a slow device's blocks.
    fn window(admission: &mut Admission, waited: u32) -> Option<Duration> {
        let mut step = || admission.measured(MS * (10 - waited) / 5, MS * waited / 5, 10);
        assert!((0..9).all(|_| step().is_none()), "nothing is concluded before the window is full");
        step()
    }

    #[test]
    fn a_thread_with_a_core_to_itself_turns_nothing_away() {
        let mut admission = Admission::default();
        assert!((0..1000).all(|turn| window(&mut admission, turn % 3).is_none()));
    }

    #[test]
    fn another_threads_turn_decides_nothing() {
        let mut admission = Admission::default();
        assert_eq!(admission.measured(Duration::ZERO, 4 * MS, 0), None);
        assert_eq!(admission.measured(16 * MS, Duration::ZERO, 100), None);
        assert_eq!(window(&mut admission, 0), None);
        assert_eq!(admission.measured(MS, 8 * MS, 1000), None, "nor is it taken for a fast device");
    }

    #[test]
    fn writers_that_never_pause_write_to_a_device_as_fast_as_dram_themselves() {
        let windows = |block_ns: u32| Admission::default().measured(20 * MS, Duration::ZERO, 20_000_000 / block_ns);
        assert_eq!((windows(1000), windows(1700)), (Some(AWAY_MIN), Some(AWAY_MIN)));
        assert_eq!((windows(2500), windows(13_000)), (None, None));
        let mut admission = Admission::default();
        assert_eq!(admission.measured(4 * MS, Duration::ZERO, 4000), None);
        assert_eq!(admission.measured(4 * MS, Duration::ZERO, 4000), Some(AWAY_MIN));
    }

    #[test]
    fn under_lasting_load_attempts_take_little_of_the_time() {
        let mut admission = Admission::default();
        let away: Vec<Duration> = (0..20).filter_map(|_| window(&mut admission, 5)).collect();
        assert!(away.len() == 20 && away.is_sorted() && away[0] == AWAY_MIN && away[19] == AWAY_MAX, "{away:?}");
        let until_longest: Duration = away.iter().take_while(|away| **away < AWAY_MAX).map(|away| *away + WINDOW).sum();
        assert!(until_longest < AWAY_MAX / 2, "{until_longest:?}");
        assert!(WINDOW * 50 <= AWAY_MAX);
    }

    #[test]
    fn what_has_grown_shrinks_when_cores_are_idle_again() {
        let mut admission = Admission::default();
        (0..2).for_each(|_| assert!(window(&mut admission, 9).is_some()));
        assert_eq!(window(&mut admission, 1), None);
        assert_eq!(window(&mut admission, 9), Some(AWAY_MIN * FACTOR), "one step down from two up");
        (0..9).for_each(|_| assert_eq!(window(&mut admission, 0), None));
        assert_eq!(window(&mut admission, 9), Some(AWAY_MIN));
    }
}
