//! The two threads that answer for absent pages, which a process has from its first paged mapping
//! on: one is told who waits for which page, the other brings the pages. The first one takes no
//! lock but for its queue, as whoever makes memory absent waits until it was told so.
//!
//! Both have a table of descriptors of their own, in which are the files of the paged mappings:
//! programs close descriptors that they do not know, and go on with their memory. Neither calls a
//! function of libc that this library takes over.

use crate::contexts::{recall_words, room_words};
use crate::guarded;
use crate::mappings::pause;
use crate::mappings::signals::HeldSignals;
use crate::process::OwnFile;
use rustix::fd::{IntoRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{ClockId, futex, gettid};
use std::ffi::{CStr, c_void};
use std::io::Write as _;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tidegate_file_wire::BOARDS_MAX;
use tidegate_media::AbsentPages;
use tidegate_preload_common::lock::Lock;
use tidegate_process_mappings::PAGED_MAX;

/// Addresses that wait in the queue.
const TOUCHES: usize = 1024;

const NOT_STARTED: u32 = 0;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;
const FAILED: u32 = 3;

const NOTHING_ASKED: u32 = 0;
const ASKED_TO_OPEN: u32 = 1;
const ASKED_TO_BRING: u32 = 2;
const ASKED_TO_GIVE_BACK: u32 = 3;
const ANSWERED: u32 = 4;

/// Descriptors of the program's table, one for each paged mapping; -1: none.
pub(super) type Files = [i32; PAGED_MAX];

pub(super) const NO_FILES: Files = [-1; PAGED_MAX];

/// What the worker does.
pub(super) struct TouchWork {
    /// Has whoever waits for this address go on.
    pub(super) serve: fn(AbsentPages, usize),
    /// Brings the page of this address.
    pub(super) bring: fn(AbsentPages, usize) -> Result<(), Errno>,
    /// Has the upgraded mapping with this address come back.
    pub(super) give_back: fn(AbsentPages, usize),
    /// Called when another program waits for room.
    pub(super) give_room: fn(AbsentPages),
    /// Called when somebody wants a file of which some program upgraded a mapping.
    pub(super) give_back_wanted: fn(AbsentPages),
    /// Called when nobody waits.
    pub(super) tidy_up: fn(AbsentPages),
}

/// The threads, and what passes between them and the program's.
pub(super) struct TouchThreads {
    /// Taken by whoever starts the threads or asks one.
    lock: Lock,
    state: AtomicU32,
    absent: AtomicI32,
    worker: AtomicI32,
    files: [AtomicI32; PAGED_MAX],
    /// Changes with everything that the worker is to look at.
    bell: AtomicU32,
    request: AtomicU32,
    thread: AtomicI32,
    file: AtomicI32,
    page: AtomicUsize,
    /// An errno, less than 0, or what was asked for.
    answer: AtomicI32,
    /// Whether this process asked others for room since the worker last waited.
    asked_for_room: AtomicBool,
    touched: [AtomicUsize; TOUCHES],
    put: AtomicUsize,
    taken: AtomicUsize,
}

pub(super) static TOUCH_THREADS: TouchThreads = TouchThreads {
    lock: Lock::new(),
    state: AtomicU32::new(NOT_STARTED),
    absent: AtomicI32::new(-1),
    worker: AtomicI32::new(0),
    files: [const { AtomicI32::new(-1) }; PAGED_MAX],
    bell: AtomicU32::new(0),
    request: AtomicU32::new(NOTHING_ASKED),
    thread: AtomicI32::new(0),
    file: AtomicI32::new(-1),
    page: AtomicUsize::new(0),
    answer: AtomicI32::new(0),
    asked_for_room: AtomicBool::new(false),
    touched: [const { AtomicUsize::new(0) }; TOUCHES],
    put: AtomicUsize::new(0),
    taken: AtomicUsize::new(0),
};

impl TouchThreads {
    /// Whether this process has the threads, or is about to.
    pub(super) fn is_started(&self) -> bool {
        [STARTING, RUNNING].contains(&self.state.load(Ordering::Acquire))
    }

    /// The threads, which are started if they are not there. As [`TouchThreads::start`], without
    /// files.
    pub(super) fn started(&self, work: &'static TouchWork) -> Result<AbsentPages, Errno> {
        let mut none = NO_FILES;
        self.start(work, &mut none)
    }

    /// The threads, which are started if they are not there; they have `files` then, and these are
    /// their numbers there. The caller does not have the table. An error: the kernel does not have
    /// or allow what they need.
    pub(super) fn start(&self, work: &'static TouchWork, files: &mut Files) -> Result<AbsentPages, Errno> {
        let _held = HeldSignals::new();
        if !self.lock.take() {
            return Err(Errno::BUSY);
        }
        if self.state.load(Ordering::Acquire) == NOT_STARTED {
            self.start_locked(work, files);
        }
        self.lock.give();
        match self.state.load(Ordering::Acquire) {
            RUNNING => Ok(AbsentPages::of(self.absent.load(Ordering::Relaxed))),
            _ => Err(Errno::NOMEM),
        }
    }

    fn start_locked(&self, work: &'static TouchWork, files: &mut Files) {
        let Ok(absent) = AbsentPages::begin() else { return self.state.store(FAILED, Ordering::Release) };
        self.absent.store(absent.number(), Ordering::Relaxed);
        self.files.iter().zip(&*files).for_each(|(place, fd)| place.store(*fd, Ordering::Relaxed));
        self.state.store(STARTING, Ordering::Release);
        if start_thread(read_touches, work).is_err() {
            return self.state.store(FAILED, Ordering::Release);
        }
        while self.state.load(Ordering::Acquire) == STARTING {
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, STARTING, None);
        }
        files.iter_mut().zip(&self.files).for_each(|(fd, place)| *fd = place.load(Ordering::Relaxed));
    }

    fn is_now(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        let _ = futex::wake(&self.state, futex::Flags::PRIVATE, u32::MAX >> 1);
    }

    /// Has the worker open the file of one of this thread's descriptors anew. Its number there. The
    /// caller does not have the table.
    pub(super) fn open(&self, fd: i32) -> Result<i32, Errno> {
        self.asked(ASKED_TO_OPEN, || {
            self.thread.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            self.file.store(fd, Ordering::Relaxed);
        })
        .map_err(|errno| if errno == Errno::BUSY { errno } else { Errno::NOMEM })
    }

    /// Has the worker bring the page at this address, if it is absent, without patience. The
    /// threads are started if they are not there. The caller does not have the table.
    pub(super) fn bring(&self, work: &'static TouchWork, at: usize) -> Result<(), Errno> {
        self.started(work)?;
        self.asked(ASKED_TO_BRING, || self.page.store(at, Ordering::Relaxed)).map(drop)
    }

    /// Has the worker make the upgraded mapping with this address one of the kernel's pages again,
    /// if it can. The caller does not have the table.
    pub(super) fn give_back(&self, at: usize) {
        let _ = self.asked(ASKED_TO_GIVE_BACK, || self.page.store(at, Ordering::Relaxed));
    }

    /// Has the worker do something, of which `tell` tells the rest.
    fn asked(&self, request: u32, tell: impl FnOnce()) -> Result<i32, Errno> {
        let _held = HeldSignals::new();
        if !self.lock.take() {
            return Err(Errno::BUSY);
        }
        tell();
        self.request.store(request, Ordering::Release);
        self.ring();
        while self.request.load(Ordering::Acquire) == request {
            let _ = futex::wait(&self.request, futex::Flags::PRIVATE, request, None);
        }
        self.request.store(NOTHING_ASKED, Ordering::Relaxed);
        let answer = self.answer.load(Ordering::Relaxed);
        self.lock.give();
        if answer < 0 { Err(Errno::from_raw_os_error(-answer)) } else { Ok(answer) }
    }

    /// Opens a file of the worker's for the program: its number in the program's table.
    pub(super) fn open_for_program(&self, fd: i32) -> Result<i32, Errno> {
        opened(self.worker.load(Ordering::Relaxed), fd).map(OwnedFd::into_raw_fd)
    }

    /// This process is about to ask others for room.
    pub(super) fn asks_for_room(&self) {
        self.asked_for_room.store(true, Ordering::Relaxed);
    }

    /// The worker is to look.
    pub(super) fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.bell, futex::Flags::PRIVATE, 1);
    }

    /// In a child: the threads are not there.
    pub(super) fn reset(&self) {
        self.lock.reset();
        self.state.store(NOT_STARTED, Ordering::Release);
        self.request.store(NOTHING_ASKED, Ordering::Relaxed);
        self.taken.store(self.put.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Somebody waits for this page. If many do, he is to say so again.
    fn put(&self, at: usize, absent: AbsentPages) {
        let put = self.put.load(Ordering::Relaxed);
        // Acquire: the place was read.
        if put - self.taken.load(Ordering::Acquire) == TOUCHES {
            return absent.wake(at & !4095, 4096);
        }
        self.touched[put % TOUCHES].store(at, Ordering::Relaxed);
        // Release: pairs with `take`.
        self.put.store(put + 1, Ordering::Release);
        self.ring();
    }

    /// Waits until the bell rings, or a program wants room. On the worker.
    fn wait(&self, heard: u32, wanted: &BoardWords) {
        let mut waits = [futex::Wait::new(); 1 + 2 * BOARDS_MAX];
        let bell = (self.bell.as_ptr(), heard, futex::WaitFlags::PRIVATE);
        let words = room_words().zip(wanted.room.0).chain(recall_words().zip(wanted.recalled.0));
        let words = words.map(|(word, value)| (word.as_ptr().cast(), value, futex::WaitFlags::empty()));
        let mut count = 0;
        for (wait, (at, value, flags)) in waits.iter_mut().zip([bell].into_iter().chain(words)) {
            (wait.val, wait.uaddr) = (value.into(), futex::WaitPtr::new(at.cast()));
            wait.flags = futex::WaitFlags::SIZE_U32 | flags;
            count += 1;
        }
        match futex::waitv(&waits[..count], futex::WaitvFlags::empty(), None, ClockId::Monotonic) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            // Before Linux 5.16 nobody can wait for several: this program gives nothing.
            Err(_) => _ = futex::wait(&self.bell, futex::Flags::PRIVATE, heard, None),
        }
    }

    fn take(&self) -> Option<usize> {
        let taken = self.taken.load(Ordering::Relaxed);
        // Acquire: pairs with `put`.
        if taken == self.put.load(Ordering::Acquire) {
            return None;
        }
        let at = self.touched[taken % TOUCHES].load(Ordering::Relaxed);
        self.taken.store(taken + 1, Ordering::Release);
        Some(at)
    }

    /// Does what was asked for, if that is so. On the worker, which does not have the table.
    pub(super) fn answer(&self, absent: AbsentPages, work: &'static TouchWork) {
        let done = match self.request.load(Ordering::Acquire) {
            ASKED_TO_OPEN => {
                opened(self.thread.load(Ordering::Relaxed), self.file.load(Ordering::Relaxed)).map(OwnedFd::into_raw_fd)
            }
            ASKED_TO_BRING => (work.bring)(absent, self.page.load(Ordering::Relaxed)).map(|()| 0),
            ASKED_TO_GIVE_BACK => {
                (work.give_back)(absent, self.page.load(Ordering::Relaxed));
                Ok(0)
            }
            _ => return,
        };
        self.answer.store(done.unwrap_or_else(|errno| -errno.raw_os_error()), Ordering::Relaxed);
        self.request.store(ANSWERED, Ordering::Release);
        let _ = futex::wake(&self.request, futex::Flags::PRIVATE, u32::MAX >> 1);
    }
}

