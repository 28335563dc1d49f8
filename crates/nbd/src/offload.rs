//! Offload: requests that may take long are executed on a second thread, so that others overtake
//! them.
//!
//! The connection's own thread queues them here. The second thread lives only while there are some;
//! it executes them in order and sends each reply when it is ready. Both threads send whole
//! replies, one after the other.

use crate::buffers::Output;
use crate::execution::Executor;
use crate::limits::{OFFLOAD_THREADS_MAX, OFFLOADED_BYTES_MAX, OFFLOADED_REQUESTS_MAX};
use crate::stream::Stream;
use crate::transmission::Offloaded;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{Builder, Scope};
use std::time::Duration;

/// How long the second thread waits for more before it ends: longer than the pauses in a steady
/// load of flushes.
const LINGER: Duration = Duration::from_secs(1);

/// The second thread's stack.
const STACK_BYTES: usize = 256 << 10;

/// The second threads of this process. Relaxed everywhere: only the number is read.
static SEATS: Seats = Seats { taken: AtomicUsize::new(0), max: OFFLOAD_THREADS_MAX };

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

/// A stream that two threads send to, and the requests that wait for the second thread.
pub(crate) struct Link<'s, S> {
    pub(crate) stream: &'s S,
    sending: Mutex<Voice>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The right to send, kept from one piece of a reply to the next if nothing else may be sent in
/// between.
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
struct Queue {
    waiting: VecDeque<Offloaded>,
    bytes: usize,
    /// Whether the second thread is there.
    served: bool,
    /// Whether it is to end as soon as there are none.
    closed: bool,
    /// Why it could not send a reply.
    failed: Option<io::Error>,
}

impl<'s, S: Stream> Link<'s, S> {
    pub(crate) fn over(stream: &'s S) -> Link<'s, S> {
        Link { stream, sending: Mutex::default(), queue: Mutex::default(), changed: Condvar::new() }
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

    /// Sends gathered replies, as the one whose turn it is or becomes. It remains so if the last
    /// reply goes on.
    pub(crate) fn send_in_turn<'l>(&'l self, out: &mut Output, turn: &mut Turn<'l>, goes_on: bool) -> io::Result<()> {
        if out.len() > 0 {
            let held = turn.0.take().unwrap_or_else(|| self.sending.lock().expect(HOLDER_PANICKED));
            out.send_to(self.stream)?;
            turn.0 = goes_on.then_some(held);
        }
        Ok(())
    }

    /// Queues a request for the second thread, or gives it back if there are too many or no thread
    /// to be had.
    ///
    /// # Errors
    /// The reply to an earlier one could not be sent.
    pub(crate) fn take_over<'scope, 'e: 'scope>(
        &'scope self,
        request: Offloaded,
        executor: &Executor<'e>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Result<(), Offloaded>> {
        let mut queue = self.queue();
        if let Some(error) = queue.failed.take() {
            return Err(error);
        }
        if queue.waiting.len() >= OFFLOADED_REQUESTS_MAX || queue.bytes + request.bytes() > OFFLOADED_BYTES_MAX {
            return Ok(Err(request));
        }
        if !queue.served {
            let Some(seat) = SEATS.take() else { return Ok(Err(request)) };
            let executor = executor.another();
            let thread = Builder::new().stack_size(STACK_BYTES).name("client, offload".to_owned());
            if thread.spawn_scoped(scope, move || self.execute(executor, seat)).is_err() {
                return Ok(Err(request));
            }
            queue.served = true;
        }
        queue.bytes += request.bytes();
        queue.waiting.push_back(request);
        drop(queue);
        self.changed.notify_one();
        Ok(Ok(()))
    }

    /// Ends the second thread once the queued requests are executed. No more may come.
    pub(crate) fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_one();
    }

    /// Executes requests until there are none, in the `seat` that was taken for it.
    fn execute(&self, mut executor: Executor<'_>, seat: Seat<'_>) {
        let mut out = Output::new();
        while let Some(request) = self.next() {
            let bytes = request.bytes();
            request.run(&mut executor, &mut out);
            let sent = self.send(&mut out);
            let mut queue = self.queue();
            queue.bytes -= bytes;
            if let Err(error) = sent {
                queue.failed = Some(error);
            }
        }
        drop(seat);
    }

    /// The next request, or none if the thread is to end.
    fn next(&self) -> Option<Offloaded> {
        let mut queue = self.queue();
        loop {
            if let Some(request) = queue.waiting.pop_front() {
                return Some(request);
            }
            let (again, waited) = self
                .changed
                .wait_timeout_while(queue, LINGER, |queue| queue.waiting.is_empty() && !queue.closed)
                .expect(HOLDER_PANICKED);
            queue = again;
            if queue.waiting.is_empty() && (waited.timed_out() || queue.closed) {
                queue.served = false;
                return None;
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect(HOLDER_PANICKED)
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
