//! Offload: requests that may take long are executed on a second thread, so that others overtake
//! them.
//!
//! The connection's own thread queues them here. The second thread lives only while there are some;
//! it executes them in order and sends each reply when it is ready. Both threads send whole
//! replies, one after the other.

use crate::buffers::Output;
use crate::limits::{OFFLOAD_THREADS_MAX, OFFLOADED_BYTES_MAX, OFFLOADED_REQUESTS_MAX};
use crate::stream::Stream;
use crate::transmission::OffloadedRequest;
use crate::transmission::execution::Executor;
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
static THREADS: ThreadLimit = ThreadLimit { running: AtomicUsize::new(0), max: OFFLOAD_THREADS_MAX };

/// A limit on the number of threads.
struct ThreadLimit {
    running: AtomicUsize,
    max: usize,
}

/// The right to run one thread, given back when dropped.
struct Permit<'a>(&'a ThreadLimit);

impl ThreadLimit {
    fn acquire(&self) -> Option<Permit<'_>> {
        let one_more = |running: usize| (running < self.max).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Permit(self))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that two threads send to, and the requests that wait for the second thread.
pub(crate) struct SharedStream<'s, S> {
    pub(crate) stream: &'s S,
    sending: Mutex<SendState>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The right to send, kept from one piece of a reply to the next if no other reply may be sent in
/// between.
#[derive(Default)]
pub(crate) struct Turn<'l>(Option<MutexGuard<'l, SendState>>);

/// Whether more may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SendState {
    #[default]
    Open,
    /// A reply was cut short: the client would take any bytes that follow for the rest of it.
    Stopped,
}

impl Turn<'_> {
    pub(crate) fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Gives the turn back for good: no more bytes are sent.
    pub(crate) fn stop_sending(&mut self) {
        if let Some(mut state) = self.0.take() {
            *state = SendState::Stopped;
        }
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<OffloadedRequest>,
    bytes: usize,
    /// Whether the second thread is there.
    served: bool,
    /// Whether it is to end as soon as there are none.
    closed: bool,
    /// Why it could not send a reply.
    failed: Option<io::Error>,
}

impl<'s, S: Stream> SharedStream<'s, S> {
    pub(crate) fn over(stream: &'s S) -> SharedStream<'s, S> {
        SharedStream { stream, sending: Mutex::default(), queue: Mutex::default(), changed: Condvar::new() }
    }

    /// Sends gathered replies.
    fn send(&self, out: &mut Output) -> io::Result<()> {
        let state = self.sending.lock().expect(HOLDER_PANICKED);
        match *state {
            SendState::Open => out.send_to(self.stream),
            SendState::Stopped => {
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
    pub(crate) fn enqueue<'scope, 'e: 'scope>(
        &'scope self,
        request: OffloadedRequest,
        executor: &Executor<'e>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Result<(), OffloadedRequest>> {
        let mut queue = self.queue();
        if let Some(error) = queue.failed.take() {
            return Err(error);
        }
        if queue.waiting.len() >= OFFLOADED_REQUESTS_MAX || queue.bytes + request.bytes() > OFFLOADED_BYTES_MAX {
            return Ok(Err(request));
        }
        if !queue.served {
            let Some(permit) = THREADS.acquire() else { return Ok(Err(request)) };
            let executor = executor.another();
            let thread = Builder::new().stack_size(STACK_BYTES).name("client, offload".to_owned());
            if thread.spawn_scoped(scope, move || self.execute(executor, permit)).is_err() {
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

    /// Executes requests until there are none, on the thread that `permit` allows.
    fn execute(&self, mut executor: Executor<'_>, permit: Permit<'_>) {
        let mut out = Output::new();
        while let Some(request) = self.next() {
            let bytes = request.bytes();
            request.run(&mut executor, &mut out);
            // Before the reply goes out: a client that has it may count on the room.
            self.queue().bytes -= bytes;
            if let Err(error) = self.send(&mut out) {
                self.queue().failed = Some(error);
            }
        }
        drop(permit);
    }

    /// The next request, or none if the thread is to end.
    fn next(&self) -> Option<OffloadedRequest> {
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
    fn permits_are_as_many_as_the_limit_and_are_given_back() {
        let limit = ThreadLimit { running: AtomicUsize::new(0), max: 2 };
        let (one, another) = (limit.acquire(), limit.acquire());
        assert!(one.is_some() && another.is_some() && limit.acquire().is_none());
        drop(one);
        assert!(limit.acquire().is_some());
    }
}