/// What one word of each mount's board says, as far as a futex is: the first half of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Halves([u32; BOARDS_MAX]);

impl Halves {
    fn of(words: impl Iterator<Item = &'static AtomicU64>) -> Halves {
        let mut halves = Halves([0; BOARDS_MAX]);
        for (place, word) in halves.0.iter_mut().zip(words) {
            // Relaxed: the kernel compares again before it waits.
            let [half, _]: [u32; 2] = zerocopy::transmute!(word.load(Ordering::Relaxed).to_ne_bytes());
            *place = half;
        }
        halves
    }
}

/// What the boards say that others want: room for mapped pages, and files.
#[derive(Clone, Copy)]
struct BoardWords {
    room: Halves,
    recalled: Halves,
}

impl BoardWords {
    fn now() -> BoardWords {
        BoardWords { room: Halves::of(room_words()), recalled: Halves::of(recall_words()) }
    }
}

/// Opens the file of one of the worker's descriptors anew. On the worker only.
pub(super) fn opened_again(fd: i32) -> Result<OwnFile, Errno> {
    opened(gettid().as_raw_nonzero().get(), fd).map(OwnFile::of)
}

/// Opens the file of a thread's descriptor anew, for reading and writing. It waits for nobody who
/// upgraded a mapping of it: that is this process.
fn opened(thread: i32, fd: i32) -> Result<OwnedFd, Errno> {
    let mut path = [0; 64];
    write!(&mut path[..63], "/proc/self/task/{thread}/fd/{fd}").map_err(|_| Errno::NAMETOOLONG)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::NAMETOOLONG)?;
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// Starts a thread of the process that nobody joins. The caller holds its signals back, and so does
/// the thread for ever.
fn start_thread(run: extern "C" fn(*mut c_void) -> *mut c_void, work: &'static TouchWork) -> Result<(), Errno> {
    let work: *const TouchWork = work;
    let mut thread = 0;
    // SAFETY: its argument is as `work_of` says. Nobody looks at the thread's number after it is
    // detached.
    unsafe {
        match libc::pthread_create(&raw mut thread, null(), run, work.cast_mut().cast()) {
            0 => _ = libc::pthread_detach(thread),
            errno => return Err(Errno::from_raw_os_error(errno)),
        }
    }
    Ok(())
}

