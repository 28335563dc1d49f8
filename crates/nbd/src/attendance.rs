//! How many connections are awake, and how each waits for its client: watching for a moment, or asleep at once.

use std::hint;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tidegate_policy::attention::{Arrival, Attention, Company, Others, WATCH_MAX, Wait};

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
    attention: Attention,
    others: Others,
}

impl<'a> Attendant<'a> {
    pub(crate) fn begin(attendance: &'a Attendance) -> Attendant<'a> {
        attendance.awake.fetch_add(1, Ordering::Relaxed);
        Attendant { attendance, attention: Attention::default(), others: Others::default() }
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
            if begun.elapsed() >= WATCH_MAX || !self.may_watch() {
                return Err(Vain { begun, watched: true });
            }
            arrival = Arrival::Watched;
            hint::spin_loop();
        }
    }

    fn may_watch(&self) -> bool {
        let (awake, cores) = (self.attendance.awake.load(Ordering::Relaxed), self.attendance.cores);
        let lately = usize::try_from(self.others.lately()).unwrap_or(usize::MAX);
        self.attention.wait(Company { awake: awake.max(lately.saturating_add(1)), cores }) == Wait::Watch
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
        self.attention.learn(arrival);
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
            matches!(attendant.watch(second_time), Ok(("here", Arrival::Watched)))
        });
        assert!(seen);
    }

    #[test]
    fn it_is_looked_for_no_longer_than_a_moment() {
        let attendance = attendance();
        let attendant = quick(&attendance);
        let begun = Instant::now();
        let vain = attendant.watch(|| None::<()>).err().unwrap();
        assert!(begun.elapsed() >= WATCH_MAX);
        assert_eq!(vain.ended(), Arrival::Missed);
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
