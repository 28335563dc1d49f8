//! The line to the supervisor: one connection, with one request under way at a time.
//!
//! The answer to one request need not be awaited: that a filling is absorbed. It is read before
//! anything else is asked, so all requests are carried out and answered in the order in which they
//! were sent, and who asks for something knows what became of what was handed over.

use crate::lock::Lock;
use crate::process::Copies;
use crate::{descriptors, files, names, process, strip};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};
use tidegate_preload_wire::{Answer, PACKET_BYTES_MAX, Request, STOP, VOID};

/// Held over a whole sync, so that a second one of the same bytes waits for the first.
pub(crate) static LINE: Lock = Lock::new();

static SOCKET: AtomicI32 = AtomicI32::new(NONE);
/// The socket's inode: a number that was closed behind our back is another file's.
static INODE: AtomicU64 = AtomicU64::new(0);

/// Whether an answer is still to come, and which. All of it is changed under the line's lock.
static IS_LATE: AtomicBool = AtomicBool::new(false);
static LATE_INDEX: AtomicU16 = AtomicU16::new(0);
static LATE_GENERATION: AtomicU32 = AtomicU32::new(0);
static LATE_FILLING: AtomicU32 = AtomicU32::new(0);

/// A filling that is being absorbed, of a file that was held at a place.
#[derive(Clone, Copy)]
pub(crate) struct Later {
    pub(crate) index: u16,
    pub(crate) generation: u32,
    pub(crate) filling: u32,
}

/// Whether an answer is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Yes,
    No,
}

const NONE: i32 = -1;
/// Where the socket lies, out of the way of the numbers that the program counts on.
const DESCRIPTOR_MIN: i32 = 700;
/// How often a connection is tried again while descriptors are short.
const TRIES: u32 = 10_000;

/// Whether `descriptor` is the line's own.
pub(crate) fn is_own(descriptor: i32) -> bool {
    descriptor != NONE && SOCKET.load(Ordering::Relaxed) == descriptor
}

/// The program is about to close the numbers from `first` to `last`. If the line's is among them,
/// the supervisor lets go of what was held.
pub(crate) fn give_up_among(first: u32, last: u32) {
    let own = SOCKET.load(Ordering::Relaxed);
    // A child between vfork and exec closes numbers of its own.
    if process::owns_memory() && u32::try_from(own).is_ok_and(|own| (first..=last).contains(&own)) {
        SOCKET.store(NONE, Ordering::Relaxed);
    }
}

/// The line is the parent's: this process makes one of its own when it needs one.
pub(crate) fn leave_to_parent(copies: Copies) {
    LINE.reset();
    IS_LATE.store(false, Ordering::Relaxed);
    let socket = SOCKET.swap(NONE, Ordering::Relaxed);
    if copies == Copies::Closed && is_ours(socket) {
        close(socket);
    }
}

/// Closes past our own export.
pub(crate) fn close(descriptor: i32) {
    // SAFETY: the number came from a descriptor of this library's own, which nobody else closes.
    unsafe { rustix::io::close(descriptor) };
}

/// Asks the supervisor. None: there is none any more, and all that it kept is void.
pub(crate) fn ask(request: Request<'_>, with: Option<i32>) -> Option<Answer> {
    let alone = LINE.take();
    let answer = if alone { ask_in_turn(request, with) } else { ask_aside(request, with) };
    answer.as_ref().err().iter().for_each(|error| unanswered(**error));
    if alone {
        LINE.give();
    }
    answer.ok()
}

/// Connects the line if it is not: whatever was held until then is left.
pub(crate) fn reach() {
    if LINE.take() {
        connected().err().iter().for_each(|error| unanswered(*error));
        LINE.give();
    }
}

/// [`ask`] for whoever holds the line's lock.
pub(crate) fn ask_held(request: Request<'_>) -> Option<Answer> {
    let answer = ask_in_turn(request, None);
    answer.as_ref().err().iter().for_each(|error| unanswered(**error));
    answer.ok()
}

