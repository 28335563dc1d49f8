//! When a thread that drains a cache goes on, sleeps a little, or sleeps until it is woken.
//!
//! Waking a sleeper costs the one who wakes it as much as ten writes, so a thread that found nothing first sleeps for short times of its
//! own, and only after a while without work asks to be woken. Blocks wait no longer than the longest of these times; a busy cache
//! wakes nobody; an idle one costs nothing.

use std::time::Duration;

/// The first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(30);

/// The longest sleep without asking to be woken: what a block may wait, beside the system's own delay of some 60 µs.
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

/// The pace of one draining thread.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    sleep: Duration,
    idle: Duration,
}

impl Pace {
    /// After a step that evicted `evicted` blocks.
    pub fn after_step(&mut self, evicted: u32) -> Next {
        if evicted > 0 {
            *self = Pace::default();
            return Next::GoOn;
        }
        if self.idle >= LINGER {
            *self = Pace::default();
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
        let mut pace = Pace::default();
        let mut slept = Vec::new();
        while let Next::Sleep(time) = pace.after_step(0) {
            slept.push(time);
        }
        assert!(slept.is_sorted() && slept[0] == SLEEP_MIN && slept[slept.len() - 1] == SLEEP_MAX);
        let all: Duration = slept.iter().sum();
        assert!((LINGER..LINGER + SLEEP_MAX).contains(&all), "{all:?}");
    }

    #[test]
    fn work_begins_it_anew() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| assert_ne!(pace.after_step(0), Next::GoOn));
        assert_eq!(pace.after_step(1), Next::GoOn);
        assert_eq!(pace.after_step(0), Next::Sleep(SLEEP_MIN));
    }
}
