//! Busy polling: whether a thread that serves a client polls for the next request or sleeps until
//! it is there.
//!
//! If the thread sleeps on another core, its client pays a wake-up for each request, several times
//! what the request itself costs. Polling saves that if the next request is about to come, from
//! another core, and no core is missing elsewhere. The system tells none of this, so the policy
//! tries: for a client that is as quick as one that had to be woken, a moment at a time, while few
//! threads are awake. A quicker client shares this thread's core, where sleeping is best and
//! polling would drive it away. Each vain trial makes the next one rarer.

use std::time::Duration;

/// How long a thread polls before it sleeps: a client that has to be woken answers within that
/// time, even on a virtual machine.
pub const BUSY_POLL_MAX: Duration = Duration::from_micros(50);

/// What a sleeper waits at least for a client on another core: two wake-ups, its own being one. On
/// one core it is half of that.
const APART_MIN: Duration = Duration::from_micros(12);

/// What a sleeper waits at most for a client that polling would have seen: a wake-up more.
const APART_MAX: Duration = Duration::from_micros(100);

/// Requests in a row that came as from another core before it is tried for the first time.
const QUICK_MIN: u32 = 2;

/// Requests in a row from another core before the next trial, after many vain ones: trials cost no
/// more than 0.05 µs a request.
const QUICK_MAX: u32 = 1024;

/// How much rarer a trial is than the vain one before it.
const QUICK_GROWTH: u32 = 4;

/// Vain polls in a row that a client is forgiven which was seen before.
const FORGIVEN: u32 = 2;

/// Requests in a row without another client's in between, after which a client is alone.
const ALONE_AFTER: u32 = 16;

/// What to do until there is a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look again and again for [`BUSY_POLL_MAX`], then sleep.
    Poll,
    /// Sleep until woken.
    Sleep,
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was there at the first look.
    AtOnce,
    /// It was seen by polling.
    Polled,
    /// Polling did not see it in time; the thread slept.
    Missed,
    /// The thread slept from the start, for this long.
    Slept(Duration),
}

/// How many threads serve clients at this moment, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Company {
    /// Threads that do not sleep or will soon not, the one that asks among them.
    pub awake: usize,
    /// Cores they may run on.
    pub cores: usize,
}

impl Company {
    /// Whether each of them could have a core, and its client another.
    pub fn has_room(self) -> bool {
        self.awake <= (self.cores / 2).max(1)
    }
}

/// How many other clients are as busy as one of them, seen from how often they are served between
/// two of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    seen: u64,
    lately: u64,
    alone: u32,
}

impl Others {
    /// The client was served: with it, `served` times anybody was.
    pub fn learn(&mut self, served: u64) {
        let between = served.saturating_sub(self.seen + 1);
        self.seen = served;
        self.alone = if between > 0 { 0 } else { self.alone.saturating_add(1) };
        if between > 0 || self.alone >= ALONE_AFTER {
            self.lately = between;
        }
    }

    /// How many there were, not long ago.
    pub fn lately(&self) -> u64 {
        self.lately
    }
}

/// The busy-poll decision for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Requests in a row that came soon, but only after wake-ups.
    quick: u32,
    /// How many of them are a reason to poll.
    quick_wanted: u32,
    /// Vain polls that are left before the thread sleeps again.
    forgiven: u32,
}

impl Default for BusyPoll {
    /// Nothing yet.
    fn default() -> BusyPoll {
        BusyPoll { quick: 0, quick_wanted: QUICK_MIN, forgiven: 0 }
    }
}

impl BusyPoll {
    /// How to wait for the next request.
    pub fn wait(&self, company: Company) -> Wait {
        if self.quick >= self.quick_wanted && company.has_room() { Wait::Poll } else { Wait::Sleep }
    }

