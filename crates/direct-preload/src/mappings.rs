//! Direct mappings: pages of the pool in the program's own memory.
//!
//! `mmap` with `MAP_SHARED_VALIDATE | MAP_DAX` has the service commit the pages into blocks that
//! stay where they are, and maps these. The locks that the mappings keep tell the service what is
//! mapped (`MappedRuns`). It may have looked before they were there, so it is asked twice: if it
//! says the same when they are, it has seen them or will.
//!
//! `msync` flushes the pages that were stored to since the last one, as the kernel tells
//! (`WrittenPages`), and fences. Where the kernel does not, every page counts as stored to. What
//! one thread takes from the kernel's list it flushes before another one looks.
//!
//! A child of `fork` has the mappings too, and the locks with them; the kernel watches none of its
//! pages.

use crate::memory::PoolFile;
use crate::service::{NO_POOL, ask, lends};
use libc::{c_int, off_t};
use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_file_wire::{Answer, MAP, MAP_RUNS_MAX, Map, MapRun, PoolDescription, VERSION};
use tidegate_media::{MappedRuns, OpenShared, WrittenPages, WrittenRange};
use tidegate_preload_common::lock::Lock;
use zerocopy::little_endian::{U32, U64};

/// Asks for pages of the pool. The kernel's headers have no flag of this value, and refuse one
/// beside `MAP_SHARED_VALIDATE` that they do not have. See `include/tidegate-mappings.h`.
pub(crate) const MAP_DAX: c_int = 0x0100_0000;

/// Bits of `mmap`'s flags that say whose stores are seen.
const MAP_TYPE: c_int = 0x0f;

/// Flags that a direct mapping takes.
const ALLOWED: c_int = MAP_DAX
    | MAP_TYPE
    | libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_POPULATE
    | libc::MAP_NORESERVE
    | libc::MAP_NONBLOCK
    | libc::MAP_SYNC;

const PAGE_BYTES: usize = 4096;

/// Mappings of a process, and parts of such that were cut in two.
const MAPPED_MAX: usize = 1024;

/// Bytes that the service is asked for at a time.
const ASKED_BYTES: usize = 64 << 20;

/// How often pages are asked for that moved before they were mapped.
const TRIES: u32 = 8;

/// How often the service is asked that has no time, and the pause in between.
const LATER_TRIES: u32 = 2000;
const LATER_PAUSE: Duration = Duration::from_millis(1);

/// Ranges of written pages that are told at a time.
const TOLD: usize = 64;

/// Bytes that are flushed without a question what of them was stored to: a page in the caches that
/// was not takes 50 ns, the question 500 ns and the next store's fault 1 µs.
const UNASKED_BYTES: usize = 8 * PAGE_BYTES;

/// Pages that were stored to and are left so: if the program stores to them again, it does without
/// the fault. Each `msync` of them flushes them.
const KEPT: usize = 8;

/// Addresses that have pages of one file.
#[derive(Clone, Copy)]
struct MappedPages {
    base: usize,
    end: usize,
    file: (u64, u64),
}

/// What is mapped, behind its lock.
struct Table {
    mapped: [MappedPages; MAPPED_MAX],
    used: usize,
    /// None: the kernel does not tell what is written, or was not asked yet.
    eye: Option<WrittenPages>,
    was_asked: bool,
    /// Room for messages: the stack may be small.
    map: Map,
    pool: PoolDescription,
}

struct Mappings {
    lock: Lock,
    table: UnsafeCell<Table>,
}

// SAFETY: L2.
unsafe impl Sync for Mappings {}

const NO_RUN: MapRun = MapRun { pool_at: U64::ZERO, bytes: U64::ZERO };
const NO_MAP: Map = Map {
    version: U32::ZERO,
    answer: U32::ZERO,
    at: U64::ZERO,
    len: U64::ZERO,
    count: U32::ZERO,
    reserved: U32::ZERO,
    runs: [NO_RUN; MAP_RUNS_MAX],
};
const NO_PAGES: MappedPages = MappedPages { base: 0, end: 0, file: (0, 0) };

