//! Whether a cache takes blocks in, or lets them go past it for a while.
//!
//! A cached block is copied twice more than one that goes straight to the device. While a core is idle, whoever drains does that
//! there, and it costs the writers nothing. When every core is busy, draining takes the cores from the writers, and
//! they get less done than without a cache. Whoever drains notices it by waiting for a core itself.
//!
//! Then blocks are turned away for a while, which grows as long as every new attempt ends in the same way, and shrinks when
//! one does not. So under lasting load the attempts cost little, and a cache that may be used again soon is.

use std::time::Duration;

/// Time in which a thread ran or waited for a core, before anything is concluded from it. Long enough for another thread's turn in it (4 ms at 250
/// ticks a second) to decide nothing.
const WINDOW: Duration = Duration::from_millis(20);

/// A thread that waits for a core for more than one part in so many of its time has none to itself.
const WAITED_PARTS: u32 = 4;

/// How long blocks are turned away the first time.
const AWAY_MIN: Duration = Duration::from_millis(20);

/// How long they are at most: fifty times the window, so that attempts take 2 % of the time.
const AWAY_MAX: Duration = Duration::from_secs(1);

/// What one thread that drains found out.
#[derive(Clone, Debug)]
pub struct Admission {
    ran: Duration,
    waited: Duration,
    /// How long blocks are turned away the next time.
    away: Duration,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission { ran: Duration::ZERO, waited: Duration::ZERO, away: AWAY_MIN }
    }
}

impl Admission {
    /// While it had blocks to drain, the thread had a core for the time `ran`, and waited for one for the time `waited`. Answers how
    /// long blocks are to be turned away from now on, if they are.
    pub fn measured(&mut self, ran: Duration, waited: Duration) -> Option<Duration> {
        self.ran += ran;
        self.waited += waited;
        let all = self.ran + self.waited;
        if all < WINDOW {
            return None;
        }
        let contended = self.waited * WAITED_PARTS > all;
        (self.ran, self.waited) = (Duration::ZERO, Duration::ZERO);
        if !contended {
            self.away = (self.away / 2).max(AWAY_MIN);
            return None;
        }
        let away = self.away;
        self.away = (away * 2).min(AWAY_MAX);
        Some(away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One window in which the thread waited for `waited` parts of ten.
    fn window(admission: &mut Admission, waited: u32) -> Option<Duration> {
        let answers: Vec<_> = (0..10).map(|_| admission.measured(MS * (10 - waited) / 5, MS * waited / 5)).collect();
        assert!(answers[..9].iter().all(Option::is_none), "nothing is concluded before the window is full");
        answers[9]
    }

    #[test]
    fn a_thread_with_a_core_to_itself_turns_nothing_away() {
        let mut admission = Admission::default();
        assert!((0..1000).all(|turn| window(&mut admission, turn % 3).is_none()));
    }

    #[test]
    fn another_threads_turn_decides_nothing() {
        let mut admission = Admission::default();
        assert_eq!(admission.measured(Duration::ZERO, 4 * MS), None);
        assert_eq!(admission.measured(16 * MS, Duration::ZERO), None);
        assert_eq!(window(&mut admission, 0), None);
    }

    #[test]
    fn under_lasting_load_attempts_take_little_of_the_time() {
        let mut admission = Admission::default();
        let away: Vec<Duration> = (0..20).filter_map(|_| window(&mut admission, 5)).collect();
        assert!(away.len() == 20 && away.is_sorted() && away[0] == AWAY_MIN && away[19] == AWAY_MAX, "{away:?}");
        let second: Duration = away
            .iter()
            .scan(Duration::ZERO, |sum, away| {
                *sum += *away + WINDOW;
                Some(*sum)
            })
            .nth(4)
            .expect("there are twenty");
        assert!(second < Duration::from_secs(1), "{second:?} until five attempts in a row failed");
        assert!(WINDOW * 50 <= AWAY_MAX);
    }

    #[test]
    fn what_has_grown_shrinks_when_cores_are_idle_again() {
        let mut admission = Admission::default();
        (0..4).for_each(|_| assert!(window(&mut admission, 9).is_some()));
        (0..2).for_each(|_| assert_eq!(window(&mut admission, 1), None));
        assert_eq!(window(&mut admission, 9), Some(AWAY_MIN * 4), "a quarter of sixteen times as long");
        (0..99).for_each(|_| assert_eq!(window(&mut admission, 0), None));
        assert_eq!(window(&mut admission, 9), Some(AWAY_MIN));
    }
}
