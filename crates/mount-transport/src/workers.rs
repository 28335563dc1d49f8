//! The threads that answer requests, each of them one request at a time. How many of them wait for
//! requests is decided in [`standby`].
//!
//! A server that takes the place of one that died first answers, on one thread, what that one left
//! unanswered: the kernel sends those requests again, before all others. Meanwhile the records of
//! the dead server stay as they are. Then all threads begin.

mod busy_poll;
mod idle_cores;
mod senders;
mod standby;

use crate::device::{Device, DeviceError, Received, ReplyBuffer, RequestBuffer};
use crate::keep_alive::reply_cache::{ReplyCache, Slot, WORKERS_MAX};
use crate::workers::busy_poll::RequestWait;
use crate::workers::senders::Length;
use crate::workers::standby::{LastLook, Standby, WorkerStep};
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::thread;
use tidegate_fuse::{
    Attempt, Features, Former, Malformed, Notification, Operation, Reply, ReplyRecord, Request, Session,
};

/// What answers requests.
pub trait Answers: Sync {
    /// Answers a request. The reply's data, if it has any, lie in `buffer`, which takes 1 MiB. An
    /// operation that is not supported gets `ENOSYS`; the kernel may then never send it again.
    fn answer<'b>(&self, request: &Request<'_>, attempt: Attempt, buffer: &'b mut [u8]) -> Reply<'b>;

