//! Drain backoff: when a drain thread goes on, sleeps for a short time, or parks until it is woken.
//!
//! Waking a parked thread costs a writer as much as ten writes. So a thread that finds no work
//! first sleeps for short, growing times, and parks only after a while without work. Blocks wait no
//! longer than the longest of these sleeps, a busy cache wakes no thread, and an idle cache costs
//! no CPU time.

use std::time::Duration;

/// The first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(30);

/// The longest sleep without asking to be woken: what a block may wait, beside the system's own
/// delay of some 60 µs.
const SLEEP_MAX: Duration = Duration::from_micros(300);

/// Time without work after which it is worth being woken.
const LINGER: Duration = Duration::from_millis(50);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Drain on.
    GoOn,
    /// Sleep so long, then drain on.
    Sleep(Duration),
    /// Sleep until woken.
    Park,
}

/// The backoff of one drain thread.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    sleep: Duration,
    idle: Duration,
}

impl Backoff {
    /// Answers what to do after a step that evicted `evicted` blocks.
    pub fn after_step(&mut self, evicted: u32) -> Next {
        if evicted > 0 {
            *self = Backoff::default();
            return Next::GoOn;
        }
        if self.idle >= LINGER {
            *self = Backoff::default();
            return Next::Park;
        }
        self.sleep = (self.sleep * 2).clamp(SLEEP_MIN, SLEEP_MAX);
        self.idle += self.sleep;
        Next::Sleep(self.sleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_and_end_in_parking() {
        let mut backoff = Backoff::default();
        let mut slept = Vec::new();
        while let Next::Sleep(time) = backoff.after_step(0) {
            slept.push(time);
        }
        assert!(slept.is_sorted() && slept[0] == SLEEP_MIN && slept[slept.len() - 1] == SLEEP_MAX);
        let all: Duration = slept.iter().sum();
        assert!((LINGER..LINGER + SLEEP_MAX).contains(&all), "{all:?}");
    }

    #[test]
    fn work_begins_it_anew() {
        let mut backoff = Backoff::default();
        (0..100).for_each(|_| assert_ne!(backoff.after_step(0), Next::GoOn));
        assert_eq!(backoff.after_step(1), Next::GoOn);
        assert_eq!(backoff.after_step(0), Next::Sleep(SLEEP_MIN));
    }
}
