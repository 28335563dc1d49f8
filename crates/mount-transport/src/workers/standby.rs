//! Which workers wait for requests: one, and more of them only while requests would wait for it.
//!
//! The kernel gives a request to the worker that has waited longest. With several of them, the
//! requests of one client wake them in turn on different cores, which costs more than the request.
//! So one worker waits, and the others *stand by* outside of the kernel. A clock looks at the
//! workers every millisecond. If a request waits and no worker does, one more worker joins:
//!
//! * if all have been busy with the same requests since the clock's last look, as with a disk;
//! * if all are busy look after look, and less than half of the cores have a worker.
//!
//! While long requests of one program would keep those of another one waiting, two workers wait, or
//! one if the others answer ([`senders`](super::senders)).
//!
//! A worker that has answered, while another one waits, stands by again. If no request came for a
//! while, the clock sleeps until the next one.

use super::idle_cores::IdleCores;
use super::senders::{Length, Senders};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tidegate_policy::polling::busy_poll::Company;

/// How often the clock looks.
const TICK: Duration = Duration::from_millis(1);
/// After how many looks without a new request the clock sleeps.
const IDLE_TICKS: u32 = 50;
/// After how many looks at which all workers are busy with new requests one more joins.
const BUSY_TICKS: u32 = 20;

/// The workers of a mount.
#[derive(Debug)]
pub(crate) struct Standby {
    workers: Mutex<Workers>,
    ticking: Condvar,
    /// Those that workers may run on.
    cores: usize,
    /// Whether one of them is idle.
    has_idle_core: AtomicBool,
}

#[derive(Debug, Default)]
struct Workers {
    /// Those that wait for a request.
    waiting: usize,
    /// Those that answer one.
    busy: usize,
    /// Those that stand by, the last to do so at the end: it is called first, as its memory is
    /// warm.
    standing_by: Vec<Thread>,
    /// Those of them that are to join.
    called: usize,
    /// Requests that were received.
    received: u64,
    /// Looks of the clock.
    looks: u64,
    senders: Senders,
    clock_sleeps: bool,
    has_ended: bool,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerStep {
    /// It waits for a request.
    Receive,
    /// It leaves that to another one.
    StandBy,
    /// It ends.
    End,
}

/// What the clock saw, look after look.
#[derive(Debug)]
pub(crate) struct LastLook {
    received: u64,
    idle_ticks: u32,
    busy_ticks: u32,
    idle_cores: IdleCores,
}

impl Default for LastLook {
    fn default() -> LastLook {
        LastLook { received: 0, idle_ticks: 0, busy_ticks: 0, idle_cores: IdleCores::new() }
    }
}

impl Standby {
    pub(crate) fn new() -> Standby {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Standby { workers: Mutex::default(), ticking: Condvar::new(), cores, has_idle_core: AtomicBool::new(false) }
    }

    /// Whether there is a core for each worker that answers or would poll, and one for its client.
    pub(crate) fn has_room_to_poll(&self) -> bool {
        // Relaxed: a late answer makes one request slower.
        self.cores > 1 && self.has_idle_core.load(Ordering::Relaxed) && {
            let workers = self.workers();
            Company { awake: workers.waiting + workers.busy, cores: self.cores }.has_room()
        }
    }

    /// As if the clock had found an idle core.
    #[cfg(test)]
    pub(crate) fn found_idle_core(&self) {
        self.has_idle_core.store(true, Ordering::Relaxed);
    }

    /// Says that the first worker begins.
    pub(crate) fn begin(&self) -> WorkerStep {
        self.workers().waiting += 1;
        WorkerStep::Receive
    }

    /// Says that a worker that waited received a request of the thread `sender`.
    pub(crate) fn received(&self, sender: u32, length: Length) {
        let mut workers = self.workers();
        workers.waiting -= 1;
        workers.busy += 1;
        workers.received += 1;
        let looks = workers.looks;
        workers.senders.note(sender, length, looks);
        if workers.waiting + workers.called == 0 && workers.senders.are_in_each_others_way(looks) {
            workers.call();
        }
        if std::mem::take(&mut workers.clock_sleeps) {
            self.ticking.notify_one();
        }
    }

    /// Says that a worker answered its request.
    pub(crate) fn answered(&self) -> WorkerStep {
        let mut workers = self.workers();
        workers.busy -= 1;
        if workers.has_ended {
            return WorkerStep::End;
        }
        let most = if workers.senders.are_in_each_others_way(workers.looks) { 2 } else { 1 };
        if workers.waiting >= most {
            return WorkerStep::StandBy;
        }
        workers.waiting += 1;
        WorkerStep::Receive
    }

    /// Has a worker stand by until it is called, to wait for requests from then on, or to end.
    pub(crate) fn stand_by(&self) -> WorkerStep {
        let own = thread::current();
        let mut workers = self.workers();
        workers.standing_by.push(own.clone());
        loop {
            if workers.has_ended {
                return WorkerStep::End;
            }
            if workers.called > 0 {
                workers.called -= 1;
                workers.waiting += 1;
                workers.standing_by.retain(|thread| thread.id() != own.id());
                return WorkerStep::Receive;
            }
            drop(workers);
            thread::park();
            workers = self.workers();
        }
    }