/// Sends a request that [`Later`] is about, for whoever holds the line's lock and has found it
/// free. If that cannot be done, nobody holds the file here any more.
pub(crate) fn ask_later(request: Request<'_>, later: Later) {
    if let Err(error) = connected().and_then(|socket| send(socket, request, None)) {
        return unanswered(error);
    }
    LATE_INDEX.store(later.index, Ordering::Relaxed);
    LATE_GENERATION.store(later.generation, Ordering::Relaxed);
    LATE_FILLING.store(later.filling, Ordering::Relaxed);
    IS_LATE.store(true, Ordering::Relaxed);
}

/// Whether no answer is still to come, for whoever holds the line's lock. An answer that is not
/// waited for, and says anything but `Done`, may be found later.
pub(crate) fn is_free(wait: Wait) -> bool {
    if wait == Wait::No && !may_be_answered() {
        return false;
    }
    let read = connected().and_then(|socket| read_late(socket, wait));
    read.err().iter().for_each(|error| unanswered(*error));
    read.is_ok() && !IS_LATE.load(Ordering::Relaxed)
}

/// Whether the answer that is still to come may be there, by a look at the strip that it is about.
fn may_be_answered() -> bool {
    let (generation, filling) = (LATE_GENERATION.load(Ordering::Relaxed), LATE_FILLING.load(Ordering::Relaxed));
    let held = files::at(LATE_INDEX.load(Ordering::Relaxed)).filter(|_| IS_LATE.load(Ordering::Relaxed));
    held.is_none_or(|held| held.may_be_absorbed(generation, filling))
}

/// Reads the answer that is still to come, if one is, and does what it says.
fn read_late(socket: i32, wait: Wait) -> Result<(), Errno> {
    if !IS_LATE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let answer = match receive(socket, wait) {
        Err(Errno::AGAIN) if wait == Wait::No => return Ok(()),
        answer => answer,
    };
    IS_LATE.store(false, Ordering::Relaxed);
    let generation = LATE_GENERATION.load(Ordering::Relaxed);
    let held = files::at(LATE_INDEX.load(Ordering::Relaxed));
    let held = held.filter(|held| held.is_taken() && held.generation() == generation);
    match (answer?, held) {
        (Answer::Done, Some(held)) => held.absorbed(generation, LATE_FILLING.load(Ordering::Relaxed)),
        // Both fillings count until the next sync, which is the kernel's.
        (Answer::ByKernel, Some(held)) => held.put_in_doubt(),
        (_, Some(held)) => held.leave(),
        (_, None) => {}
    }
    Ok(())
}

fn ask_in_turn(request: Request<'_>, with: Option<i32>) -> Result<Answer, Errno> {
    let socket = connected()?;
    read_late(socket, Wait::Yes)?;
    ask_on(socket, request, with)
}

/// From a signal handler that interrupted a request: on a connection of its own.
fn ask_aside(request: Request<'_>, with: Option<i32>) -> Result<Answer, Errno> {
    let socket = connect()?;
    let answer = ask_on(socket, request, with);
    close(socket);
    answer
}

fn ask_on(socket: i32, request: Request<'_>, with: Option<i32>) -> Result<Answer, Errno> {
    send(socket, request, with)?;
    receive(socket, Wait::Yes)
}

fn send(socket: i32, request: Request<'_>, with: Option<i32>) -> Result<(), Errno> {
    // SAFETY: the number is open for the time of this call: the line's lock is held, or it is this
    // call's own.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let mut packet = [0; PACKET_BYTES_MAX];
    let bytes = request.write(rustix::thread::sched_getcpu() as u64, &mut packet);
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    // SAFETY: the program's own call holds the descriptor open.
    let passed = with.map(|descriptor| [unsafe { BorrowedFd::borrow_raw(descriptor) }]);
    if let Some(passed) = &passed {
        ancillary.push(SendAncillaryMessage::ScmRights(passed));
    }
    let send = || rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    rustix::io::retry_on_intr(send).map(drop)
}

fn receive(socket: i32, wait: Wait) -> Result<Answer, Errno> {
    // SAFETY: as in `send`.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let mut answer = [0; Answer::BYTES];
    let flags = if wait == Wait::No { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let (got, _) = rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut answer, flags))?;
    Answer::read(answer.get(..got).unwrap_or_default()).map_err(|_| Errno::PIPE)
}

