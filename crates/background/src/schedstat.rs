//! The run-queue delay of a drain thread: how long it ran and how long it waited for a core, as the
//! kernel counts it in `schedstat`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time without a pause before the kernel is asked: a thread with little to do never asks.
const SETTLED: Duration = Duration::from_millis(2);

/// Time between two questions: each costs a microsecond.
const ASK_EVERY: Duration = Duration::from_millis(4);

/// Run time and run-queue delay of one thread while it drains without a pause.
#[derive(Debug)]
pub(crate) struct Schedstat {
    /// `/proc/thread-self/schedstat` of the thread that made this; none if the kernel has no such
    /// file.
    file: Option<File>,
    asked: Option<Instant>,
    known: Option<Times>,
    /// Blocks drained since the kernel was asked.
    drained: u32,
}

/// Times of a thread since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Time on a core.
    pub(crate) ran: Duration,
    /// Time in the run queue, ready and without a core.
    pub(crate) waited: Duration,
}

impl Schedstat {
    /// Opens the times of the calling thread. No other thread may use them.
    pub(crate) fn of_this_thread() -> Schedstat {
        Schedstat { file: File::open("/proc/thread-self/schedstat").ok(), asked: None, known: None, drained: 0 }
    }

    /// Learns that the thread had nothing to drain, and pauses.
    pub(crate) fn paused(&mut self) {
        (self.asked, self.known, self.drained) = (None, None, 0);
    }

    /// Learns that the thread drained `blocks` blocks and goes on. Every few milliseconds, returns
    /// the times since the last answer or pause and the blocks drained in them.
    pub(crate) fn went_on(&mut self, now: Instant, blocks: u32) -> Option<(Times, u32)> {
        self.drained = self.drained.saturating_add(blocks);
        let since = now - *self.asked.get_or_insert(now);
        if since < if self.known.is_some() { ASK_EVERY } else { SETTLED } {
            return None;
        }
        let times = self.ask()?;
        self.asked = Some(now);
        let drained = std::mem::take(&mut self.drained);
        let before = self.known.replace(times)?;
        let times =
            Times { ran: times.ran.saturating_sub(before.ran), waited: times.waited.saturating_sub(before.waited) };
        Some((times, drained))
    }

    fn ask(&self) -> Option<Times> {
        let mut text = [0; 64];
        let len = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(&text[..len]).ok()?)
    }
}

/// Reads the first two of three numbers: nanoseconds run, nanoseconds waited, time slices.
fn parse(schedstat: &str) -> Option<Times> {
    let mut numbers = schedstat.split_ascii_whitespace().map(|number| number.parse().map(Duration::from_nanos));
    Some(Times { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        let times = Times { ran: Duration::from_nanos(12), waited: Duration::from_nanos(345) };
        assert_eq!(parse("12 345 6\n"), Some(times));
        assert_eq!(parse("12"), None);
        assert_eq!(parse("12 x 6"), None);
    }

    #[test]
    fn only_a_thread_that_goes_on_asks() {
        let mut schedstat = Schedstat::of_this_thread();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let answers: Vec<u32> = (0..11).filter_map(|ms| Some(schedstat.went_on(at(ms), 5)?.1)).collect();
        assert_eq!(answers, [20, 20], "after 2 ms it asks first, then at 6 and 10");
        (0..10).for_each(|ms| {
            schedstat.paused();
            assert_eq!(schedstat.went_on(at(20 + ms), 1), None);
        });
    }

    #[test]
    fn a_thread_that_computes_runs() {
        let mut schedstat = Schedstat::of_this_thread();
        let (begin, mut counted) = (Instant::now(), Duration::ZERO);
        // The kernel brings the counts up to date at its ticks, so one answer may hold less than
        // passed, and the next one more.
        while counted < 5 * ASK_EVERY {
            assert!(begin.elapsed() < Duration::from_secs(60), "only {counted:?} counted in a minute");
            let answer = schedstat.went_on(Instant::now(), 1);
            counted += answer.map_or(Duration::ZERO, |(times, _)| times.ran + times.waited);
        }
        assert!(counted < begin.elapsed() + 5 * ASK_EVERY, "{counted:?} counted in {:?}", begin.elapsed());
    }
}
