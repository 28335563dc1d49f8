//! Answers that a queue has ready and has not handed over yet.
//!
//! Handing answers over costs a system call or a signal, however many they are. So they wait for
//! each other while the queue has more requests at hand, within limits that count requests and
//! bytes: the number of calls then depends on the requests, not on the speed of the processor. The
//! limit in time is for requests that turn out to be slow.

use std::time::{Duration, Instant};

/// Answers that are handed over together at most: half of the requests that a queue of ublk has
/// under way, so that its clients can go on while the server carries out the other half.
const TOGETHER_MAX: u32 = 32;

/// Bytes of their requests at most.
const TOGETHER_BYTES_MAX: u64 = 256 << 10;

/// How long the first of them may wait.
const WAITING_MAX: Duration = Duration::from_millis(2);

/// The answers of one queue that wait to be handed over together.
#[derive(Debug, Default)]
pub struct WaitingAnswers {
    /// Since when the first of them waits; None: there is none.
    since: Option<Instant>,
    count: u32,
    bytes: u64,
}

impl WaitingAnswers {
    /// Adds the answer to a request of `bytes`, which was ready at `now`.
    pub fn add(&mut self, bytes: u64, now: Instant) {
        self.since.get_or_insert(now);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// Whether they are to be handed over at `now` even though more requests are at hand.
    pub fn is_due(&self, now: Instant) -> bool {
        let is_late = self.since.is_some_and(|since| now.saturating_duration_since(since) > WAITING_MAX);
        is_late || self.count >= TOGETHER_MAX || self.bytes >= TOGETHER_BYTES_MAX
    }

    /// Forgets them, as they are handed over; whether there were some.
    pub fn take(&mut self) -> bool {
        !std::mem::take(self).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many answers to requests of `bytes`, each `apart` after the one before, wait until they
    /// are due.
    fn together(bytes: u64, apart: Duration) -> u32 {
        let (mut answers, mut now) = (WaitingAnswers::default(), Instant::now());
        let mut count = 0;
        while !answers.is_due(now) {
            answers.add(bytes, now);
            now += apart;
            count += 1;
        }
        assert!(answers.take() && !answers.take(), "handed over once");
        assert!(answers.is_empty() && !answers.is_due(now));
        count
    }

    #[test]
    fn short_requests_wait_by_their_number_whatever_the_processor() {
        assert_eq!(together(4096, Duration::from_micros(2)), 32);
        assert_eq!(together(4096, Duration::from_micros(30)), 32);
        assert_eq!(together(0, Duration::ZERO), 32);
    }

    #[test]
    fn long_and_slow_ones_wait_for_fewer() {
        assert_eq!(together(64 << 10, Duration::from_micros(10)), 4);
        assert_eq!(together(1 << 20, Duration::from_micros(100)), 1);
        assert_eq!(together(u64::MAX, Duration::ZERO), 1);
        assert_eq!(together(4096, Duration::from_millis(5)), 1);
        assert_eq!(together(4096, Duration::from_micros(300)), 7);
    }
}
