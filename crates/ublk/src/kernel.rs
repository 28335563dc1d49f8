//! The crate's only unsafe code: memory that the kernel reads and writes, and the rings by which
//! it is asked to.
//!
//! Three laws, which the proofs cite:
//!
//! 1. **Records outlive their command.** A record of a command about a device lies in a heap
//!    allocation that is given back only after the kernel answered the command. If no answer came
//!    in time, it is never given back.
//! 2. **A tag has one owner.** The data buffer and the descriptor of a tag are the server's from
//!    the arrival of a request until [`QueueRing::commit`], and the driver's at all other times.
//!    `held` says which.
//! 3. **Buffers outlive their thread.** The driver copies data on the thread of the queue alone,
//!    and once that thread is about to exit, no more: [`QueueThread::join`] unmaps the buffers
//!    after the operating system reported the thread's end. A thread that is not joined keeps its
//!    buffers mapped for ever.

use crate::driver::{COMMIT_AND_FETCH, ControlCommand, Descriptor, FETCH, QueueCommand, descriptors_at};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::slice;
use std::thread::{self, Builder, Scope, ScopedJoinHandle};
use std::time::Duration;
use zerocopy::IntoBytes;

/// How long the kernel may take to answer a command about a device.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The file by which devices are made and removed, with a ring for its commands.
pub(crate) struct ControlRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    control: File,
    calls: u64,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The driver refused it.
    #[error("{}", io::Error::from(*.0))]
    Refused(Errno),
    /// The kernel did not answer.
    #[error("the kernel gave no answer for {} s", ANSWER_MAX.as_secs())]
    NoAnswer,
    /// The ring failed.
    #[error("io_uring: {0}")]
    Ring(io::Error),
}

impl ControlRing {
    /// A ring for the commands of `control`.
    pub(crate) fn new(control: File) -> io::Result<ControlRing> {
        Ok(ControlRing { ring: IoUring::builder().build(2)?, control, calls: 0 })
    }

    /// Has the driver carry out `command`, whose record is `record`, and waits for the end. The
    /// record as the driver left it.
    pub(crate) fn call(
        &mut self,
        number: u32,
        mut command: ControlCommand,
        record: Box<[u8]>,
    ) -> Result<Box<[u8]>, CommandError> {
        self.calls += 1;
        command.record_bytes = u16::try_from(record.len()).map_err(|_| CommandError::Refused(Errno::INVAL))?.into();
        let shared = NonNull::from(Box::leak(record));
        let record_at = if shared.is_empty() { 0 } else { shared.as_ptr().cast::<u8>() as u64 };
        command.record_at = record_at.into();
        let mut words = [0; 80];
        words[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let fd = Fd(self.control.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, number).cmd(words).build().user_data(self.calls);
        // SAFETY: the file is open as long as the ring. The driver accesses the record that
        // `shared` points at, which was leaked just now: law 1.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| CommandError::NoAnswer)?;
        let result = self.answer()?;
        // SAFETY: the kernel has answered, so it accesses the record no more (law 1), and the
        // pointer came from a leaked box of this type.
        let record = unsafe { Box::from_raw(shared.as_ptr()) };
        if result < 0 { Err(CommandError::Refused(Errno::from_raw_os_error(-result))) } else { Ok(record) }
    }

    /// Waits for the answer to the last call.
    fn answer(&mut self) -> Result<i32, CommandError> {
        let limit = Timespec::from(ANSWER_MAX);
        loop {
            let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit));
            let calls = self.calls;
            if let Some(answer) = self.ring.completion().find(|answer| answer.user_data() == calls) {
                return Ok(answer.result());
            }
            match waited {
                Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => {
                    return Err(CommandError::NoAnswer);
                }
                Err(error) if !is_passing(&error) => return Err(CommandError::Ring(error)),
                _ => {}
            }
        }
    }
}

/// Whether the same call may work a moment later.
fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

/// A mapping of memory that the kernel accesses too.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, whichever thread gives it back.
unsafe impl Send for Mapping {}

impl Mapping {
    /// The descriptors of `depth` requests of a queue.
    fn of_descriptors(device: &File, shape: QueueShape) -> io::Result<Mapping> {
        let page = rustix::param::page_size();
        let bytes = (usize::from(shape.depth) * size_of::<Descriptor>()).next_multiple_of(page);
        let (flags, at) = (MapFlags::SHARED | MapFlags::POPULATE, descriptors_at(shape.queue));
        // SAFETY: the kernel chooses the address, so that nothing else is mapped there.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, ProtFlags::READ, flags, device.as_fd(), at) }?;
        Mapping::new(start.cast(), bytes)
    }

