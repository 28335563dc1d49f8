//! The threads that answer requests, each of them one request at a time.
//!
//! A server that takes the place of one that died first answers, on one thread, what that one left
//! unanswered: the kernel sends those requests again, before all others. Meanwhile the records of
//! the dead server stay as they are. Then all threads begin.

use crate::device::{Device, DeviceError, Received, ReplyBuffer, RequestBuffer};
use crate::reply_cache::{ReplyCache, Slot, WORKERS_MAX};
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::thread;
use tidegate_fuse::{Attempt, Features, Left, Malformed, Operation, Reply, ReplyRecord, Request, Session};

/// What answers requests.
pub trait Answers: Sync {
    /// Answers a request. The reply's data, if it has any, lie in `buffer`, which takes 1 MiB. An
    /// operation that is not supported gets `ENOSYS`; the kernel may then never send it again.
    fn answer<'b>(&self, request: &Request<'_>, attempt: Attempt, buffer: &'b mut [u8]) -> Reply<'b>;

    /// Returns a number from which the next server can see whether a request was done, such as the
    /// inode that the request's name has before. Asked for requests that are recorded.
    fn witness(&self, request: &Request<'_>) -> u64;
}

/// A mount, and how its requests are answered.
#[derive(Debug)]
pub struct Serving<'a> {
    /// Where requests come from.
    pub device: &'a Device,
    /// What the kernel agreed on.
    pub session: Session,
    /// Where replies survive this process; None: nowhere.
    pub replies: Option<&'a ReplyCache>,
    /// How many requests are answered at once, at most 64.
    pub threads: NonZeroUsize,
}

/// Answers requests until the file system is unmounted. The first failure of a thread is returned
/// when all threads have ended.
pub fn serve(serving: &Serving<'_>, service: &impl Answers) -> Result<(), DeviceError> {
    let Serving { device, session, replies, threads } = *serving;
    let worker = Worker { device, features: session.features, replies, service };
    if let Some(replies) = replies {
        worker.answer_resent(replies)?;
    }
    let worker = &worker;
    thread::scope(|scope| {
        // If there cannot be as many threads, there are fewer.
        let spawn = |index| thread::Builder::new().spawn_scoped(scope, move || worker.work(index)).ok();
        let started: Vec<_> = (1..threads.get().min(WORKERS_MAX)).filter_map(spawn).collect();
        let own = worker.work(0);
        let others = started.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
        others.fold(own, Result::and)
    })
}

/// What all threads share.
struct Worker<'a, S> {
    device: &'a Device,
    features: Features,
    replies: Option<&'a ReplyCache>,
    service: &'a S,
}

/// Whether the kernel sent a request of the dead server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// It did, or one that overtakes all others.
    BeforeFresh,
    /// It did not: all of the dead server's were sent.
    Fresh,
}

impl<S: Answers> Worker<'_, S> {
    /// Answers requests, one after the other.
    fn work(&self, index: usize) -> Result<(), DeviceError> {
        let (mut request, mut data) = (RequestBuffer::new(), ReplyBuffer::new());
        while let Received::Request(message) = self.device.receive(&mut request)? {
            self.answer(message, Slot::Worker(index), data.bytes())?;
        }
        Ok(())
    }

    /// Answers all requests that a dead server left, and at most one more.
    fn answer_resent(&self, replies: &ReplyCache) -> Result<(), DeviceError> {
        let (mut request, mut data) = (RequestBuffer::new(), ReplyBuffer::new());
        let mut slots = (0..).map(Slot::Resent);
        while self.device.is_readable()? {
            let Received::Request(message) = self.device.receive(&mut request)? else { break };
            let slot = slots.next().unwrap_or(Slot::Resent(0));
            if self.answer(message, slot, data.bytes())? == Order::Fresh {
                break;
            }
        }
        replies.all_answered().map_err(DeviceError::of_records)
    }

    fn answer(&self, message: &[u8], slot: Slot, buffer: &mut [u8]) -> Result<Order, DeviceError> {
        let request = match Request::parse(message, self.features) {
            Ok(request) => request,
            Err(malformed) => return self.refuse(&malformed),
        };
        let unique = request.header.unique;
        let reply = match self.replies.filter(|_| request.operation.is_recorded()) {
            Some(replies) => self.recorded(&request, replies, slot, buffer),
            None => self.service.answer(&request, Attempt::First, buffer),
        };
        self.device.reply(unique, reply)?;
        let overtakes = matches!(
            request.operation,
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt { .. }
        );
        Ok(if unique.is_resent() || overtakes { Order::BeforeFresh } else { Order::Fresh })
    }

    /// Answers a request that may not be carried out twice. If it cannot be recorded, it is not
    /// carried out.
    fn recorded<'b>(&self, request: &Request<'_>, replies: &ReplyCache, slot: Slot, buffer: &'b mut [u8]) -> Reply<'b> {
        let unique = request.header.unique;
        let attempt = match replies.left(unique).filter(|_| unique.is_resent()) {
            Some(Left::Answered(reply)) => return reply,
            Some(Left::Begun { witness }) => Attempt::InDoubt { witness },
            None => Attempt::First,
        };
        let witness = match attempt {
            Attempt::First => self.service.witness(request),
            Attempt::InDoubt { witness } => witness,
        };
        if let Err(error) = replies.store(slot, &ReplyRecord::begun(unique, witness)) {
            tracing::error!("a request was refused, as it cannot be recorded: {error}");
            return Reply::error(Errno::IO.raw_os_error());
        }
        let reply = self.service.answer(request, attempt, buffer);
        // Without this record, the next server looks whether the request was done.
        if let Some(record) = ReplyRecord::answered(unique, &reply) {
            let _ = replies.store(slot, &record);
        }
        reply
    }

    fn refuse(&self, malformed: &Malformed) -> Result<Order, DeviceError> {
        tracing::error!("{malformed}; its program gets EIO");
        let unique = malformed.unique.ok_or(DeviceError::Read(Errno::PROTO))?;
        self.device.reply(unique, Reply::error(Errno::IO.raw_os_error()))?;
        Ok(Order::Fresh)
    }
}
