//! Whether a core is idle that a worker may poll on: while programs want all cores, what polling
//! takes is taken from them.
//!
//! Idle time is measured while no worker polls, as one that polls is not idle. What was found holds
//! for some seconds. Cores are those that this process may use; where it may not use all of their
//! time, none is idle.

use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::thread;
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

/// Times of some cores since the machine began, in hundredths of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CoreTimes {
    cores: u64,
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

    /// Looks whether a core is idle. If it has to be measured, none is meanwhile.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let times = self.stat.as_ref().and_then(|stat| {
            let (own, mut text) = (own_cores()?, String::new());
            (&mut &*stat).seek(SeekFrom::Start(0)).ok()?;
            (&mut &*stat).read_to_string(&mut text).ok()?;
            CoreTimes::of(&text, |core| core < CpuSet::MAX_CPU && own.is_set(core))
        });
        // Times that are not told are none, and none is idle of them: it is asked again as late.
        let times = times.unwrap_or_default();
        self.state = match self.state {
            Knowledge::Measuring(_, before) if times.idle_since(before) >= IDLE_MIN => Knowledge::Idle(now),
            _ => Knowledge::Measuring(now, times),
        };
        matches!(self.state, Knowledge::Idle(_))
    }
}

/// The cores that this process may use, which others may change at any time. `None`: it cannot be
/// told, or it may not use all of their time.
fn own_cores() -> Option<CpuSet> {
    let own = sched_getaffinity(None).ok()?;
    // Fewer than it may use: a limit of time.
    let cores = thread::available_parallelism().ok()?;
    (cores.get() >= own.count() as usize).then_some(own)
}

impl CoreTimes {
    /// Those of each core that `counts`, as `/proc/stat` tells them (`proc(5)`). `None`: it tells
    /// of none.
    fn of(text: &str, counts: impl Fn(usize) -> bool) -> Option<CoreTimes> {
        let mut sum = CoreTimes::default();
        for line in text.lines().filter_map(|line| line.strip_prefix("cpu")) {
            let mut words = line.split(' ');
            let Some(_) = words.next().and_then(|number| number.parse().ok()).filter(|core| counts(*core)) else {
                continue;
            };
            let mut times = [0_u64; 8];
            for time in &mut times {
                *time = words.next()?.parse().ok()?;
            }
            let [.., idle, waiting_for_disks, _, _, _] = times;
            sum.cores += 1;
            sum.idle += idle + waiting_for_disks;
            sum.all += times.iter().sum::<u64>();
        }
        (sum.cores > 0).then_some(sum)
    }

    /// How many hundredths of a core were idle since `before`.
    fn idle_since(self, before: CoreTimes) -> u64 {
        let [idle, all] = [self.idle.saturating_sub(before.idle), self.all.saturating_sub(before.all)];
        // A core that came in between has all of its past in these sums.
        if self.cores == before.cores { (idle * 100 * self.cores).checked_div(all).unwrap_or(0) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_own_cores_and_of_those_that_wait_for_disks() {
        let told = |idle: u64, all: u64| {
            format!(
                "cpu  9 9\ncpu0 {all} 0 0 {idle} 5 0 0 0 0 0\ncpu1 7 0 0 1 1 0 0 1 0 0\ncpu10 5 0 0 90 5 0 0 0 0 0\nintr 3\n"
            )
        };
        let of = |text: &str, own: &[usize]| CoreTimes::of(text, |core| own.contains(&core));
        let before = of(&told(100, 40), &[0, 10]).expect("two cores");
        assert_eq!(before, CoreTimes { cores: 2, idle: 200, all: 245 });
        let now = of(&told(130, 60), &[0, 10]).expect("two cores");
        assert_eq!((now.idle_since(before), before.idle_since(now)), (120, 0));
        for (text, own) in [(told(1, 1), &[3][..]), ("cpu0 1 2".to_owned(), &[0]), (String::new(), &[0])] {
            assert_eq!(of(&text, own), None);
        }
    }

    #[test]
    fn idle_cores_are_measured_for_a_while_and_anew_after_some_time_or_a_gap() {
        let (mut idle, began) = (IdleCores::new(), Instant::now());
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        assert!(idle.is_due(began) && !idle.look(began) && !idle.is_due(at(1)));
        assert!(idle.is_due(at(100)), "nobody looked meanwhile");
        assert!(!idle.look(at(100)));
        assert!((101..160).all(|now| !idle.is_due(at(now))) && idle.is_due(at(160)));
        idle.state = Knowledge::Idle(at(160));
        assert!(!idle.is_due(at(8159)) && idle.is_due(at(8160)));
        idle.stat = None;
        assert!(!idle.look(at(8160)), "a kernel that does not tell");
        assert!((8161..8220).all(|now| !idle.is_due(at(now))), "it is not asked at each look");
        assert!(idle.is_due(at(8220)) && !idle.look(at(8220)));
    }
}