    /// Room for data.
    fn of_buffers(shape: QueueShape) -> io::Result<Mapping> {
        let bytes = usize::from(shape.depth) * shape.buffer_bytes;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses the address, so that nothing else is mapped there.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
        Mapping::new(start.cast(), bytes)
    }

    fn new(start: *mut u8, bytes: usize) -> io::Result<Mapping> {
        Ok(Mapping { start: NonNull::new(start).ok_or(Errno::FAULT)?, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone. Buffers are accessed no more: law 3.
        // Descriptors are read by their owner alone, which drops them.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()), "a whole mapping");
    }
}

/// Which queue of a device, and how large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueShape {
    pub(crate) queue: u16,
    /// Requests at a time, which have the tags from 0 on.
    pub(crate) depth: u16,
    /// Bytes of the data of a request at most.
    pub(crate) buffer_bytes: usize,
}

/// Where the buffers of a queue lie.
#[derive(Clone, Copy)]
struct Buffers(NonNull<u8>);

// SAFETY: an address. The thread that gets it is the only one in this process that uses it.
unsafe impl Send for Buffers {}

/// The thread of a queue. Its buffers are given back when it is joined.
pub(crate) struct QueueThread<'scope, T> {
    thread: ScopedJoinHandle<'scope, T>,
    mapping: ManuallyDrop<Mapping>,
}

impl<'scope, T: Send + 'scope> QueueThread<'scope, T> {
    /// Begins a thread that does `work` with the queue of `device` that `shape` describes. `stop`
    /// becomes readable when the server wants the queue to end.
    pub(crate) fn begin<'env>(
        scope: &'scope Scope<'scope, 'env>,
        (device, stop): (&'env File, &'env OwnedFd),
        shape: QueueShape,
        work: impl FnOnce(io::Result<QueueRing<'env>>) -> T + Send + 'scope,
    ) -> io::Result<QueueThread<'scope, T>> {
        let mapping = ManuallyDrop::new(Mapping::of_buffers(shape)?);
        let buffers = Buffers(mapping.start);
        let name = format!("ublk queue {}", shape.queue);
        let ring = move || {
            // The whole of it, so that it is sent as a whole.
            let buffers: Buffers = buffers;
            work(QueueRing::new(device, stop, shape, buffers))
        };
        Ok(QueueThread { thread: Builder::new().name(name).spawn_scoped(scope, ring)?, mapping })
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(self) -> thread::Result<T> {
        let QueueThread { thread, mapping } = self;
        let done = thread.join();
        // The thread has ended, for the system too: law 3.
        drop(ManuallyDrop::into_inner(mapping));
        done
    }
}

/// What a queue learns from its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A request has arrived at a tag.
    Request(u16),
    /// No more requests come at a tag: the device ends.
    TagEnded,
    /// The server wants the queue to end.
    StopAsked,
    /// The driver did not accept a command, or made a mistake.
    Broken(Errno),
}

/// The requests of a queue, as its thread has them. Not `Send`: the driver takes commands from the
/// thread that began.
pub(crate) struct QueueRing<'d> {
    ring: IoUring,
    device: &'d File,
    shape: QueueShape,
    buffers: Buffers,
    /// Mapped once all requests are asked for: the driver lets one process map them, and remembers
    /// which, even if that process is killed before its queues are ready.
    descriptors: Option<Mapping>,
    /// The tags whose request the server has.
    held: Vec<bool>,
    /// It makes this type stay on its thread.
    _stays: std::marker::PhantomData<*const ()>,
}

/// The word by which a ring names the wish to end.
const STOP: u64 = u64::MAX;

