//! Requests that may take long, executed beside the others of their connection.
//!
//! The connection's own thread puts them here; a second thread, which lives only while there are some, executes them in
//! order and sends each reply when it is ready. Both send whole replies, one after the other.

use crate::buffers::Output;
use crate::execution::Executor;
use crate::limits::{ASIDE_BYTES_MAX, ASIDE_JOBS_MAX, ASIDE_THREADS_MAX};
use crate::stream::Stream;
use crate::transmission::Job;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{Builder, Scope};
use std::time::Duration;

/// How long the second thread waits for more before it ends: longer than the pauses in a steady load of flushes.
const LINGER: Duration = Duration::from_secs(1);

/// The second thread's stack.
const STACK_BYTES: usize = 256 << 10;

/// The second threads of this process. Relaxed everywhere: only the number is read.
static SEATS: Seats = Seats { taken: AtomicUsize::new(0), max: ASIDE_THREADS_MAX };

/// Room for a number of threads.
struct Seats {
    taken: AtomicUsize,
    max: usize,
}

/// Room for one, given back when dropped.
struct Seat<'a>(&'a Seats);

impl Seats {
    fn take(&self) -> Option<Seat<'_>> {
        let one_more = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Seat(self))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that two threads send to, and the jobs that wait for the second one.
pub(crate) struct Link<'s, S> {
    pub(crate) stream: &'s S,
    sending: Mutex<Voice>,
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

/// The right to send, kept from one piece of a reply to the next if nothing else may be sent in between.
#[derive(Default)]
pub(crate) struct Turn<'l>(Option<MutexGuard<'l, Voice>>);

/// Whether what is sent would be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Voice {
    #[default]
    Heard,
    /// A reply ended before its end: the client would take whatever follows for the rest.
    Silenced,
}

impl Turn<'_> {
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Gives the turn back for good: nothing more is sent.
    pub(crate) fn silence(&mut self) {
        if let Some(mut voice) = self.0.take() {
            *voice = Voice::Silenced;
        }
    }
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    bytes: usize,
    /// Whether the second thread is there.
    attended: bool,
    /// Whether it is to end as soon as there are none.
    closed: bool,
    /// Why it could not send a reply.
    failed: Option<io::Error>,
}

impl<'s, S: Stream> Link<'s, S> {
    pub(crate) fn over(stream: &'s S) -> Link<'s, S> {
        Link { stream, sending: Mutex::default(), jobs: Mutex::default(), changed: Condvar::new() }
    }

    /// Sends gathered replies.
    fn send(&self, out: &mut Output) -> io::Result<()> {
        let voice = self.sending.lock().expect(HOLDER_PANICKED);
        match *voice {
            Voice::Heard => out.send_to(self.stream),
            Voice::Silenced => {
                out.take();
                Ok(())
            }
        }
    }

    /// Sends gathered replies, as the one whose turn it is or becomes. It remains so if the last reply goes on.
    pub(crate) fn send_in_turn<'l>(&'l self, out: &mut Output, turn: &mut Turn<'l>, goes_on: bool) -> io::Result<()> {
        if out.len() > 0 {
            let held = turn.0.take().unwrap_or_else(|| self.sending.lock().expect(HOLDER_PANICKED));
            out.send_to(self.stream)?;
            turn.0 = goes_on.then_some(held);
        }
        Ok(())
    }

    /// Takes over a job, or gives it back if there are too many or nobody to do it.
    ///
    /// # Errors
    /// The reply to an earlier one could not be sent.
    pub(crate) fn take_over<'scope, 'e: 'scope>(
        &'scope self,
        job: Job,
        executor: &Executor<'e>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Result<(), Job>> {
        let mut jobs = self.jobs();
        if let Some(error) = jobs.failed.take() {
            return Err(error);
        }
        if jobs.waiting.len() >= ASIDE_JOBS_MAX || jobs.bytes + job.bytes() > ASIDE_BYTES_MAX {
            return Ok(Err(job));
        }
        if !jobs.attended {
            let Some(seat) = SEATS.take() else { return Ok(Err(job)) };
            let executor = executor.another();
            let thread = Builder::new().stack_size(STACK_BYTES).name("client, aside".to_owned());
            if thread.spawn_scoped(scope, move || self.attend(executor, seat)).is_err() {
                return Ok(Err(job));
            }
            jobs.attended = true;
        }
        jobs.bytes += job.bytes();
        jobs.waiting.push_back(job);
        drop(jobs);
        self.changed.notify_one();
        Ok(Ok(()))
    }

    /// No more jobs will come: those that wait are done, and the second thread ends.
    pub(crate) fn close(&self) {
        self.jobs().closed = true;
        self.changed.notify_one();
    }

    /// Does jobs until there are none, in the `seat` that was taken for it.
    fn attend(&self, mut executor: Executor<'_>, seat: Seat<'_>) {
        let mut out = Output::new();
        while let Some(job) = self.next() {
            let bytes = job.bytes();
            job.run(&mut executor, &mut out);
            let sent = self.send(&mut out);
            let mut jobs = self.jobs();
            jobs.bytes -= bytes;
            if let Err(error) = sent {
                jobs.failed = Some(error);
            }
        }
        drop(seat);
    }

    /// The next job, or none when the thread is to end.
    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            let (again, waited) = self
                .changed
                .wait_timeout_while(jobs, LINGER, |jobs| jobs.waiting.is_empty() && !jobs.closed)
                .expect(HOLDER_PANICKED);
            jobs = again;
            if jobs.waiting.is_empty() && (waited.timed_out() || jobs.closed) {
                jobs.attended = false;
                return None;
            }
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().expect(HOLDER_PANICKED)
    }
}

const HOLDER_PANICKED: &str = "nothing that holds this lock panics";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_as_many_as_there_are_and_are_given_back() {
        let seats = Seats { taken: AtomicUsize::new(0), max: 2 };
        let (one, another) = (seats.take(), seats.take());
        assert!(one.is_some() && another.is_some() && seats.take().is_none());
        drop(one);
        assert!(seats.take().is_some());
    }
}