static MAPPINGS: Mappings = Mappings {
    lock: Lock::new(),
    table: UnsafeCell::new(Table {
        mapped: [NO_PAGES; MAPPED_MAX],
        used: 0,
        eye: None,
        was_asked: false,
        map: NO_MAP,
        pool: NO_POOL,
    }),
};

/// How many there are in the table: nothing else is looked at where there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has anything mapped.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Calls `act` with the table. An error: this very thread is at it, below a signal handler.
fn with<T>(act: impl FnOnce(&mut Table) -> T) -> Result<T, Errno> {
    if !MAPPINGS.lock.take() {
        return Err(Errno::BUSY);
    }
    // SAFETY: L2.
    let done = act(unsafe { &mut *MAPPINGS.table.get() });
    MAPPINGS.lock.give();
    Ok(done)
}

/// In a child: the mappings are there, and the kernel watches none of them. Its descriptors are
/// about the parent.
pub(crate) fn forget_eye() {
    MAPPINGS.lock.reset();
    let _ = with(|table| (table.eye, table.was_asked) = (None, true));
}

/// What `mmap` asks for.
pub(crate) struct Wanted {
    pub(crate) at: *mut c_void,
    pub(crate) len: usize,
    pub(crate) access: c_int,
    pub(crate) flags: c_int,
    pub(crate) fd: c_int,
    pub(crate) from: off_t,
}

impl Wanted {
    /// Whether it asks for pages of the pool.
    pub(crate) fn is_direct(&self) -> bool {
        self.flags & MAP_DAX != 0
            && self.flags & libc::MAP_ANONYMOUS == 0
            && [libc::MAP_SHARED_VALIDATE, libc::MAP_PRIVATE].contains(&(self.flags & MAP_TYPE))
    }

    /// Maps pages of the pool, or says why not.
    pub(crate) fn map(&self) -> Result<*mut c_void, Errno> {
        if self.flags & MAP_TYPE == libc::MAP_PRIVATE {
            return Err(Errno::INVAL);
        }
        let len = self.len.checked_next_multiple_of(PAGE_BYTES).filter(|len| *len > 0).ok_or(Errno::INVAL)?;
        let from = u64::try_from(self.from).ok().filter(|from| from.is_multiple_of(PAGE_BYTES as u64));
        let from = from.ok_or(Errno::INVAL)?;
        if self.flags & !ALLOWED != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if self.fd < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: the program is about to map it; whether it is open, the kernel says.
        let file = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let flags = fcntl_getfl(file)?;
        if flags.contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        let about = fstat(file)?;
        with(|table| {
            if !lends(self.fd, &mut table.pool) {
                return Err(Errno::OPNOTSUPP);
            }
            if flags & OFlags::RWMODE != OFlags::RDWR {
                return Err(Errno::ACCESS);
            }
            if table.used + 2 > MAPPED_MAX {
                return Err(Errno::NOMEM);
            }
            let base = self.mapped(table, from, len)?;
            table.forget(base.addr()..base.addr() + len);
            table.add(MappedPages { base: base.addr(), end: base.addr() + len, file: (about.st_dev, about.st_ino) });
            table.watch(base, len);
            Ok(base)
        })?
    }

    fn mapped(&self, table: &mut Table, from: u64, len: usize) -> Result<*mut c_void, Errno> {
        let access = ProtFlags::from_bits_retain(self.access.cast_unsigned());
        // Before any address is taken: most refusals come here.
        table.ask(self.fd, from, len)?;
        let how =
            MapFlags::from_bits_retain((self.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE)).cast_unsigned());
        // SAFETY: L1.
        let runs = unsafe { MappedRuns::reserve(self.at, len, how) }.map_err(errno_of)?;
        let mut done = 0;
        while done < len {
            match table.put(&runs, done, self.fd, (from, len), access) {
                Ok(bytes) => done += bytes,
                Err(errno) => {
                    // SAFETY: the program was not told.
                    unsafe { runs.give_up() };
                    return Err(errno);
                }
            }
        }
        Ok(runs.base())
    }
}