impl<'d> QueueRing<'d> {
    fn new(device: &'d File, stop: &'d OwnedFd, shape: QueueShape, buffers: Buffers) -> io::Result<QueueRing<'d>> {
        // The driver's work on this thread waits until the thread enters the kernel, instead of
        // interrupting it; a flag says that there is some.
        let mut settings = IoUring::builder();
        settings.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
        let ring = settings.build(u32::from(shape.depth) + 1)?;
        let held = vec![false; usize::from(shape.depth)];
        let mut queue =
            QueueRing { ring, device, shape, buffers, descriptors: None, held, _stays: std::marker::PhantomData };
        let wish = opcode::PollAdd::new(Fd(stop.as_raw_fd()), u32::from(rustix::event::PollFlags::IN.bits()));
        queue.push(&wish.build().user_data(STOP))?;
        Ok(queue)
    }

    /// Asks for the first request at each tag.
    pub(crate) fn fetch_all(&mut self) -> io::Result<()> {
        (0..self.shape.depth).try_for_each(|tag| self.ask(FETCH, tag, 0))?;
        self.submit()?;
        self.descriptors = Some(Mapping::of_descriptors(self.device, self.shape)?);
        Ok(())
    }

    /// Answers the request at `tag` at the next [`QueueRing::submit`]: bytes, or an error's number
    /// below zero.
    pub(crate) fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        match self.held.get_mut(usize::from(tag)) {
            Some(held) if *held => *held = false,
            _ => return Err(Errno::INVAL.into()),
        }
        self.ask(COMMIT_AND_FETCH, tag, result)
    }

    fn ask(&mut self, number: u32, tag: u16, result: i32) -> io::Result<()> {
        let data_at = self.buffer(tag).as_ptr() as u64;
        let command = QueueCommand {
            queue: self.shape.queue.into(),
            tag: tag.into(),
            result: result.into(),
            data_at: data_at.into(),
        };
        let mut words = [0; 16];
        words.copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd16::new(Fd(self.device.as_raw_fd()), number).cmd(words).build();
        self.push(&entry.user_data(tag.into()))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: both files are open as long as this value is borrowed from them. The entry names
        // at most the buffer of a tag, which the driver owns from now on (law 2) and which stays
        // mapped until this thread has ended (law 3).
        let pushed = unsafe { self.ring.submission().push(entry) };
        // Each tag has one entry at most, and the wish to end has one.
        pushed.map_err(|_| Errno::NOBUFS.into())
    }

    /// Hands the driver all that was asked and answered.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.enter(0)
    }

    /// Hands it over, and waits for an event.
    pub(crate) fn submit_and_wait(&mut self) -> io::Result<()> {
        self.enter(1)
    }

    fn enter(&mut self, events: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(events) {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether an event is there, or comes as soon as the kernel is entered.
    pub(crate) fn has_events(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    /// The next event that is there.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let answer = self.ring.completion().next()?;
        if answer.user_data() == STOP {
            return Some(Event::StopAsked);
        }
        let errno = |result: i32| Errno::from_raw_os_error(-result);
        let tag = u16::try_from(answer.user_data()).ok().filter(|tag| *tag < self.shape.depth);
        Some(match (tag, answer.result()) {
            (Some(tag), 0) if !self.held[usize::from(tag)] => {
                self.held[usize::from(tag)] = true;
                Event::Request(tag)
            }
            (_, result) if result < 0 && errno(result) == Errno::NODEV => Event::TagEnded,
            (_, result) if result < 0 => Event::Broken(errno(result)),
            _ => Event::Broken(Errno::PROTO),
        })
    }

    /// The request at `tag`, with its data or room for them; None: the server has none there.
    pub(crate) fn request(&mut self, tag: u16) -> Option<(Descriptor, &mut [u8])> {
        if !*self.held.get(usize::from(tag))? {
            return None;
        }
        let descriptors = self.descriptors.as_ref()?.start.cast::<Descriptor>();
        // SAFETY: `held` has an element for this tag, so that it is below the depth, and the
        // mapping has as many descriptors, aligned to a page. It is the server's: law 2. Any bytes
        // are a descriptor.
        let descriptor = unsafe { descriptors.add(usize::from(tag)).read_volatile() };
        // SAFETY: the buffer lies in the mapping, whose bytes the kernel has set to zero or to
        // data. It is the server's (law 2), and the borrow of this value keeps it from being
        // committed or borrowed again. It is mapped, as this thread runs: law 3.
        let data = unsafe { slice::from_raw_parts_mut(self.buffer(tag).as_ptr(), self.shape.buffer_bytes) };
        Some((descriptor, data))
    }

    /// Where the data of `tag` lie, which is below the depth.
    fn buffer(&self, tag: u16) -> NonNull<u8> {
        debug_assert!(tag < self.shape.depth);
        // SAFETY: the mapping has a buffer for each tag below the depth: tags come from
        // `fetch_all`, or had an element in `held`.
        unsafe { self.buffers.0.add(usize::from(tag) * self.shape.buffer_bytes) }
    }
}
