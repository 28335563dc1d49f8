//! A queue at work: a thread takes requests out of the ring that the guest fills, carries them out
//! one after the other, and puts them into the ring of answers.
//!
//! Requests are answered in the order in which they were made available. So the number of answers,
//! which lies in the guest's memory, also tells which request comes next: a server that was killed
//! leaves nothing else to be known, and the next one goes on there. The request that was under way
//! is carried out once more, which changes nothing: its driver has no answer to it yet.

use crate::chain::RequestChain;
use crate::failure::{BrokenQueue, Refusal};
use crate::memory::Mapped;
use crate::requests::{Executor, Request, Unanswerable};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_block_export::{PollBudget, Poller, WaitingAnswers};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemoryMmap};

/// What the monitor said of a queue. Addresses are the guest's.
#[derive(Clone, Default)]
pub(crate) struct RingSettings {
    /// Descriptors; 0: it did not say.
    pub(crate) size: u16,
    pub(crate) rings: Option<Rings>,
    /// Becomes readable when the guest has made requests available.
    pub(crate) kick: Option<Arc<OwnedFd>>,
    /// Tells the guest of answers.
    pub(crate) call: Option<Arc<OwnedFd>>,
    /// Tells the monitor that the guest broke the queue.
    pub(crate) broken: Option<Arc<OwnedFd>>,
    pub(crate) with_event_index: bool,
}

