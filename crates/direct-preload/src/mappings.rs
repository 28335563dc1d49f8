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
//! With what it flushes it says when that was stored (`Times`), also before it unmaps pages that
//! were stored to, and when the program ends.
//!
//! Programs that know nothing of this may have their mappings upgraded: see
//! `mappings/upgrades.rs`.
//!
//! Where there is no room for all pages, they come when they are touched: see
//! `mappings/misses.rs`. What `mlock` does is in `mappings/pins.rs`.
//!
//! A child of `fork` has the mappings too, and the locks with them; the kernel watches none of its
//! pages then.

mod aliases;
mod misses;
mod pins;
mod signals;
mod touch_threads;
mod upgrades;

pub(crate) use misses::{after_fork, after_fork_in_child, before_fork, drop_cache};
pub(crate) use pins::{Presence, lock, lock_all, unlock, unlock_all};
pub(crate) use upgrades::{any_upgraded, are_wanted, before_read_by_kernel, give_back_range, start};

use crate::mappings::misses::AllPaged;
use crate::mappings::pins::AllPins;
use crate::mappings::signals::HeldSignals;
use crate::mappings::touch_threads::TOUCH_THREADS;
use crate::mappings::upgrades::UPGRADED;
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
use tidegate_process_mappings::{KernelMappings, MappedPages, MappedRanges, Pin, Reach, Times};
use zerocopy::little_endian::{U32, U64};

/// Asks for pages of the pool. The kernel's headers have no flag of this value, and refuse one
/// beside `MAP_SHARED_VALIDATE` that they do not have. See `include/tidegate-mappings.h`.
pub(crate) const MAP_DAX: c_int = 0x0100_0000;

/// Has pages of the pool go. The kernel has no advice of this number. See
/// `include/tidegate-mappings.h`.
pub(crate) const MADV_DROPCACHE: c_int = 0x4d44;

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

/// What is mapped, behind its lock.
struct Table {
    mapped: MappedRanges,
    /// Mappings of the kernel's pages, if they may be upgraded.
    kernel: KernelMappings,
    /// None: the kernel does not tell what is written, or was not asked yet.
    eye: Option<WrittenPages>,
    was_asked: bool,
    /// Room for messages: the stack may be small.
    map: Map,
    pool: PoolDescription,
    all: AllPaged,
    pins: AllPins,
    /// While a child is made.
    forking: Option<HeldSignals>,
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
    time_page: U32::ZERO,
    runs: [NO_RUN; MAP_RUNS_MAX],
};

static MAPPINGS: Mappings = Mappings {
    lock: Lock::new(),
    table: UnsafeCell::new(Table {
        mapped: MappedRanges::NONE,
        kernel: KernelMappings::NONE,
        eye: None,
        was_asked: false,
        map: NO_MAP,
        pool: NO_POOL,
        all: AllPaged::NONE,
        pins: AllPins::NONE,
        forking: None,
    }),
};

/// How many there are in the table: nothing else is looked at where there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has anything mapped.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Calls `act` with the table. An error: this very thread is at it, below a signal handler. Where
/// there are absent pages no handler runs meanwhile: it might wait for one, and whoever brings it
/// for the table.
fn with<T>(act: impl FnOnce(&mut Table) -> T) -> Result<T, Errno> {
    let mut held = TOUCH_THREADS.is_started().then(HeldSignals::new);
    loop {
        if !MAPPINGS.lock.take() {
            return Err(Errno::BUSY);
        }
        if held.is_some() || !TOUCH_THREADS.is_started() {
            break;
        }
        // The first absent pages came meanwhile.
        MAPPINGS.lock.give();
        held = Some(HeldSignals::new());
    }
    // SAFETY: L2.
    let done = act(unsafe { &mut *MAPPINGS.table.get() });
    MAPPINGS.lock.give();
    Ok(done)
}