impl Table {
    /// Asks the service for pages from `at` on; at most so many as it is asked for at a time. A
    /// number that stands for the answer.
    fn ask(&mut self, fd: c_int, at: u64, len: usize) -> Result<u64, Errno> {
        for _ in 0..LATER_TRIES {
            self.map = NO_MAP;
            self.map.version = VERSION.into();
            (self.map.at, self.map.len) = (at.into(), (len.min(ASKED_BYTES) as u64).into());
            if !ask(fd, MAP, &mut self.map) {
                let errno = std::io::Error::last_os_error();
                return Err(match Errno::from_io_error(&errno).unwrap_or(Errno::IO) {
                    Errno::NOTTY => Errno::OPNOTSUPP,
                    Errno::BADF => Errno::ACCESS,
                    other => other,
                });
            }
            match Answer::of(self.map.answer.get()) {
                Answer::Granted => {
                    let mut hasher = DefaultHasher::new();
                    for run in self.runs() {
                        (run.pool_at.get(), run.bytes.get()).hash(&mut hasher);
                    }
                    return Ok(hasher.finish());
                }
                Answer::Never => return Err(Errno::OPNOTSUPP),
                Answer::Later => pause(),
            }
        }
        Err(Errno::AGAIN)
    }

    fn runs(&self) -> &[MapRun] {
        let count = usize::try_from(self.map.count.get()).unwrap_or(0);
        self.map.runs.get(..count).unwrap_or_default()
    }

    /// Maps the next pages, and says how many bytes.
    fn put(
        &mut self,
        runs: &MappedRuns,
        done: usize,
        fd: c_int,
        (from, len): (u64, usize),
        access: ProtFlags,
    ) -> Result<usize, Errno> {
        for _ in 0..TRIES {
            let seen = self.ask(fd, from + done as u64, len - done)?;
            let mapped = self.put_told(runs, done, len - done, access)?;
            if self.ask(fd, from + done as u64, len - done)? == seen {
                return Ok(mapped);
            }
        }
        Err(Errno::AGAIN)
    }

    /// Maps the pages that the service told.
    fn put_told(&self, runs: &MappedRuns, done: usize, most: usize, access: ProtFlags) -> Result<usize, Errno> {
        // SAFETY: L2: the description is the table's, which stays, and is not written before this
        // thread gives the lock.
        let pool: &'static PoolDescription = unsafe { &*std::ptr::from_ref(&self.pool) };
        let (mut mapped, mut outcome) = (0, Err(Errno::IO));
        PoolFile::new(pool).open(&mut |file| {
            outcome = self.runs().iter().try_for_each(|run| {
                let bytes = usize::try_from(run.bytes.get()).map_err(|_| Errno::IO)?;
                if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || mapped + bytes > most {
                    return Err(Errno::IO);
                }
                runs.put(done + mapped, file, (run.pool_at.get(), bytes), access).map_err(errno_of)?;
                mapped += bytes;
                Ok(())
            });
        });
        outcome?;
        if mapped == 0 { Err(Errno::IO) } else { Ok(mapped) }
    }

    fn add(&mut self, pages: MappedPages) {
        self.mapped[self.used] = pages;
        self.used += 1;
        COUNT.store(self.used, Ordering::Relaxed);
    }

    /// Nothing of these addresses is ours any more.
    fn forget(&mut self, gone: Range<usize>) {
        let mut place = 0;
        while place < self.used {
            let pages = self.mapped[place];
            if pages.end <= gone.start || gone.end <= pages.base {
                place += 1;
                continue;
            }
            self.used -= 1;
            self.mapped[place] = self.mapped[self.used];
            for (base, end) in [(pages.base, gone.start), (gone.end, pages.end)] {
                if base < end && self.used < MAPPED_MAX {
                    self.add(MappedPages { base, end, ..pages });
                }
            }
        }
        COUNT.store(self.used, Ordering::Relaxed);
    }

    /// Has the kernel watch pages, if it can.
    fn watch(&mut self, at: *mut c_void, len: usize) {
        if !self.was_asked {
            (self.eye, self.was_asked) = (WrittenPages::begin().ok(), true);
        }
        // Pages that it does not watch count as written.
        let _ = self.eye.as_ref().map(|eye| eye.watch(at, len));
    }