/// Where the parts of a queue lie.
#[derive(Clone, Copy)]
pub(crate) struct Rings {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

impl RingSettings {
    /// A copy of them, if the monitor has said all that a queue needs.
    pub(crate) fn complete(&self) -> Option<RingSettings> {
        let is_complete = self.size > 0 && self.rings.is_some() && self.kick.is_some();
        is_complete.then(|| self.clone())
    }
}

/// By which a queue's thread is asked to end.
pub(crate) struct Stop {
    asked: AtomicBool,
    wake: OwnedFd,
}

impl Stop {
    fn new() -> io::Result<Stop> {
        Ok(Stop { asked: AtomicBool::new(false), wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Asks for the end. A request under way is finished and answered.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        signal(&self.wake);
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

/// Makes an eventfd readable. One that is full is readable already.
fn signal(eventfd: &OwnedFd) {
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}

/// A queue that is about to work.
pub(crate) struct Ring<'e> {
    rings: GuestRings,
    memory: Mapped,
    executor: Executor<'e>,
    poll_budget: &'e PollBudget,
    stop: Arc<Stop>,
    waiting: OwnedFd,
    chain: RequestChain,
}

/// The rings in the guest's memory, and the means to tell of them.
struct GuestRings {
    queue: Queue,
    settings: RingSettings,
    /// Answers that the guest was not told of.
    untold: WaitingAnswers,
}

impl<'e> Ring<'e> {
    /// Queue `number`, if its rings lie in `memory`.
    pub(crate) fn prepare(
        number: usize,
        settings: RingSettings,
        memory: Mapped,
        executor: Executor<'e>,
        poll_budget: &'e PollBudget,
    ) -> Result<Ring<'e>, Refusal> {
        let mut queue = queue(&settings).ok_or(Refusal::Rings { number })?;
        if !queue.is_valid(&*memory) {
            return Err(Refusal::Rings { number });
        }
        let answered = queue.used_idx(&*memory, Ordering::Acquire).map_err(|_| Refusal::Rings { number })?.0;
        queue.set_next_used(answered);
        queue.set_next_avail(answered);
        let system = |what| move |error: io::Error| Refusal::System { what, error };
        let stop = Arc::new(Stop::new().map_err(system("an eventfd"))?);
        let waiting = waiting_for(&settings, &stop).map_err(|errno| system("waiting for a queue")(errno.into()))?;
        let rings = GuestRings { queue, settings, untold: WaitingAnswers::default() };
        Ok(Ring { rings, memory, executor, poll_budget, stop, waiting, chain: RequestChain::default() })
    }

    /// By which it is asked to end.
    pub(crate) fn stop(&self) -> Arc<Stop> {
        Arc::clone(&self.stop)
    }

    /// Serves the guest until it is asked to end, or the guest breaks the queue. The position of
    /// the request that comes next.
    pub(crate) fn run(mut self) -> (u16, Result<(), BrokenQueue>) {
        // The queue's last thread, or that of a server that was killed, may have left answers that
        // it did not tell; and the guest may be waiting for those alone.
        self.rings.call();
        let end = self.serve();
        if end.is_err() {
            self.rings.settings.broken.iter().for_each(|eventfd| signal(eventfd));
        }
        (self.rings.queue.next_used(), end)
    }

    fn serve(&mut self) -> Result<(), BrokenQueue> {
        let mut poller = Poller::begin(self.poll_budget);
        loop {
            self.serve_available()?;
            if self.stop.is_asked() {
                return Ok(());
            }
            let arrival =
                match poller.poll(|| (self.stop.is_asked() || self.rings.has_more(&self.memory)).then_some(())) {
                    Ok(((), arrival)) => arrival,
                    Err(vain) => {
                        self.sleep(&poller)?;
                        vain.ended()
                    }
                };
            poller.learn(arrival);
            self.executor.wake();
        }
    }

    /// Waits for the guest, who is asked to tell of its next request.
    fn sleep(&mut self, poller: &Poller<'_>) -> Result<(), BrokenQueue> {
        let queue = &mut self.rings.queue;
        let is_late = queue.enable_notification(&*self.memory).map_err(damaged)?;
        if !is_late {
            poller.rest(|| {
                let mut events = Vec::with_capacity(2);
                // After a signal the rings are looked at, and that is all.
                let _: Result<usize, Errno> =
                    epoll::wait(&self.waiting, rustix::buffer::spare_capacity(&mut events), None);
            });
        }
        queue.disable_notification(&*self.memory).map_err(damaged)
    }

    fn serve_available(&mut self) -> Result<(), BrokenQueue> {
        let end = loop {
            if self.stop.is_asked() {
                break Ok(());
            }
            match self.serve_one() {
                Ok(true) => {}
                end => break end.map(|_| ()),
            }
            if self.rings.untold.is_due(self.executor.now()) {
                self.rings.tell(&self.memory)?;
            }
        };
        self.rings.tell(&self.memory)?;
        end
    }

    /// Takes a request, carries it out and answers it. False: there is none, or it was left to
    /// whoever serves the queue next.
    fn serve_one(&mut self) -> Result<bool, BrokenQueue> {
        let memory = &*self.memory;
        let Some(head) = self.rings.take(memory, &mut self.chain)? else { return Ok(false) };
        let broken = |why| match why {
            Unanswerable::Chain => BrokenQueue::Chain { head },
            Unanswerable::Address => BrokenQueue::NoPlaceForAnswer { head },
        };
        let request = Request::read(&self.chain, memory).map_err(broken)?;
        if self.executor.may_last(&request) {
            self.rings.tell(memory)?;
        }
        let Some(written) = self.executor.answer(&request, || self.stop.is_asked()).map_err(broken)? else {
            self.rings.queue.go_to_previous_position();
            return Ok(false);
        };
        self.rings.queue.add_used(memory, head, written).map_err(damaged)?;
        self.rings.untold.add(request.data_bytes(), self.executor.now());
        Ok(true)
    }
}

impl GuestRings {
    fn has_more(&self, memory: &GuestMemoryMmap) -> bool {
        let available = self.queue.avail_idx(memory, Ordering::Acquire);
        // A ring that cannot be read is found out by whoever takes a request out of it.
        available.map_or(true, |index| index.0 != self.queue.next_avail())
    }

    /// Takes the next request into `chain`; the number of its first descriptor. None: there is
    /// none.
    fn take(&mut self, memory: &GuestMemoryMmap, chain: &mut RequestChain) -> Result<Option<u16>, BrokenQueue> {
        let Some(descriptors) = self.queue.iter(memory).map_err(damaged)?.next() else { return Ok(None) };
        let head = descriptors.head_index();
        if chain.collect(descriptors) { Ok(Some(head)) } else { Err(BrokenQueue::Chain { head }) }
    }

    /// Tells the guest of answers, if there are some and it wants to be told.
    fn tell(&mut self, memory: &GuestMemoryMmap) -> Result<(), BrokenQueue> {
        if self.untold.take() && self.queue.needs_notification(memory).map_err(damaged)? {
            self.call();
        }
        Ok(())
    }

    fn call(&self) {
        self.settings.call.iter().for_each(|eventfd| signal(eventfd));
    }
}

fn damaged(error: virtio_queue::Error) -> BrokenQueue {
    BrokenQueue::Ring(error.to_string())
}

/// The rings as `settings` place them, if they are aligned.
fn queue(settings: &RingSettings) -> Option<Queue> {
    let (mut queue, rings) = (Queue::new(settings.size).ok()?, settings.rings?);
    queue.try_set_desc_table_address(GuestAddress(rings.descriptors)).ok()?;
    queue.try_set_avail_ring_address(GuestAddress(rings.available)).ok()?;
    queue.try_set_used_ring_address(GuestAddress(rings.used)).ok()?;
    queue.set_event_idx(settings.with_event_index);
    queue.set_ready(true);
    Some(queue)
}

/// A descriptor that is readable once the guest or whoever ends the queue says so. The edges are
/// waited for: no eventfd has to be read.
fn waiting_for(settings: &RingSettings, stop: &Stop) -> Result<OwnedFd, Errno> {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&waiting, &stop.wake, epoll::EventData::new_u64(0), edge)?;
    if let Some(kick) = &settings.kick {
        epoll::add(&waiting, kick, epoll::EventData::new_u64(1), edge)?;
    }
    Ok(waiting)
}
