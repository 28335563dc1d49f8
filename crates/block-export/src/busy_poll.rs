//! The busy-poll budget: how many connections are awake, and how each waits for its client:
//! coalescing requests, polling for a moment, or asleep at once.

use rustix::thread::set_current_timer_slack;
use std::hint;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tidegate_policy::polling::busy_poll::{Arrival, BUSY_POLL_MAX, BusyPoll, Company, Others, Wait};
use tidegate_policy::polling::coalesce::Coalescing;

/// Counts the connections that do not sleep, of all services that share it.
///
/// Relaxed everywhere: only the number is read, and an old one leads to a worse guess, to nothing
/// else.
#[derive(Debug)]
pub struct PollBudget {
    awake: AtomicUsize,
    /// How often one of them had something to do.
    served: AtomicU64,
    cores: usize,
    /// Whether any of them may poll.
    allowed: AtomicBool,
}

impl Default for PollBudget {
    /// No connection yet, on the cores that this process may use.
    fn default() -> PollBudget {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        PollBudget { awake: AtomicUsize::new(0), served: AtomicU64::new(0), cores, allowed: AtomicBool::new(true) }
    }
}

impl PollBudget {
    /// Whether connections may poll from now on. If not, each sleeps until its client wakes it.
    pub fn allow(&self, allowed: bool) {
        self.allowed.store(allowed, Ordering::Relaxed);
    }

    fn is_allowed(&self) -> bool {
        self.allowed.load(Ordering::Relaxed)
    }
}

/// One connection. It is awake unless [`Poller::rest`] is running, and leaves the budget when
/// dropped.
pub struct Poller<'a> {
    budget: &'a PollBudget,
    busy_poll: BusyPoll,
    others: Others,
    coalescing: Coalescing,
    begun: Instant,
    /// Whether this thread's short sleeps are as short as the system can make them.
    is_punctual: bool,
}