    /// Ends all workers: those that answer, when they have.
    pub(crate) fn end(&self) {
        let mut workers = self.workers();
        workers.has_ended = true;
        workers.standing_by.iter().for_each(Thread::unpark);
        drop(workers);
        self.ticking.notify_all();
    }

    /// Calls one more worker, if one stands by.
    pub(crate) fn call(&self) {
        self.workers().call();
    }

    /// Has the clock wait until it is to look whether a request waits, as one more worker would
    /// join then. False: the workers end.
    pub(crate) fn tick(&self, seen: &mut LastLook) -> bool {
        let mut workers = self.workers();
        while !workers.has_ended {
            workers = self.next_look(workers, seen.idle_ticks >= IDLE_TICKS);
            workers.looks += 1;
            let now = Instant::now();
            if seen.idle_cores.is_due(now) {
                drop(workers);
                // No worker polls while it is measured.
                self.has_idle_core.store(seen.idle_cores.look(now), Ordering::Relaxed);
                workers = self.workers();
            }
            if seen.wants_worker(&workers, self.cores / 2) {
                return true;
            }
        }
        false
    }

    fn next_look<'a>(&self, mut workers: MutexGuard<'a, Workers>, is_idle: bool) -> MutexGuard<'a, Workers> {
        if is_idle && workers.busy == 0 {
            workers.clock_sleeps = true;
            let sleeps = |workers: &mut Workers| workers.clock_sleeps && !workers.has_ended;
            return self.ticking.wait_while(workers, sleeps).unwrap_or_else(PoisonError::into_inner);
        }
        let is_going = |workers: &mut Workers| !workers.has_ended;
        let waited = self.ticking.wait_timeout_while(workers, TICK, is_going);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workers {
    /// Has one more join: of those that stand by, or the next one that does.
    fn call(&mut self) {
        self.called = 1;
        if let Some(last) = self.standing_by.last() {
            last.unpark();
        }
    }
}

impl LastLook {
    /// Looks at the workers: whether one more should join if a request waits. With `busy_max` of
    /// them busy, another one would have to wait for a core.
    fn wants_worker(&mut self, workers: &Workers, busy_max: usize) -> bool {
        let is_same = self.received == workers.received;
        self.received = workers.received;
        self.idle_ticks = if is_same { self.idle_ticks.saturating_add(1) } else { 0 };
        if workers.waiting > 0 || workers.called > 0 || workers.busy == 0 {
            self.busy_ticks = 0;
            return false;
        }
        self.busy_ticks += 1;
        let is_crowded = self.busy_ticks >= BUSY_TICKS && workers.busy < busy_max;
        if is_crowded {
            self.busy_ticks = 0;
        }
        is_same || is_crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(seen: &mut LastLook, [waiting, busy]: [usize; 2], received: u64) -> bool {
        seen.wants_worker(&Workers { waiting, busy, received, ..Workers::default() }, 2)
    }

    #[test]
    fn a_worker_joins_if_the_others_are_busy_with_the_same_requests_since_the_last_look() {
        let mut seen = LastLook::default();
        assert!(!wants(&mut seen, [0, 1], 1), "a request began");
        assert!(wants(&mut seen, [0, 1], 1), "it goes on");
        assert!(!wants(&mut seen, [1, 1], 1), "another worker waits");
        assert!(!wants(&mut seen, [0, 2], 2), "another request began");
        assert!(wants(&mut seen, [0, 2], 2), "both go on");
    }

    #[test]
    fn a_worker_joins_if_half_of_the_cores_are_never_seen_waiting() {
        let busy = |workers: usize| {
            let mut seen = LastLook::default();
            (1..).take(BUSY_TICKS as usize).map(|received| wants(&mut seen, [0, workers], received)).last()
        };
        assert_eq!((busy(1), busy(2)), (Some(true), Some(false)));
        let mut seen = LastLook::default();
        assert!((1..u64::from(BUSY_TICKS) * 4).all(|at| !wants(&mut seen, [usize::from(at % 9 == 0), 1], at)));
    }

    #[test]
    fn one_worker_waits_and_the_next_one_stands_by_until_it_is_called() {
        let standby = Standby::new();
        assert_eq!(standby.begin(), WorkerStep::Receive);
        standby.received(1, Length::Short);
        standby.call();
        assert_eq!(standby.stand_by(), WorkerStep::Receive);
        assert_eq!(standby.answered(), WorkerStep::StandBy);
        standby.received(1, Length::Short);
        assert_eq!(standby.answered(), WorkerStep::Receive);
        standby.end();
        assert_eq!(standby.stand_by(), WorkerStep::End);
        standby.received(1, Length::Short);
        assert_eq!(standby.answered(), WorkerStep::End);
        assert!(!standby.tick(&mut LastLook::default()));
    }

    #[test]
    fn a_long_request_has_another_worker_wait_if_two_programs_send() {
        let standby = Standby::new();
        standby.begin();
        standby.received(1, Length::Short);
        assert_eq!(standby.answered(), WorkerStep::Receive);
        standby.received(2, Length::Long);
        assert_eq!(standby.stand_by(), WorkerStep::Receive, "the second worker is called");
        assert_eq!(standby.answered(), WorkerStep::Receive, "two wait");
        standby.received(1, Length::Short);
        standby.call();
        assert_eq!(standby.stand_by(), WorkerStep::Receive);
        assert_eq!(standby.answered(), WorkerStep::StandBy);
    }
}