/// In a child: the mappings are there, and the kernel watches none of them. Its descriptors are
/// about the parent. Where there are none, the child has those watched that it makes.
pub(crate) fn forget_eye() {
    MAPPINGS.lock.reset();
    TOUCH_THREADS.reset();
    let _ = with(|table| {
        table.forget_present();
        table.forget_pins();
        (table.eye, table.was_asked) = (None, table.mapped.iter().next().is_some());
        table.kernel.forget_all();
        table.count();
        table.mapped.iter_mut().for_each(|pages| pages.times.uncount());
    });
}

/// The program ends: it says what it has not said yet of pages that it mapped itself.
pub(crate) fn end() {
    let _ = with(|table| {
        while let Some(times) = table.counted() {
            let is_stored = |pages: &MappedPages| pages.times.is_at(&times) && table.was_stored(pages);
            if table.mapped.iter().any(is_stored) {
                times.say();
            }
            times.has_said_all();
            let own = table.mapped.iter_mut().filter(|pages| pages.times.is_at(&times));
            own.for_each(|pages| pages.times.uncount());
        }
    });
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
        let file = (about.st_dev, about.st_ino);
        let place = (from, len);
        // The pages may come when they are touched.
        let is_paged =
            self.flags & libc::MAP_POPULATE == 0 && about.st_size.cast_unsigned() >= from.saturating_add(len as u64);
        if is_paged
            && self.flags & libc::MAP_NORESERVE != 0
            && flags & OFlags::RWMODE == OFlags::RDWR
            && with(|table| lends(self.fd, &mut table.pool))?
            && let Some(mapped) = self.map_paged(place, file)
        {
            return mapped.and_then(|base| pins::pin_new(base, len).map(|()| base));
        }
        let mapped = match self.map_present(place, file, flags) {
            Err(Errno::NOMEM) if is_paged => self.map_paged(place, file).unwrap_or(Err(Errno::NOMEM)),
            mapped => mapped,
        };
        mapped.and_then(|base| pins::pin_new(base, len).map(|()| base))
    }

    /// Maps pages that are all present.
    fn map_present(&self, (from, len): (u64, usize), file: (u64, u64), flags: OFlags) -> Result<*mut c_void, Errno> {
        with(|table| {
            if !lends(self.fd, &mut table.pool) {
                return Err(Errno::OPNOTSUPP);
            }
            if flags & OFlags::RWMODE != OFlags::RDWR {
                return Err(Errno::ACCESS);
            }
            // No file's pages have more room than that.
            if !table.mapped.has_room() || len as u64 > table.pool.bytes.get() {
                return Err(Errno::NOMEM);
            }
            let pool = table.number_of_pool()?;
            let mut times = table.times_of(file);
            let mapped = self.mapped(table, (from, len), &mut times);
            let Ok(base) = mapped else {
                table.end_unused(times);
                return mapped;
            };
            table.forget(&(base.addr()..base.addr() + len), times);
            let (start, access) = (base.addr(), self.access);
            let end = start + len;
            let (paged, pin) = (None, Pin::Loose);
            table.mapped.add(MappedPages { base: start, end, file, times, access, paged, pool, pin });
            table.count();
            table.watch(base, len);
            Ok(base)
        })?
    }

    /// The flags that say where.
    fn place_flags(&self) -> c_int {
        self.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE)
    }

    fn mapped(&self, table: &mut Table, (from, len): (u64, usize), times: &mut Times) -> Result<*mut c_void, Errno> {
        // Before any address is taken: most refusals come here.
        table.ask(self.fd, from, len)?;
        let how = MapFlags::from_bits_retain(self.place_flags().cast_unsigned());
        if how.contains(MapFlags::FIXED) {
            table.say(&pages(self.at, len));
        }
        // SAFETY: L1.
        let runs = unsafe { MappedRuns::reserve(self.at, len, how) }.map_err(errno_of)?;
        let mut done = 0;
        while done < len {
            match table.put(&runs, self, (from, len, done), times) {
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
            self.map.count = self.all.asks_with.into();
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
                    self.map.time_page.get().hash(&mut hasher);
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
        wanted: &Wanted,
        (from, len, done): (u64, usize, usize),
        times: &mut Times,
    ) -> Result<usize, Errno> {
        let access = ProtFlags::from_bits_retain(wanted.access.cast_unsigned());
        for _ in 0..TRIES {
            let seen = self.ask(wanted.fd, from + done as u64, len - done)?;
            if !times.is_page(self.map.time_page.get()) {
                self.end_unused(*times);
                *times = Times::NONE;
            }
            let mapped = self.put_told(runs, (done, len - done), access, times)?;
            if self.ask(wanted.fd, from + done as u64, len - done)? == seen {
                return Ok(mapped);
            }
        }
        Err(Errno::AGAIN)
    }

    /// Maps the pages that the service told.
    fn put_told(
        &self,
        runs: &MappedRuns,
        (done, most): (usize, usize),
        access: ProtFlags,
        times: &mut Times,
    ) -> Result<usize, Errno> {
        // SAFETY: L2: the description is the table's, which stays, and is not written before this
        // thread gives the lock.
        let pool: &'static PoolDescription = unsafe { &*std::ptr::from_ref(&self.pool) };
        let (mut mapped, mut outcome) = (0, Err(Errno::IO));
        PoolFile::new(pool).open(&mut |file| {
            let page = self.map.time_page.get();
            if !times.is_page(page) {
                match Times::map(file, page) {
                    Ok(mapped) => *times = mapped,
                    Err(errno) => return outcome = Err(errno),
                }
            }
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

    fn count(&self) {
        COUNT.store(self.mapped.count() + self.kernel.count(), Ordering::Relaxed);
        UPGRADED.store(self.count_upgraded(), Ordering::Relaxed);
    }

    /// Where this process says when it stored to pages of a file.
    fn times_of(&self, file: (u64, u64)) -> Times {
        self.mapped.iter().find(|pages| pages.file == file).map_or(Times::NONE, |pages| pages.times)
    }

    /// Where this process has still to say that it ended.
    fn counted(&self) -> Option<Times> {
        self.mapped.iter().map(|pages| pages.times).find(Times::is_counted)
    }

    /// Gives a time page back, unless pages are mapped whose times are said there.
    fn end_unused(&self, times: Times) {
        if !self.mapped.iter().any(|pages| pages.times.is_at(&times)) {
            times.end();
        }
    }

    /// Says of those of these addresses that were stored to since the last look that they were.
    fn say(&self, range: &Range<usize>) {
        let stored = self.mapped.parts(range).filter(|part| self.was_stored(part));
        stored.for_each(|part| part.times.say());
    }

    /// Whether any of these pages may have been stored to.
    fn was_stored(&self, pages: &MappedPages) -> bool {
        match self.paged_of(pages) {
            Some(paged) => self.was_paged_stored(&paged, pages.addresses()),
            None => self.was_stored_at(pages.addresses()),
        }
    }

    /// Whether any of these addresses, which are mapped, may have been stored to.
    fn was_stored_at(&self, range: Range<usize>) -> bool {
        let mut told = [WrittenRange::default(); 1];
        let looked = self.eye.as_ref().and_then(|eye| eye.look(range, &mut told).ok());
        looked.is_none_or(|(written, _)| !written.is_empty())
    }

    /// Nothing of these addresses is ours any more. These times are still used.
    fn forget(&mut self, gone: &Range<usize>, used: Times) {
        while let Some(pages) = self.mapped.take(gone) {
            if !pages.times.is_at(&used) {
                self.end_unused(pages.times);
            }
            self.is_gone(&pages);
        }
        self.charge_less();
        self.end_unmapped();
        self.count();
    }

    /// From now on the process has this access to these addresses.
    fn has_access(&mut self, range: &Range<usize>, access: c_int) {
        while let Some(pages) = self.mapped.take_if(range, |pages| pages.access != access) {
            self.mapped.add(MappedPages { access, ..pages });
        }
        self.count();
    }

    /// Has the kernel watch pages, if it can.
    fn watch(&mut self, at: *mut c_void, len: usize) {
        self.begin_to_watch();
        // Pages that it does not watch count as written.
        let _ = self.eye.as_ref().map(|eye| eye.watch(at, len));
    }

    fn begin_to_watch(&mut self) {
        if !self.was_asked {
            (self.eye, self.was_asked) = (WrittenPages::begin().ok(), true);
        }
    }

    /// Has what was stored to these pages written back, and says so.
    fn flush(&self, pages: &MappedPages) {
        let flushed = || match self.paged_of(pages) {
            Some(paged) => self.flush_paged(&paged, pages.addresses()),
            None => self.flush_stored(pages.addresses()),
        };
        if pages.reach() == Reach::Readable && flushed() {
            pages.times.say();
        }
    }

    /// Has what was stored to these addresses written back. False: that was nothing.
    fn flush_stored(&self, range: Range<usize>) -> bool {
        if range.is_empty() {
            return false;
        }
        let eye = self.eye.as_ref().filter(|_| range.len() > UNASKED_BYTES);
        let Some(eye) = eye else { return flush(range) };
        if let Some(pages) = flush_few(eye, &range) {
            return pages > 0;
        }
        let mut told = [WrittenRange::default(); TOLD];
        let (mut from, mut any) = (range.start, false);
        while from < range.end {
            let Ok((written, walked)) = eye.take(from..range.end, &mut told) else {
                return flush(from..range.end);
            };
            any |= !written.is_empty();
            written.iter().for_each(|pages| _ = flush(pages.addresses()));
            from = walked.max(from + 1);
        }
        any
    }
}

/// Has what was stored to these addresses written back if it is no more than [`KEPT`] pages, and
/// says how many.
fn flush_few(eye: &WrittenPages, range: &Range<usize>) -> Option<usize> {
    let mut told = [WrittenRange::default(); KEPT + 1];
    let (written, _) = eye.look(range.clone(), &mut told).ok()?;
    let pages = written.iter().map(|pages| pages.addresses().len() / PAGE_BYTES).sum::<usize>();
    if pages > KEPT {
        return None;
    }
    written.iter().for_each(|pages| _ = flush(pages.addresses()));
    Some(pages)
}

/// Has mapped bytes written back. True: they may have been stored to.
fn flush(range: Range<usize>) -> bool {
    let at = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: L1: a program does not unmap what it syncs, and `munmap` waits for the table.
    unsafe { MappedRuns::flush(at, range.end - range.start) };
    true
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
        for part in table.mapped.parts(&range) {
            ours += part.addresses().len();
            table.flush(&part);
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
        table.mapped.iter().filter(|pages| pages.file == file).for_each(|pages| table.flush(pages));
        MappedRuns::fence();
    })
}

/// Whether a thread that touches these addresses may have to wait for them.
pub(crate) fn may_wait(at: *const c_void, len: usize) -> bool {
    let range = pages(at.cast_mut(), len);
    let is_paged = |table: &mut Table| table.mapped.parts(&range).any(|part| part.paged.is_some());
    TOUCH_THREADS.is_started() && with(is_paged).unwrap_or(true)
}

/// Counts a sync of these addresses, which the kernel has made. If they were synced often, their
/// mapping is upgraded, if `is_own` says that no other process has its descriptor. An error is one
/// of the file's.
pub(crate) fn after_kernel_sync(at: *mut c_void, len: usize, is_own: fn(c_int) -> bool) -> Result<(), Errno> {
    upgrades::after_kernel_sync(at, len, |fd| is_own(fd).then(|| TOUCH_THREADS.started(&misses::WORK).ok())?)
}

/// Whether anything is known of these addresses: they have pages of the pool, or of the kernel's
/// that may be upgraded.
pub(crate) fn is_known(at: *mut c_void, len: usize) -> bool {
    let range = pages(at, len);
    with(|table| table.kernel.has(&range) || table.mapped.parts(&range).next().is_some()).unwrap_or(true)
}

/// Calls `remap`, which makes `new_len` bytes of these addresses, of the kernel's pages, and knows
/// afterwards.
pub(crate) fn moving(
    (at, len): (*mut c_void, usize),
    (new_len, flags): (usize, c_int),
    remap: impl Fn() -> *mut c_void,
) -> *mut c_void {
    let range = pages(at, len.max(1));
    let moved = with(|table| {
        let is_known = table.kernel.has(&range);
        let moved = remap();
        if moved != libc::MAP_FAILED {
            // With either, both places have the pages then.
            if is_known && (len == 0 || flags & libc::MREMAP_DONTUNMAP != 0) {
                table.kernel.give_up();
            } else {
                table.kernel.moves(&range, moved.addr(), new_len.next_multiple_of(PAGE_BYTES));
            }
            table.count();
        }
        moved
    });
    moved.unwrap_or_else(|_| remap())
}

/// Whether any of these addresses is ours.
pub(crate) fn is_ours(at: *mut c_void, len: usize) -> bool {
    let range = pages(at, len);
    with(|table| table.mapped.parts(&range).next().is_some()).unwrap_or(true)
}

/// Calls `unmap`, which unmaps these addresses or maps others there, and knows afterwards.
pub(crate) fn unmapping<T>(
    (at, len): (*mut c_void, usize),
    is_done: impl FnOnce(&T) -> bool,
    unmap: impl FnOnce() -> T,
) -> Result<T, Errno> {
    let range = pages(at, len);
    with(|table| table.replacing(&range, is_done, unmap))?
}

impl Table {
    /// Calls `replace`, which unmaps these addresses or maps others there, and knows afterwards.
    fn replacing<T>(
        &mut self,
        gone: &Range<usize>,
        is_done: impl FnOnce(&T) -> bool,
        replace: impl FnOnce() -> T,
    ) -> Result<T, Errno> {
        if !self.mapped.has_room_without(gone) {
            return Err(Errno::NOMEM);
        }
        self.say(gone);
        let done = replace();
        if is_done(&done) {
            self.kernel.cut(gone);
            self.forget(gone, Times::NONE);
        }
        Ok(done)
    }
}

/// Calls `protect`, which changes the access to these addresses, some of which are ours, to this
/// one. Before the process may not load from them any more, what it stored is flushed: a later
/// `msync` cannot.
pub(crate) fn protecting(
    (at, len): (*mut c_void, usize),
    access: c_int,
    mut protect: impl FnMut(c_int) -> c_int,
) -> Result<c_int, Errno> {
    let (range, reach) = (pages(at, len), Reach::of(access));
    with(|table| {
        if table.mapped.parts(&range).next().is_none() {
            let done = protect(access);
            if done == 0 {
                table.kernel.has_access(&range, access);
            }
            return Ok(done);
        }
        if !table.mapped.has_room() {
            return Err(Errno::NOMEM);
        }
        if reach == Reach::Barred {
            // From here on no other thread stores to them.
            if protect(libc::PROT_READ) != 0 {
                return Ok(-1);
            }
            table.mapped.parts(&range).for_each(|part| table.flush(&part));
            MappedRuns::fence();
            // If that is refused, they can be read: another look does no harm.
            table.has_access(&range, access);
            let done = protect(access);
            if done != 0 {
                table.has_access(&range, libc::PROT_READ);
            }
            return Ok(done);
        }
        let done = protect(access);
        if done == 0 {
            table.kernel.has_access(&range, access);
            table.has_access(&range, access);
        }
        Ok(done)
    })?
}