    /// Returns a number from which the next server can see whether a request was done, such as the
    /// inode that the request's name has before. Asked for requests that are recorded.
    fn witness(&self, request: &Request<'_>) -> u64;

    /// Notes that all requests which an earlier server left are answered.
    fn begin_fresh(&self);

    /// Notes that a reply was sent. The thread has no request to answer now, so it may send
    /// notifications that wait for other requests. Not called for what an earlier server left.
    fn answered(&self);
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
    /// Whether threads may poll for requests for a moment before they sleep.
    pub busy_poll: bool,
}

/// Answers requests until the file system is unmounted. The first failure of a thread is returned
/// when all threads have ended.
pub fn serve(serving: &Serving<'_>, service: &impl Answers) -> Result<(), DeviceError> {
    let Serving { device, session, replies, threads, busy_poll } = *serving;
    let worker = Worker { device, features: session.features, replies, service, standby: &Standby::new(), busy_poll };
    if let Some(replies) = replies {
        worker.answer_resent(replies)?;
    }
    let worker = &worker;
    thread::scope(|scope| {
        // If there cannot be as many threads, there are fewer; without a clock nobody calls them.
        let wanted = threads.get().min(WORKERS_MAX);
        let clock = || thread::Builder::new().spawn_scoped(scope, || worker.call_others());
        let most = if wanted > 1 && clock().is_ok() { wanted } else { 1 };
        let spawn = |index| thread::Builder::new().spawn_scoped(scope, move || worker.work(index)).ok();
        let started: Vec<_> = (1..most).filter_map(spawn).collect();
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
    standby: &'a Standby,
    busy_poll: bool,
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
    /// Answers requests, one after the other, until the mount or the device ends: for the first
    /// worker from now on, for the others when they are called.
    fn work(&self, index: usize) -> Result<(), DeviceError> {
        let first = if index == 0 { self.standby.begin() } else { self.standby.stand_by() };
        let worked = self.work_from(first, index);
        self.standby.end();
        worked
    }

    fn work_from(&self, first: WorkerStep, index: usize) -> Result<(), DeviceError> {
        // A worker that is never called needs none.
        let mut buffers = None;
        let (mut next, mut wait) = (first, RequestWait::new(self.busy_poll));
        loop {
            next = match next {
                WorkerStep::End => return Ok(()),
                WorkerStep::StandBy => self.standby.stand_by(),
                WorkerStep::Receive => {
                    let (request, data) = buffers.get_or_insert_with(|| (RequestBuffer::new(), ReplyBuffer::new()));
                    let received = wait.receive(self.device, self.standby, request)?;
                    let Received::Request(message) = received else { return Ok(()) };
                    let request = Request::parse(message, self.features);
                    let (sender, length) =
                        request.map_or((0, Length::Short), |sent| (sent.header.pid, Length::of(&sent)));
                    self.standby.received(sender, length);
                    self.answer(request, Slot::Worker(index), data.bytes())?;
                    self.service.answered();
                    self.standby.answered()
                }
            };
        }
    }

    /// Calls workers that stand by, whenever one more should answer.
    fn call_others(&self) {
        let mut seen = LastLook::default();
        while self.standby.tick(&mut seen) {
            // A device that failed is found out by those who read it.
            if self.device.is_readable().unwrap_or(false) {
                self.standby.call();
            }
        }
    }

    /// Answers all requests that a dead server left, and at most one more.
    fn answer_resent(&self, replies: &ReplyCache) -> Result<(), DeviceError> {
        let (mut request, mut data) = (RequestBuffer::new(), ReplyBuffer::new());
        let mut slots = (0..).map(Slot::Resent);
        while self.device.is_readable()? {
            let Received::Request(message) = self.device.receive(&mut request)? else { break };
            let slot = slots.next().unwrap_or(Slot::Resent(0));
            if self.answer(Request::parse(message, self.features), slot, data.bytes())? == Order::Fresh {
                break;
            }
        }
        replies.all_answered().map_err(DeviceError::of_records)?;
        self.service.begin_fresh();
        Ok(())
    }

    fn answer(
        &self,
        request: Result<Request<'_>, Malformed>,
        slot: Slot,
        buffer: &mut [u8],
    ) -> Result<Order, DeviceError> {
        let request = match request {
            Ok(request) => request,
            Err(malformed) => return self.refuse(&malformed),
        };
        let unique = request.header.unique;
        let reply = match self.replies.filter(|_| request.operation.is_recorded()) {
            Some(replies) => self.recorded(&request, replies, slot, buffer),
            None => self.service.answer(&request, Attempt::First, buffer),
        };
        if let Some(node) = reply.stale_attributes() {
            self.device.notify(&Notification::attributes_changed(node))?;
        }
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
            Some(Former::Answered(reply)) => return reply,
            Some(Former::Begun { witness }) => Attempt::InDoubt { witness },
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::sync::{Barrier, Mutex};
    use tidegate_fuse::Unique;

    /// The kernel's place, at the other end of a socket.
    struct Kernel(rustix::fd::OwnedFd);

    /// Mark of a request that is sent again.
    const AGAIN: u64 = 1 << 63;
    const MKDIR: u32 = 9;
    const STATFS: u32 = 17;

    impl Kernel {
        fn send(&self, opcode: u32, unique: u64) {
            let body: &[u8] = if opcode == MKDIR { b"\xed\x01\0\0\0\0\0\0name\0" } else { b"" };
            let len = u32::try_from(40 + body.len()).expect("a short request");
            let mut message = [len.to_ne_bytes(), opcode.to_ne_bytes()].concat();
            message.extend([unique.to_ne_bytes(), 1_u64.to_ne_bytes()].concat());
            message.extend([0; 16]);
            message.extend(body);
            rustix::io::write(&self.0, &message).expect("room");
        }

        /// Sends no more requests.
        fn end(&self) {
            rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write).expect("a socket");
        }

        /// The number, the error and the data of the next reply.
        fn reply(&self) -> (u64, i32, Vec<u8>) {
            let mut bytes = [0; 1000];
            let len = rustix::io::read(&self.0, &mut bytes).expect("a reply");
            let error = i32::from_ne_bytes(bytes[4..8].try_into().expect("four bytes"));
            let unique = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"));
            (unique, error, bytes[16..len].to_vec())
        }
    }

    /// Notes what it was asked.
    #[derive(Default)]
    struct Noting(Mutex<Vec<(u64, Attempt)>>);

    impl Answers for Noting {
        fn answer<'b>(&self, request: &Request<'_>, attempt: Attempt, _: &'b mut [u8]) -> Reply<'b> {
            self.0.lock().expect("no panic").push((request.header.unique.0, attempt));
            match request.operation {
                Operation::MkDir { .. } => Reply::offset(7),
                _ => Reply::error(Errno::NOSYS.raw_os_error()),
            }
        }

        fn witness(&self, _: &Request<'_>) -> u64 {
            5
        }

        fn begin_fresh(&self) {}

        fn answered(&self) {}
    }

    /// What a server was asked that had the requests of `send` and the records of `left`.
    fn served(
        memory: &rustix::fd::OwnedFd,
        left: &[(Slot, ReplyRecord)],
        send: impl Fn(&Kernel),
    ) -> (Kernel, Vec<(u64, Attempt)>) {
        let before = cache(memory);
        left.iter().for_each(|(slot, record)| before.store(*slot, record).expect("room"));
        let (kernel, device) = kernel_and_device();
        send(&kernel);
        kernel.end();
        let session = Session::from_words([45, 0]).expect("a session");
        let (replies, service) = (cache(memory), Noting::default());
        let serving =
            Serving { device: &device, session, replies: Some(&replies), threads: NonZeroUsize::MIN, busy_poll: true };
        serve(&serving, &service).expect("served");
        (kernel, service.0.into_inner().expect("no panic"))
    }

    fn kernel_and_device() -> (Kernel, Device) {
        let sockets = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (kernel, device) = sockets.expect("sockets");
        (Kernel(kernel), Device::from_descriptor(device))
    }

    fn cache(memory: &rustix::fd::OwnedFd) -> ReplyCache {
        ReplyCache::open(memory.try_clone().expect("a second descriptor")).expect("memory")
    }

    fn fresh_memory() -> rustix::fd::OwnedFd {
        ReplyCache::memory().expect("memory")
    }

    #[test]
    fn a_request_that_was_answered_gets_its_reply_again() {
        let answered = ReplyRecord::answered(Unique(1), &Reply::offset(9)).expect("short");
        let left = [(Slot::Worker(3), answered)];
        let (kernel, asked) = served(&fresh_memory(), &left, |kernel| kernel.send(MKDIR, AGAIN | 1));
        assert_eq!(kernel.reply(), (AGAIN | 1, 0, 9_u64.to_ne_bytes().to_vec()));
        assert_eq!(asked, []);
    }

    #[test]
    fn a_request_that_was_begun_is_in_doubt() {
        let left = [(Slot::Worker(3), ReplyRecord::begun(Unique(1), 99))];
        let (kernel, asked) = served(&fresh_memory(), &left, |kernel| kernel.send(MKDIR, AGAIN | 1));
        assert_eq!(kernel.reply(), (AGAIN | 1, 0, 7_u64.to_ne_bytes().to_vec()));
        assert_eq!(asked, [(AGAIN | 1, Attempt::InDoubt { witness: 99 })]);
    }

    #[test]
    fn a_request_that_was_not_begun_is_not_in_doubt() {
        let left = [(Slot::Worker(3), ReplyRecord::begun(Unique(2), 99))];
        let (_, asked) = served(&fresh_memory(), &left, |kernel| {
            kernel.send(MKDIR, AGAIN | 1);
            kernel.send(MKDIR, 2);
        });
        assert_eq!(asked, [(AGAIN | 1, Attempt::First), (2, Attempt::First)]);
    }

    #[test]
    fn a_server_leaves_its_witness_and_then_its_reply() {
        let memory = fresh_memory();
        served(&memory, &[], |kernel| kernel.send(MKDIR, 1));
        // One request was answered before the workers began, so its record is gone with the others.
        assert!(cache(&memory).left(Unique(1)).is_none());
        served(&memory, &[], |kernel| {
            kernel.send(STATFS, 2);
            kernel.send(MKDIR, 3);
        });
        assert!(matches!(cache(&memory).left(Unique(3)), Some(Former::Answered(_))));
        assert!(cache(&memory).left(Unique(2)).is_none());
    }

    #[test]
    fn a_second_death_loses_no_record_of_the_first() {
        let memory = fresh_memory();
        let left = [(Slot::Worker(0), ReplyRecord::begun(Unique(1), 99))];
        left.iter().for_each(|(slot, record)| cache(&memory).store(*slot, record).expect("room"));
        // The second server answers request 2 and dies before it comes to request 1.
        let answered = ReplyRecord::answered(Unique(2), &Reply::empty()).expect("short");
        cache(&memory).store(Slot::Resent(0), &answered).expect("room");
        let (_, asked) = served(&memory, &[], |kernel| {
            kernel.send(MKDIR, AGAIN | 1);
            kernel.send(MKDIR, AGAIN | 2);
        });
        assert_eq!(asked, [(AGAIN | 1, Attempt::InDoubt { witness: 99 })]);
    }

    /// Answers two requests when it has both.
    struct Together(Barrier);

    impl Answers for Together {
        fn answer<'b>(&self, _: &Request<'_>, _: Attempt, _: &'b mut [u8]) -> Reply<'b> {
            self.0.wait();
            Reply::empty()
        }

        fn witness(&self, _: &Request<'_>) -> u64 {
            0
        }

        fn begin_fresh(&self) {}

        fn answered(&self) {}
    }

    #[test]
    fn a_request_that_takes_long_keeps_no_other_one_waiting() {
        let (kernel, device) = kernel_and_device();
        let session = Session::from_words([45, 0]).expect("a session");
        let threads = NonZeroUsize::new(4).expect("not 0");
        kernel.send(STATFS, 1);
        kernel.send(STATFS, 2);
        kernel.end();
        let serving = Serving { device: &device, session, replies: None, threads, busy_poll: true };
        serve(&serving, &Together(Barrier::new(2))).expect("served");
        assert_eq!(kernel.reply().0 + kernel.reply().0, 3);
    }

    #[test]
    fn what_is_no_request_gets_an_error_and_the_next_one_its_answer() {
        let (kernel, _) = served(&fresh_memory(), &[], |kernel| {
            // LOOKUP without a name.
            kernel.send(1, 1);
            kernel.send(4000, 2);
        });
        assert_eq!(kernel.reply(), (1, -Errno::IO.raw_os_error(), vec![]));
        assert_eq!(kernel.reply(), (2, -Errno::NOSYS.raw_os_error(), vec![]));
    }
}