impl<'a> Poller<'a> {
    /// Counts a connection as awake.
    pub fn begin(budget: &'a PollBudget) -> Poller<'a> {
        budget.awake.fetch_add(1, Ordering::Relaxed);
        let (busy_poll, others, coalescing) = (BusyPoll::default(), Others::default(), Coalescing::default());
        Poller { budget, busy_poll, others, coalescing, begun: Instant::now(), is_punctual: false }
    }

    /// Coalesces requests for a moment if this client is served more quickly so. `answered`
    /// requests were answered since the last call.
    pub fn coalesce(&mut self, answered: u32) {
        if let Some(pause) = self.coalescing.pause(answered, self.begun.elapsed()) {
            if !self.is_punctual {
                // By default a sleep ends up to 50 us late. If that cannot be changed, the trials
                // still decide.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                self.is_punctual = true;
            }
            self.rest(|| thread::sleep(pause));
        }
    }

    /// Polls: calls `look` until it finds something or polling no longer pays.
    ///
    /// # Errors
    /// The connection has to sleep. [`VainPoll::ended`] takes that time.
    pub fn poll<T>(&self, mut look: impl FnMut() -> Option<T>) -> Result<(T, Arrival), VainPoll> {
        let begun = Instant::now();
        if !self.may_poll() {
            return Err(VainPoll { begun, polled: false });
        }
        let mut arrival = Arrival::AtOnce;
        loop {
            if let Some(found) = look() {
                return Ok((found, arrival));
            }
            if begun.elapsed() >= BUSY_POLL_MAX || !self.may_poll() {
                return Err(VainPoll { begun, polled: true });
            }
            arrival = Arrival::Polled;
            hint::spin_loop();
        }
    }

    fn may_poll(&self) -> bool {
        if !self.budget.is_allowed() {
            return false;
        }
        let (awake, cores) = (self.budget.awake.load(Ordering::Relaxed), self.budget.cores);
        let lately = usize::try_from(self.others.lately()).unwrap_or(usize::MAX);
        self.busy_poll.wait(Company { awake: awake.max(lately.saturating_add(1)), cores }) == Wait::Poll
    }

    /// Does `work`, which may sleep.
    pub fn rest<T>(&self, work: impl FnOnce() -> T) -> T {
        self.budget.awake.fetch_sub(1, Ordering::Relaxed);
        let found = work();
        self.budget.awake.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Learns how the next request came. Parts of one request follow each other at once and tell
    /// nothing.
    pub fn learn(&mut self, arrival: Arrival) {
        self.busy_poll.learn(arrival);
        self.others.learn(self.budget.served.fetch_add(1, Ordering::Relaxed) + 1);
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        self.budget.awake.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A wait that polling did not end.
pub struct VainPoll {
    begun: Instant,
    polled: bool,
}

impl VainPoll {
    /// Ends the wait: something has arrived.
    pub fn ended(self) -> Arrival {
        if self.polled { Arrival::Missed } else { Arrival::Slept(self.begun.elapsed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::current_timer_slack;
    use std::time::Duration;

    /// On two cores.
    fn budget() -> PollBudget {
        PollBudget { cores: 2, ..PollBudget::default() }
    }

    fn quick(budget: &PollBudget) -> Poller<'_> {
        let mut poller = Poller::begin(budget);
        (0..2).for_each(|_| poller.learn(Arrival::Slept(Duration::from_micros(30))));
        poller
    }

    #[test]
    fn a_quick_client_is_looked_for_until_it_is_there() {
        let budget = budget();
        let poller = quick(&budget);
        let at_once = poller.poll(|| Some("here"));
        assert!(matches!(at_once, Ok(("here", Arrival::AtOnce))));
        // A machine under load may give the core away for longer than is watched.
        let seen = (0..1000).any(|_| {
            let mut looks = 0;
            let second_time = || {
                looks += 1;
                (looks == 2).then_some("here")
            };
            matches!(poller.poll(second_time), Ok(("here", Arrival::Polled)))
        });
        assert!(seen);
    }

    #[test]
    fn it_is_looked_for_no_longer_than_a_moment() {
        let budget = budget();
        let poller = quick(&budget);
        let begun = Instant::now();
        let vain = poller.poll(|| None::<()>).err().unwrap();
        assert!(begun.elapsed() >= BUSY_POLL_MAX);
        assert_eq!(vain.ended(), Arrival::Missed);
    }

    #[test]
    fn requests_of_a_quick_client_are_let_gather_now_and_then() {
        let budget = budget();
        let mut poller = Poller::begin(&budget);
        let calls = (0..100_000).take_while(|_| {
            poller.coalesce(8);
            !poller.is_punctual
        });
        let before_a_trial = calls.count();
        assert!((192..100_000).contains(&before_a_trial), "{before_a_trial} calls before the first trial");
        assert_eq!(current_timer_slack().unwrap(), 1);
        assert_eq!(budget.awake.load(Ordering::Relaxed), 1, "it rests no longer");
    }

    #[test]
    fn nobody_looks_where_it_is_not_allowed() {
        let budget = budget();
        let poller = quick(&budget);
        budget.allow(false);
        let vain = poller.poll(|| -> Option<()> { panic!("nobody should look") }).err().unwrap();
        assert!(matches!(vain.ended(), Arrival::Slept(_)));
        budget.allow(true);
        assert!(poller.poll(|| Some(())).is_ok());
    }

    #[test]
    fn nobody_looks_for_a_new_client_or_in_company() {
        let budget = budget();
        let unlooked = || -> Option<()> { panic!("nobody should look") };
        let vain = Poller::begin(&budget).poll(unlooked).err().unwrap();
        assert!(matches!(vain.ended(), Arrival::Slept(_)));
        let poller = quick(&budget);
        let another = Poller::begin(&budget);
        assert!(poller.poll(unlooked).is_err(), "another is awake");
        another.rest(|| assert!(poller.poll(|| Some(())).is_ok(), "the other rests"));
        assert!(poller.poll(unlooked).is_err(), "it is awake again");
        drop(another);
        budget.served.fetch_add(1, Ordering::Relaxed);
        let mut poller = poller;
        poller.learn(Arrival::AtOnce);
        assert!(poller.poll(unlooked).is_err(), "another was served a moment ago");
        (0..16).for_each(|_| poller.learn(Arrival::AtOnce));
        assert!(poller.poll(|| Some(())).is_ok(), "it is gone");
    }
}