/// What a thread was started with.
fn work_of(argument: *mut c_void) -> &'static TouchWork {
    // SAFETY: `start_thread` hands on a reference that stays.
    unsafe { &*argument.cast_const().cast() }
}

extern "C" fn read_touches(work: *mut c_void) -> *mut c_void {
    guarded(|| {
        let files = TOUCH_THREADS.files.each_ref().map(|place| place.load(Ordering::Relaxed));
        let absent = AbsentPages::of(TOUCH_THREADS.absent.load(Ordering::Relaxed));
        let Ok((absent, files)) = absent.alone(files) else { return TOUCH_THREADS.is_now(FAILED) };
        TOUCH_THREADS.files.iter().zip(files).for_each(|(place, fd)| place.store(fd, Ordering::Relaxed));
        OWN.store(absent.number(), Ordering::Relaxed);
        if start_thread(bring_pages, work_of(work)).is_err() {
            return TOUCH_THREADS.is_now(FAILED);
        }
        loop {
            match absent.next() {
                Ok(Some(at)) => TOUCH_THREADS.put(at, absent),
                Ok(None) => {}
                Err(_) => pause(),
            }
        }
    });
    null_mut()
}

/// The number in the threads' own table.
static OWN: AtomicI32 = AtomicI32::new(-1);

extern "C" fn bring_pages(work: *mut c_void) -> *mut c_void {
    guarded(|| {
        let absent = AbsentPages::of(OWN.load(Ordering::Relaxed));
        TOUCH_THREADS.worker.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        TOUCH_THREADS.is_now(RUNNING);
        let work = work_of(work);
        let mut wanted = BoardWords::now();
        loop {
            let heard = TOUCH_THREADS.bell.load(Ordering::Acquire);
            let (before, now) = (wanted, BoardWords::now());
            wanted = now;
            if before.room != now.room {
                (work.give_room)(absent);
            }
            if before.recalled != now.recalled {
                (work.give_back_wanted)(absent);
            }
            while let Some(at) = TOUCH_THREADS.take() {
                (work.serve)(absent, at);
            }
            TOUCH_THREADS.answer(absent, work);
            (work.tidy_up)(absent);
            // What this process asked for itself it need not give.
            if TOUCH_THREADS.asked_for_room.swap(false, Ordering::Relaxed) {
                wanted.room = Halves::of(room_words());
            }
            TOUCH_THREADS.wait(heard, &wanted);
        }
    });
    null_mut()
}