    /// The request came, in this way.
    pub fn learn(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::AtOnce => {}
            Arrival::Polled => *self = BusyPoll { quick: QUICK_MIN, quick_wanted: QUICK_MIN, forgiven: FORGIVEN },
            Arrival::Missed if self.forgiven > 0 => self.forgiven -= 1,
            Arrival::Missed => {
                let quick_wanted = (self.quick_wanted * QUICK_GROWTH).min(QUICK_MAX);
                *self = BusyPoll { quick: 0, quick_wanted, forgiven: 0 };
            }
            Arrival::Slept(waited) if (APART_MIN..=APART_MAX).contains(&waited) => {
                self.quick = self.quick.saturating_add(1);
            }
            Arrival::Slept(_) => self.quick = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{AtOnce, Missed, Polled};

    const QUICK: Arrival = Arrival::Slept(Duration::from_micros(30));
    const SLOW: Arrival = Arrival::Slept(Duration::from_micros(101));
    const SAME_CORE: Arrival = Arrival::Slept(Duration::from_micros(5));
    const ALONE: Company = Company { awake: 1, cores: 2 };

    fn after(arrivals: &[Arrival]) -> Wait {
        let mut busy_poll = BusyPoll::default();
        arrivals.iter().for_each(|arrival| busy_poll.learn(*arrival));
        busy_poll.wait(ALONE)
    }

    #[test]
    fn a_client_is_polled_for_once_it_was_quick_more_than_once() {
        assert_eq!(after(&[]), Wait::Sleep);
        assert_eq!(after(&[QUICK]), Wait::Sleep);
        assert_eq!(after(&[QUICK, QUICK]), Wait::Poll);
        assert_eq!(after(&[QUICK, SLOW, QUICK]), Wait::Sleep, "not in a row");
    }

    #[test]
    fn a_client_on_the_same_core_is_not_polled_for() {
        assert_eq!(after(&[SAME_CORE; 5]), Wait::Sleep);
        assert_eq!(after(&[QUICK, SAME_CORE, QUICK]), Wait::Sleep);
    }

    #[test]
    fn a_client_that_is_seen_no_more_is_slept_for() {
        assert_eq!(after(&[QUICK, QUICK, Missed]), Wait::Sleep, "it was never seen");
        assert_eq!(after(&[QUICK, QUICK, AtOnce, Missed]), Wait::Sleep, "that tells nothing");
        assert_eq!(after(&[QUICK, QUICK, Polled, Missed, Missed]), Wait::Poll);
        assert_eq!(after(&[QUICK, QUICK, Polled, Missed, Missed, Polled, Missed, Missed]), Wait::Poll);
        assert_eq!(after(&[QUICK, QUICK, Polled, Missed, Missed, Missed]), Wait::Sleep);
    }

    #[test]
    fn vain_trials_become_rare_and_a_good_one_makes_up_for_them() {
        let mut busy_poll = BusyPoll::default();
        let mut quick_before_trial = || {
            let mut quick = 0;
            while busy_poll.wait(ALONE) == Wait::Sleep {
                busy_poll.learn(QUICK);
                quick += 1;
            }
            busy_poll.learn(Missed);
            quick
        };
        let quick: Vec<u32> = (0..8).map(|_| quick_before_trial()).collect();
        assert_eq!(quick, [2, 8, 32, 128, 512, 1024, 1024, 1024]);
        (0..QUICK_MAX).for_each(|_| busy_poll.learn(QUICK));
        assert_eq!(busy_poll.wait(ALONE), Wait::Poll);
        [Polled, Missed, Missed, Missed].into_iter().for_each(|arrival| busy_poll.learn(arrival));
        assert_eq!(busy_poll.wait(ALONE), Wait::Sleep);
        (0..QUICK_MIN * QUICK_GROWTH).for_each(|_| busy_poll.learn(QUICK));
        assert_eq!(busy_poll.wait(ALONE), Wait::Poll);
    }

    #[test]
    fn others_are_remembered_for_some_requests() {
        let (mut others, mut served) = (Others::default(), 0);
        let mut learn = |between: u64| {
            served += between + 1;
            others.learn(served);
            others.lately()
        };
        assert_eq!((learn(0), learn(1), learn(3)), (0, 1, 3));
        assert!((1..ALONE_AFTER).all(|_| learn(0) == 3));
        assert_eq!((learn(0), learn(0), learn(2)), (0, 0, 2));
    }

    #[test]
    fn no_client_is_polled_for_while_more_are_awake_than_half_the_cores() {
        let mut busy_poll = BusyPoll::default();
        (0..QUICK_MIN).for_each(|_| busy_poll.learn(QUICK));
        for (awake, cores, wait) in [
            (1, 1, Wait::Poll),
            (2, 1, Wait::Sleep),
            (2, 2, Wait::Sleep),
            (2, 4, Wait::Poll),
            (3, 4, Wait::Sleep),
            (1, 0, Wait::Poll),
        ] {
            assert_eq!(busy_poll.wait(Company { awake, cores }), wait, "{awake} awake on {cores}");
        }
    }
}