/// The line's socket, connected now if it was not.
fn connected() -> Result<i32, Errno> {
    let known = SOCKET.load(Ordering::Relaxed);
    if is_ours(known) {
        return Ok(known);
    }
    // Whatever was held was held on the old line.
    files::leave_all();
    names::leave_all();
    // Whatever was joined, as another one.
    descriptors::forget_common();
    IS_LATE.store(false, Ordering::Relaxed);
    let socket = connect()?;
    INODE.store(inode(socket).unwrap_or_default(), Ordering::Relaxed);
    SOCKET.store(socket, Ordering::Relaxed);
    Ok(socket)
}

fn is_ours(socket: i32) -> bool {
    socket != NONE && inode(socket) == Some(INODE.load(Ordering::Relaxed))
}

fn inode(descriptor: i32) -> Option<u64> {
    // SAFETY: a closed number is an error, not a danger.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    rustix::fs::fstat(borrowed).ok().map(|stat| stat.st_ino)
}

/// A new connection. While the process has no descriptor left, its other threads are given time to
/// close one: a sync must not end without having asked.
fn connect() -> Result<i32, Errno> {
    let mut tries = 0;
    loop {
        match connect_now() {
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN) if tries < TRIES => {
                tries += 1;
                rustix::thread::sched_yield();
            }
            end => return end,
        }
    }
}

fn connect_now() -> Result<i32, Errno> {
    let places = process::places().ok_or(Errno::NOENT)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(places.socket.as_c_str())?;
    let connected = rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address));
    let moved = rustix::io::fcntl_dupfd_cloexec(&socket, DESCRIPTOR_MIN).map(OwnedFd::into_raw_fd);
    let first = socket.into_raw_fd();
    match (connected, moved) {
        (Ok(()), Ok(moved)) => {
            close(first);
            Ok(moved)
        }
        (Ok(()), Err(_)) => Ok(first),
        (Err(error), moved) => {
            close(first);
            moved.into_iter().for_each(close);
            Err(error)
        }
    }
}

fn unanswered(error: Errno) {
    match error {
        // The process took another user's place since: it is not under this run any more.
        Errno::ACCESS | Errno::PERM => process::stop_following(),
        _ => without_supervisor(),
    }
}

/// Makes everything durable by the kernel, and says so where the next run looks before it trusts
/// what was kept. If that cannot be said, it is tried again with the next request.
///
/// The supervisor may live, and only be out of reach of this process. So it is told to stop first:
/// whatever it promised before it saw that, the kernel syncs here.
fn without_supervisor() {
    files::leave_all();
    names::leave_all();
    let stopped = strip::shut().or_else(gone).and_then(|()| say(STOP));
    rustix::fs::sync();
    if stopped.and_then(|()| say(VOID)).is_ok() {
        process::stop_following();
    }
}

/// A run that ended well takes its journal with it.
fn gone(error: Errno) -> Result<(), Errno> {
    if error == Errno::NOENT { Ok(()) } else { Err(error) }
}

/// Appends the line that begins with `what` and names the run, durably.
fn say(what: &str) -> Result<(), Errno> {
    let places = process::places().ok_or(Errno::NOENT)?;
    // Whoever may rename things in its folder may have put a link there by now.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let journal = match rustix::fs::open(places.holds.as_c_str(), flags, Mode::empty()) {
        Err(error) => return gone(error),
        Ok(journal) => journal,
    };
    let session = places.session.as_bytes();
    let line = [IoSlice::new(b"\n"), IoSlice::new(what.as_bytes()), IoSlice::new(session), IoSlice::new(b"\n")];
    let bytes: usize = line.iter().map(|piece| piece.len()).sum();
    let written = rustix::io::retry_on_intr(|| rustix::io::writev(&journal, &line));
    // A line that was written in part says nothing: the disk is full.
    let whole = written.and_then(|count| if count == bytes { Ok(()) } else { Err(Errno::NOSPC) });
    let durable = whole.and_then(|()| rustix::fs::fsync(&journal));
    close(journal.into_raw_fd());
    durable
}
