//! How many connections are awake, and how each waits for its client: while requests gather, watching for a moment, or asleep at once.

use rustix::thread::set_current_timer_slack;
use std::hint;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tidegate_policy::polling::busy_poll::{Arrival, BUSY_POLL_MAX, BusyPoll, Company, Others, Wait};
use tidegate_policy::polling::coalesce::Coalescing;

/// The connections that do not sleep, of all services that share it.
///
/// Relaxed everywhere: only the number is read, and one that is a moment old leads to a worse guess, to nothing else.
#[derive(Debug)]
pub struct Attendance {
    awake: AtomicUsize,
    /// How often one of them had something to do.
    served: AtomicU64,
    cores: usize,
}

impl Default for Attendance {
    /// None yet, on the cores that this process may use.
    fn default() -> Attendance {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Attendance { awake: AtomicUsize::new(0), served: AtomicU64::new(0), cores }
    }
}

/// One connection, awake as long as this is there and [`Attendant::rest`] is not running.
pub(crate) struct Attendant<'a> {
    attendance: &'a Attendance,
    busy_poll: BusyPoll,
    others: Others,
    coalescing: Coalescing,
    begun: Instant,
    /// Whether this thread's short sleeps are as short as the system can make them.
    is_punctual: bool,
}

impl<'a> Attendant<'a> {
    pub(crate) fn begin(attendance: &'a Attendance) -> Attendant<'a> {
        attendance.awake.fetch_add(1, Ordering::Relaxed);
        let (busy_poll, others, coalescing) = (BusyPoll::default(), Others::default(), Coalescing::default());
        Attendant { attendance, busy_poll, others, coalescing, begun: Instant::now(), is_punctual: false }
    }

    /// Lets requests gather for a moment, if this client is served more quickly so. `answered` of them were since the last time.
    pub(crate) fn gather(&mut self, answered: u32) {
        if let Some(pause) = self.coalescing.pause(answered, self.begun.elapsed()) {
            if !self.is_punctual {
                // By default a sleep ends up to 50 us late. Where that cannot be changed, trials show whether it is worth it.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                self.is_punctual = true;
            }
            self.rest(|| thread::sleep(pause));
        }
    }

    /// Waits for what `look` finds, which is asked again and again as long as that is worth it.
    ///
    /// # Errors
    /// It has to be slept for, and how long is [`Vain::ended`].
    pub(crate) fn watch<T>(&self, mut look: impl FnMut() -> Option<T>) -> Result<(T, Arrival), Vain> {
        let begun = Instant::now();
        if !self.may_watch() {
            return Err(Vain { begun, watched: false });
        }
        let mut arrival = Arrival::AtOnce;
        loop {
            if let Some(found) = look() {
                return Ok((found, arrival));
            }
            if begun.elapsed() >= BUSY_POLL_MAX || !self.may_watch() {
                return Err(Vain { begun, watched: true });
            }
            arrival = Arrival::Polled;
            hint::spin_loop();
        }
    }

    fn may_watch(&self) -> bool {
        let (awake, cores) = (self.attendance.awake.load(Ordering::Relaxed), self.attendance.cores);
        let lately = usize::try_from(self.others.lately()).unwrap_or(usize::MAX);
        self.busy_poll.wait(Company { awake: awake.max(lately.saturating_add(1)), cores }) == Wait::Poll
    }

    /// Does what may sleep.
    pub(crate) fn rest<T>(&self, work: impl FnOnce() -> T) -> T {
        self.attendance.awake.fetch_sub(1, Ordering::Relaxed);
        let found = work();
        self.attendance.awake.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// The next request came, in this way. Parts of one request follow each other at once, and tell nothing.
    pub(crate) fn learn(&mut self, arrival: Arrival) {
        self.busy_poll.learn(arrival);
        self.others.learn(self.attendance.served.fetch_add(1, Ordering::Relaxed) + 1);
    }
}

impl Drop for Attendant<'_> {
    fn drop(&mut self) {
        self.attendance.awake.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A wait that watching did not end.
pub(crate) struct Vain {
    begun: Instant,
    watched: bool,
}

impl Vain {
    /// What was slept for is there.
    pub(crate) fn ended(self) -> Arrival {
        if self.watched { Arrival::Missed } else { Arrival::Slept(self.begun.elapsed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::current_timer_slack;
    use std::time::Duration;

    /// On two cores.
    fn attendance() -> Attendance {
        Attendance { awake: AtomicUsize::new(0), served: AtomicU64::new(0), cores: 2 }
    }

    fn quick(attendance: &Attendance) -> Attendant<'_> {
        let mut attendant = Attendant::begin(attendance);
        (0..2).for_each(|_| attendant.learn(Arrival::Slept(Duration::from_micros(30))));
        attendant
    }

    #[test]
    fn a_quick_client_is_looked_for_until_it_is_there() {
        let attendance = attendance();
        let attendant = quick(&attendance);
        let at_once = attendant.watch(|| Some("here"));
        assert!(matches!(at_once, Ok(("here", Arrival::AtOnce))));
        // A machine under load may give the core away for longer than is watched.
        let seen = (0..1000).any(|_| {
            let mut looks = 0;
            let second_time = || {
                looks += 1;
                (looks == 2).then_some("here")
            };
            matches!(attendant.watch(second_time), Ok(("here", Arrival::Polled)))
        });
        assert!(seen);
    }

    #[test]
    fn it_is_looked_for_no_longer_than_a_moment() {
        let attendance = attendance();
        let attendant = quick(&attendance);
        let begun = Instant::now();
        let vain = attendant.watch(|| None::<()>).err().unwrap();
        assert!(begun.elapsed() >= BUSY_POLL_MAX);
        assert_eq!(vain.ended(), Arrival::Missed);
    }

    #[test]
    fn requests_of_a_quick_client_are_let_gather_now_and_then() {
        let attendance = attendance();
        let mut attendant = Attendant::begin(&attendance);
        let calls = (0..100_000).take_while(|_| {
            attendant.gather(8);
            !attendant.is_punctual
        });
        let before_a_trial = calls.count();
        assert!((192..100_000).contains(&before_a_trial), "{before_a_trial} calls before the first trial");
        assert_eq!(current_timer_slack().unwrap(), 1);
        assert_eq!(attendance.awake.load(Ordering::Relaxed), 1, "it rests no longer");
    }

    #[test]
    fn nobody_looks_for_a_new_client_or_in_company() {
        let attendance = attendance();
        let unlooked = || -> Option<()> { panic!("nobody should look") };
        let vain = Attendant::begin(&attendance).watch(unlooked).err().unwrap();
        assert!(matches!(vain.ended(), Arrival::Slept(_)));
        let attendant = quick(&attendance);
        let another = Attendant::begin(&attendance);
        assert!(attendant.watch(unlooked).is_err(), "another is awake");
        another.rest(|| assert!(attendant.watch(|| Some(())).is_ok(), "the other rests"));
        assert!(attendant.watch(unlooked).is_err(), "it is awake again");
        drop(another);
        attendance.served.fetch_add(1, Ordering::Relaxed);
        let mut attendant = attendant;
        attendant.learn(Arrival::AtOnce);
        assert!(attendant.watch(unlooked).is_err(), "another was served a moment ago");
        (0..16).for_each(|_| attendant.learn(Arrival::AtOnce));
        assert!(attendant.watch(|| Some(())).is_ok(), "it is gone");
    }
}
