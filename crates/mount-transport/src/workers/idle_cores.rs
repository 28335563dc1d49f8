//! Whether a core of the machine is idle that a worker may poll on: while programs want all cores,
//! what polling takes is taken from them.
//!
//! Idle time is measured while no worker polls, as one that polls is not idle. What was found holds
//! for some seconds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// How long idle time is measured: the kernel tells it in hundredths of a second.
const MEASURED: Duration = Duration::from_millis(60);
/// How long it holds that a core is idle.
const HOLDS: Duration = Duration::from_secs(8);
/// If nobody looked for so long, what was measured is idle for want of requests.
const GAP_MAX: Duration = Duration::from_millis(20);
/// So many hundredths of a core have to be idle: one is the poller's, and a rest stays.
const IDLE_MIN: u64 = 110;

/// What the clock knows of idle cores.
#[derive(Debug)]
pub(super) struct IdleCores {
    /// Where the kernel tells it; None: it does not.
    stat: Option<File>,
    looked: Instant,
    state: Knowledge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// Since then, and the times that were told then.
    Measuring(Instant, CoreTimes),
    /// A core was idle then.
    Idle(Instant),
    /// Nothing is known.
    Unknown,
}

/// Times of all cores since the machine began, in hundredths of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoreTimes {
    idle: u64,
    all: u64,
}

impl IdleCores {
    pub(super) fn new() -> IdleCores {
        IdleCores { stat: File::open("/proc/stat").ok(), looked: Instant::now(), state: Knowledge::Unknown }
    }

    /// Whether [`IdleCores::look`] would find anything new `now`.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if let Knowledge::Measuring(..) = self.state
            && now - self.looked > GAP_MAX
        {
            self.state = Knowledge::Unknown;
        }
        self.looked = now;
        match self.state {
            Knowledge::Unknown => true,
            Knowledge::Measuring(since, _) => now - since >= MEASURED,
            Knowledge::Idle(since) => now - since >= HOLDS,
        }
    }

    /// Looks whether a core of `cores` is idle. If it has to be measured, none is meanwhile.
    pub(super) fn look(&mut self, now: Instant, cores: usize) -> bool {
        let mut text = [0; 256];
        let told = self.stat.as_ref().and_then(|stat| stat.read_at(&mut text, 0).ok());
        let times = told.and_then(|len| CoreTimes::of(&text[..len]));
        self.state = match (self.state, times) {
            (_, None) => Knowledge::Unknown,
            (Knowledge::Measuring(_, before), Some(times)) if times.idle_since(before, cores) >= IDLE_MIN => {
                Knowledge::Idle(now)
            }
            (_, Some(times)) => Knowledge::Measuring(now, times),
        };
        matches!(self.state, Knowledge::Idle(_))
    }
}

impl CoreTimes {
    /// Those in the first line of `/proc/stat`, as `proc(5)` describes it.
    fn of(text: &[u8]) -> Option<CoreTimes> {
        let line = text.split(|byte| *byte == b'\n').next()?.strip_prefix(b"cpu ")?;
        let mut times = [0_u64; 8];
        let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
        for time in &mut times {
            *time = words.next()?.parse().ok()?;
        }
        let [.., idle, waiting_for_disks, _, _, _] = times;
        Some(CoreTimes { idle: idle + waiting_for_disks, all: times.iter().sum() })
    }

    /// How many hundredths of a core of `cores` were idle since `before`.
    fn idle_since(self, before: CoreTimes, cores: usize) -> u64 {
        let [idle, all] = [self.idle.saturating_sub(before.idle), self.all.saturating_sub(before.all)];
        (idle * 100 * cores as u64).checked_div(all).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_idle_cores_and_of_those_that_wait_for_disks() {
        let before = CoreTimes::of(b"cpu  10 0 10 100 20 0 0 5 0 0\ncpu0 1 2").expect("times");
        assert_eq!(before, CoreTimes { idle: 120, all: 145 });
        let now = CoreTimes::of(b"cpu  20 0 10 115 25 0 0 15 0 0\n").expect("times");
        assert_eq!((now.idle_since(before, 2), before.idle_since(now, 2)), (100, 0));
        for text in [&b"cpu 1 2"[..], b"cpu0 1 2 3 4 5 6 7 8", b"", b"cpu a b c d e f g h"] {
            assert_eq!(CoreTimes::of(text), None);
        }
    }

    #[test]
    fn idle_cores_are_measured_for_a_while_and_anew_after_some_time_or_a_gap() {
        let (mut idle, began) = (IdleCores::new(), Instant::now());
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        assert!(idle.is_due(began) && !idle.look(began, 2) && !idle.is_due(at(1)));
        assert!(idle.is_due(at(100)), "nobody looked meanwhile");
        assert!(!idle.look(at(100), 2));
        assert!((101..160).all(|now| !idle.is_due(at(now))) && idle.is_due(at(160)));
        idle.state = Knowledge::Idle(at(160));
        assert!(!idle.is_due(at(8159)) && idle.is_due(at(8160)));
        idle.stat = None;
        assert!(!idle.look(at(8160), 2) && idle.is_due(at(8161)), "a kernel that does not tell");
    }
}
