//! A queue at work: its thread takes requests from the driver, carries them out one after the
//! other, and answers.
//!
//! Answers wait for each other and are handed over together, unless the next request may last, or
//! enough of them wait: one entry into the kernel carries all of them, and the wait for the next
//! requests.

use crate::kernel::{Event, QueueRing};
use crate::requests::{Checked, RequestExecutor};
use std::io;
use tidegate_block_export::{PollBudget, Poller, WaitingAnswers};

/// Why a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    /// The block device was taken away, by this server or another program.
    DeviceStopped,
    /// The server wants it to end; the device stays, and waits.
    StopAsked,
}

/// A queue whose requests are asked for.
pub(crate) struct ServedQueue<'q, 'd> {
    ring: QueueRing<'d>,
    executor: RequestExecutor<'q>,
    /// Tags at which requests may come.
    tags: u16,
    stop_asked: bool,
    waiting: WaitingAnswers,
}

impl<'q, 'd> ServedQueue<'q, 'd> {
    /// Asks for requests at all of the `depth` tags of `ring`.
    pub(crate) fn begin(
        mut ring: QueueRing<'d>,
        depth: u16,
        executor: RequestExecutor<'q>,
    ) -> io::Result<ServedQueue<'q, 'd>> {
        ring.fetch_all()?;
        Ok(ServedQueue { ring, executor, tags: depth, stop_asked: false, waiting: WaitingAnswers::default() })
    }

    /// Serves the kernel to the queue's end.
    pub(crate) fn run(mut self, poll_budget: &PollBudget) -> io::Result<QueueEnd> {
        let mut poller = Poller::begin(poll_budget);
        loop {
            while let Some(event) = self.ring.next_event() {
                self.take(event)?;
            }
            if self.tags == 0 || self.stop_asked {
                self.ring.submit()?;
                return Ok(if self.tags == 0 { QueueEnd::DeviceStopped } else { QueueEnd::StopAsked });
            }
            self.wait(&mut poller)?;
            self.executor.wake();
        }
    }

    /// Hands the answers over and waits for an event.
    fn wait(&mut self, poller: &mut Poller<'_>) -> io::Result<()> {
        self.waiting.take();
        let mut handed_over = None;
        let ring = &mut self.ring;
        let polled = poller.poll(|| {
            handed_over.get_or_insert_with(|| ring.submit());
            ring.has_events().then_some(())
        });
        handed_over.unwrap_or(Ok(()))?;
        let arrival = match polled {
            Ok(((), arrival)) => {
                // What the driver has for this thread becomes an event when the kernel is entered.
                self.ring.submit()?;
                arrival
            }
            Err(vain) => {
                poller.rest(|| self.ring.submit_and_wait())?;
                vain.ended()
            }
        };
        poller.learn(arrival);
        Ok(())
    }

    fn take(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Request(tag) => self.answer(tag),
            Event::TagEnded => {
                self.tags -= 1;
                Ok(())
            }
            Event::StopAsked => {
                self.stop_asked = true;
                Ok(())
            }
            Event::Broken(errno) => Err(errno.into()),
        }
    }

    fn answer(&mut self, tag: u16) -> io::Result<()> {
        let Some((descriptor, data)) = self.ring.request(tag) else { return Ok(()) };
        let checked = self.executor.check(&descriptor, data.len());
        let may_last = checked.as_ref().is_ok_and(|request| self.executor.may_last(request));
        if (may_last || self.waiting.is_due(self.executor.now())) && self.waiting.take() {
            self.ring.submit()?;
        }
        let moved = checked.as_ref().map_or(0, Checked::bytes);
        // The borrow of the data ended with the check: it is taken anew.
        let Some((_, data)) = self.ring.request(tag) else { return Ok(()) };
        let result = match checked {
            Ok(request) => self.executor.carry_out(&request, data),
            Err(errno) => {
                self.executor.reject();
                -errno.raw_os_error()
            }
        };
        self.waiting.add(moved, self.executor.now());
        self.ring.commit(tag, result)
    }
}