    /// Has what was stored to these addresses, which are mapped, written back.
    fn flush(&self, range: Range<usize>) {
        let eye = self.eye.as_ref().filter(|_| range.len() > UNASKED_BYTES);
        let Some(eye) = eye else { return flush(range) };
        if flush_few(eye, &range) {
            return;
        }
        let mut told = [WrittenRange::default(); TOLD];
        let mut from = range.start;
        while from < range.end {
            let Ok((written, walked)) = eye.take(from..range.end, &mut told) else {
                return flush(from..range.end);
            };
            written.iter().for_each(|pages| flush(pages.addresses()));
            from = walked.max(from + 1);
        }
    }

    /// The parts of these addresses that are ours.
    fn parts(&self, range: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (start, end) = (range.start, range.end);
        let parts = self.mapped[..self.used].iter().map(move |part| part.base.max(start)..part.end.min(end));
        parts.filter(|part| !part.is_empty())
    }
}

/// Has what was stored to these addresses written back if it is no more than [`KEPT`] pages, and
/// says so.
fn flush_few(eye: &WrittenPages, range: &Range<usize>) -> bool {
    let mut told = [WrittenRange::default(); KEPT + 1];
    let Ok((written, _)) = eye.look(range.clone(), &mut told) else { return false };
    let pages = written.iter().map(|pages| pages.addresses().len() / PAGE_BYTES).sum::<usize>();
    if pages <= KEPT {
        written.iter().for_each(|pages| flush(pages.addresses()));
    }
    pages <= KEPT
}

/// Has mapped bytes written back.
fn flush(range: Range<usize>) {
    let at = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: L1: a program does not unmap what it syncs, and `munmap` waits for the table.
    unsafe { MappedRuns::flush(at, range.end - range.start) };
}

fn pause() {
    let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: LATER_PAUSE.subsec_nanos().into() };
    let _ = rustix::thread::nanosleep(&pause);
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The addresses of `len` bytes from `at` on, in whole pages.
fn pages(at: *mut c_void, len: usize) -> Range<usize> {
    let start = at.addr();
    start..start.saturating_add(len.checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX))
}

/// Makes durable what was stored to these addresses. Whether all of them are ours.
pub(crate) fn sync(at: *mut c_void, len: usize) -> Result<bool, Errno> {
    let range = pages(at, len);
    with(|table| {
        let mut ours = 0;
        for part in table.parts(&range) {
            ours += part.end - part.start;
            table.flush(part);
        }
        if ours > 0 {
            MappedRuns::fence();
        }
        ours == range.end - range.start
    })
}

/// Makes durable what was stored to the mapped pages of a descriptor's file.
pub(crate) fn sync_file(fd: c_int) -> Result<(), Errno> {
    if fd < 0 {
        return Ok(());
    }
    // SAFETY: the program is about to sync it; whether it is open, the kernel says.
    let Ok(about) = fstat(unsafe { BorrowedFd::borrow_raw(fd) }) else { return Ok(()) };
    let file = (about.st_dev, about.st_ino);
    with(|table| {
        let own = table.mapped[..table.used].iter().filter(|pages| pages.file == file);
        own.for_each(|pages| table.flush(pages.base..pages.end));
        MappedRuns::fence();
    })
}

/// Whether any of these addresses is ours.
pub(crate) fn is_ours(at: *mut c_void, len: usize) -> bool {
    let range = pages(at, len);
    with(|table| table.parts(&range).next().is_some()).unwrap_or(true)
}

/// Calls `unmap`, which unmaps these addresses or maps others there, and knows afterwards.
pub(crate) fn unmapping<T>(
    (at, len): (*mut c_void, usize),
    is_done: impl FnOnce(&T) -> bool,
    unmap: impl FnOnce() -> T,
) -> Result<T, Errno> {
    with(|table| {
        let done = unmap();
        if is_done(&done) {
            table.forget(pages(at, len));
        }
        done
    })
}
