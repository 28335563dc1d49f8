//! Mapped memory, and the one place of unsafe code that touches it.
//!
//! The law, which every proof below cites by number:
//!
//! 1. A [`Mapping`] owns `base..base + len`: mapped when it is made, unmapped only when it is
//!    dropped, and both numbers never change.
//! 2. That memory is touched by leaf routines only (assembly, opaque to the compiler), never
//!    through a reference, so other threads and other processes may change it at any time.
//! 3. Every offset and length is checked against `len` before a leaf routine gets an address, and
//!    the other side of each copy is a slice of the same length.
//! 4. A leaf routine uses no stack and only registers that a caller does not keep, so a fault may
//!    abandon it at any instruction. The SIGBUS handler is installed before the first mapping.
//! 5. An [`Instructions`] names only instructions that this processor has: `supported` is its only
//!    source.
//! 6. A [`ProtectionKey`] is only ever one that the kernel gave. Memory that has it is touched by
//!    threads that have it open, and every verb of a [`Mapping`] opens the key of its own for as
//!    long as it runs.

#[cfg(target_arch = "x86_64")]
#[path = "memory/leaf_x86_64.rs"]
mod leaf;

#[cfg(target_arch = "aarch64")]
#[path = "memory/leaf_aarch64.rs"]
mod leaf;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("Tidegate knows how to make stores durable on x86-64 and aarch64 only");

#[cfg(target_arch = "x86_64")]
#[path = "memory/key_x86_64.rs"]
mod key;

#[cfg(not(target_arch = "x86_64"))]
#[path = "memory/key_none.rs"]
mod key;

mod sigbus;

pub use key::{OpenKey, ProtectionKey};

use crate::region::LINE_BYTES;
use rustix::fd::BorrowedFd;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

type LinesRoutine = unsafe extern "C" fn(*mut u8, *const u8, usize) -> LeafResult;
type PageRoutine = unsafe extern "C" fn(*mut u8, *const u8) -> LeafResult;
type FlushRoutine = unsafe extern "C" fn(*const u8, usize) -> LeafResult;

const LINE: usize = 64;
const _: () = assert!(LINE as u64 == LINE_BYTES && usize::BITS == 64);

/// Below this many bytes a copy goes word by word.
const LINES_BYTES_MIN: usize = 256;

/// The usual block, and what the processor's own prefetching does not look beyond.
const PAGE: usize = 4096;

/// Says that the first line of `value` is about to be stored to, so that it is fetched from another
/// core while something else is done.
pub fn prefetch_for_store<T>(value: &T) {
    leaf::prefetch_for_store(ptr::from_ref(value).cast());
}

/// What a leaf routine answers, in two registers.
#[derive(Clone, Copy)]
#[repr(C)]
struct LeafResult {
    /// 0: done. 1: abandoned at a fault.
    failed: u64,
    /// The word loaded, or the address that faulted.
    word: usize,
}

/// The medium refused the access to the byte at this offset of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessRefused(pub(crate) u64);

/// The instructions that move data to the medium, chosen once when a region is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions {
    bulk: leaf::Bulk,
    /// None where the processor's caches survive a power cut.
    flush: Option<leaf::FlushInstruction>,
}

impl Instructions {
    /// The best this processor has. With `caches_survive` (an eADR or GPF domain) flushes become
    /// nothing.
    pub(crate) fn best(caches_survive: bool) -> Instructions {
        let flush = leaf::FlushInstruction::supported().next().filter(|_| !caches_survive);
        let bulk = leaf::Bulk::supported().next().expect("every processor has one set of vector registers");
        Instructions { bulk, flush }
    }

    /// Every combination this processor can run.
    #[cfg(test)]
    pub(crate) fn supported() -> Vec<Instructions> {
        let flushes = leaf::FlushInstruction::supported().map(Some).chain([None]).collect::<Vec<_>>();
        let bulks = leaf::Bulk::supported();
        bulks.flat_map(|bulk| flushes.iter().map(move |&flush| Instructions { bulk, flush })).collect()
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stores, {}", self.bulk.name(), self.flush.map_or("no flush needed", leaf::FlushInstruction::name))
    }
}

/// How the pages of a mapping relate to the file below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Stores change the file.
    Shared,
    /// Stores change the file on a DAX file system, whose own metadata is durable before a page can
    /// be stored to.
    Synchronous,
    /// Stores change a private copy of the page; the file never changes.
    Private,
    /// Loads only: of a device that cannot be mapped privately, or of a file that others write.
    ReadOnly,
}

/// The first word of a page that lives as long as the process, and that the kernel wipes in its
/// children; None: it does not do that.
pub(crate) fn forgotten_in_children() -> Option<&'static AtomicU64> {
    let page = rustix::param::page_size();
    // SAFETY: with no address asked for, a new mapping overlaps no other.
    let base = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), page, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .ok()?;
    // SAFETY: the mapping was made just now, and nobody else knows its address.
    if unsafe { rustix::mm::madvise(base, page, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above; nothing is left of it.
        let _ = unsafe { rustix::mm::munmap(base, page) };
        return None;
    }
    // SAFETY: it is zeroed, aligned, never unmapped, and used as this atomic only.
    Some(unsafe { AtomicU64::from_ptr(base.cast()) })
}

/// Mapped memory; law 1.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    sharing: Sharing,
    /// What closes it to all but its verbs, if anything does.
    key: Option<ProtectionKey>,
}

// SAFETY: law 2; no thread owns any part of the memory, and the two numbers never change.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: law 1; this is the owner's end, and no address outlives it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Mapping {
    /// Maps the first `len` bytes of `file`.
    pub(crate) fn of_file(file: BorrowedFd<'_>, len: usize, sharing: Sharing) -> io::Result<Mapping> {
        sigbus::install()?;
        Mapping::of_part(file, 0, len, sharing)
    }

    /// Maps `len` bytes of `file` from byte `at` on, a multiple of the size of a page. EBUSY while
    /// another thread installs the handler of SIGBUS.
    pub(crate) fn of_part(file: BorrowedFd<'_>, at: u64, len: usize, sharing: Sharing) -> io::Result<Mapping> {
        sigbus::try_install()?;
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        let (protection, flags) = match sharing {
            Sharing::Shared => (read_write, MapFlags::SHARED),
            Sharing::Synchronous => (read_write, MapFlags::SHARED_VALIDATE | MapFlags::SYNC),
            Sharing::Private => (read_write, MapFlags::PRIVATE | MapFlags::NORESERVE),
            Sharing::ReadOnly => (ProtFlags::READ, MapFlags::SHARED),
        };
        // SAFETY: with no address asked for, a new mapping overlaps no other.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, protection, flags, file, at) }?;
        Mapping::owned(base, len, sharing)
    }

    /// Maps `len` bytes of zeroed memory that no file keeps.
    pub(crate) fn anonymous(len: usize) -> io::Result<Mapping> {
        sigbus::install()?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: with no address asked for, a new mapping overlaps no other.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, protection, flags) }?;
        Mapping::owned(base, len, Sharing::Private)
    }

    fn owned(base: *mut std::ffi::c_void, len: usize, sharing: Sharing) -> io::Result<Mapping> {
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Mapping { base, len, sharing, key: None })
    }

    /// Whether `file` lies on a DAX file system that keeps its own metadata durable (MAP_SYNC works
    /// on it).
    pub(crate) fn is_synchronous(file: BorrowedFd<'_>) -> bool {
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        let page = rustix::param::page_size();
        // SAFETY: with no address asked for, a new mapping overlaps no other; nothing touches it.
        let Ok(base) = (unsafe { rustix::mm::mmap(ptr::null_mut(), page, ProtFlags::READ, flags, file, 0) }) else {
            return false;
        };
        // SAFETY: this mapping was made just now, and nobody else knows its address.
        let _ = unsafe { rustix::mm::munmap(base, page) };
        true
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Makes anonymous memory read as zeroes again.
    pub(crate) fn forget_contents(&self) -> io::Result<()> {
        // SAFETY: laws 1 and 2; the pages stay mapped, and nobody holds a reference to what they
        // lose.
        Ok(unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontNeed) }?)
    }

    /// Children that are forked do not have it.
    pub(crate) fn keep_from_children(&self) -> io::Result<()> {
        // SAFETY: law 1; the pages stay as they are here.
        Ok(unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontFork) }?)
    }

    /// Who reads a page of it will not read the next one.
    pub(crate) fn expect_no_order(&self) -> io::Result<()> {
        // SAFETY: law 1; the pages stay as they are.
        Ok(unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::Random) }?)
    }

    /// Has the kernel make all of its pages present at once: a fault for each costs more than the
    /// copy of its bytes. What cannot be made so is when it is touched.
    pub(crate) fn populate(&self) {
        // The kernel looks at the key.
        let _open = self.open();
        // SAFETY: law 1; the pages keep their bytes.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxPopulateWrite) };
    }

    /// Nothing in this process reaches it but its verbs, if there are protection keys.
    pub(crate) fn keep_from_strays(&mut self) {
        // SAFETY: laws 1 and 6; of a shared mapping that can be stored to, and so can it be
        // afterwards.
        let closed = |key: &ProtectionKey| unsafe { key.close(self.base.as_ptr().cast(), self.len) };
        self.key = ProtectionKey::of_process().filter(closed);
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.key.is_some()
    }

    #[cfg(test)]
    pub(crate) fn address_of(&self, at: u64) -> usize {
        self.address(at, 0).addr()
    }

    /// Opens it for the time of a verb.
    fn open(&self) -> Option<OpenKey> {
        self.key.map(ProtectionKey::open)
    }

    /// Copies `out.len()` bytes from offset `at`.
    pub(crate) fn read(&self, how: Instructions, at: u64, out: &mut [u8]) -> Result<(), AccessRefused> {
        let from = self.address(at, out.len());
        let _open = self.open();
        if out.len() == PAGE && from.addr().is_multiple_of(LINE) {
            // SAFETY: laws 3, 4 and 5; `out` is a page, as long as the checked range.
            return self.answer(unsafe { how.bulk.copy_page()(out.as_mut_ptr(), from) });
        }
        // SAFETY: laws 3, 4 and 5; `out` is as long as the checked range.
        self.answer(unsafe { copy(how.bulk.copy_lines(), out.as_mut_ptr(), from, out.len(), from) })
    }

    /// Loads the aligned word at `at`.
    pub(crate) fn load(&self, at: u64) -> Result<u64, AccessRefused> {
        let at = self.word_address(at);
        let _open = self.open();
        // SAFETY: laws 3 and 4.
        let outcome = unsafe { leaf::load_word(at) };
        self.answer(outcome).map(|()| outcome.word as u64)
    }

    /// Stores the aligned word at `at`.
    pub(crate) fn store(&self, at: u64, word: u64) -> Result<(), AccessRefused> {
        self.check_writable(at)?;
        let at = self.word_address(at);
        let _open = self.open();
        // SAFETY: laws 3 and 4.
        self.answer(unsafe { leaf::store_word(at, word) })
    }

    /// Stores `new` in the aligned word at `at` if `old` is there. What was there.
    pub(crate) fn exchange(&self, at: u64, old: u64, new: u64) -> Result<u64, AccessRefused> {
        self.check_writable(at)?;
        let at = self.word_address(at);
        let _open = self.open();
        // SAFETY: laws 3 and 4.
        let outcome = unsafe { leaf::exchange_word(at, old, new) };
        self.answer(outcome).map(|()| outcome.word as u64)
    }

    /// Wakes whoever waits by futex for the first half of the aligned word at `at`, in whichever
    /// process. That half is the lower one on every processor that this runs on.
    pub(crate) fn wake(&self, at: u64) -> io::Result<()> {
        let at = self.word_address(at);
        // The kernel looks at the key.
        let _open = self.open();
        // SAFETY: laws 1, 3 and 6; the kernel takes no more than the place of the word.
        match unsafe { libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAKE, i32::MAX) } {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Copies `bytes` to offset `at`.
    pub(crate) fn write(&self, how: Instructions, at: u64, bytes: &[u8]) -> Result<(), AccessRefused> {
        self.check_writable(at)?;
        let to = self.address(at, bytes.len());
        let _open = self.open();
        // SAFETY: laws 3, 4 and 5; `bytes` is as long as the checked range.
        self.answer(unsafe { copy(how.bulk.copy_lines(), to, bytes.as_ptr(), bytes.len(), to) })
    }

    /// Copies `bytes` to offset `at` past the caches: whole lines, and whole words of the lines at
    /// the ends. What is less goes by a copy and a flush.
    pub(crate) fn stream(&self, how: Instructions, at: u64, bytes: &[u8]) -> Result<(), AccessRefused> {
        self.check_writable(at)?;
        let to = self.address(at, bytes.len());
        let (head, middle) = cut(to, bytes.len());
        let _open = self.open();
        if middle > 0 {
            let (to, from) = (to.wrapping_add(head), bytes[head..head + middle].as_ptr());
            // SAFETY: laws 3, 4 and 5; `cut` keeps inside the range, and `to` begins a line.
            self.answer(unsafe { how.bulk.stream_lines()(to, from, middle) })?;
        }
        for edge in [0..head, head + middle..bytes.len()] {
            if !edge.is_empty() {
                self.stream_edge(how, at + edge.start as u64, &bytes[edge])?;
            }
        }
        Ok(())
    }

    /// Streams less than a line, and not nothing, to offset `at`, all of it in one line. The
    /// mapping is open.
    fn stream_edge(&self, how: Instructions, at: u64, bytes: &[u8]) -> Result<(), AccessRefused> {
        let is_words = at.is_multiple_of(8) && bytes.len().is_multiple_of(8);
        let Some(routine) = leaf::STREAM_WORDS.filter(|_| is_words) else {
            self.write(how, at, bytes)?;
            return self.flush(how, at, bytes.len() as u64);
        };
        let to = self.address(at, bytes.len());
        // SAFETY: laws 3, 4 and 5; whole words, and at least one of them.
        self.answer(unsafe { routine(to, bytes.as_ptr(), bytes.len()) })
    }

    /// Begins the write-back of every line that `at..at + len` touches.
    pub(crate) fn flush(&self, how: Instructions, at: u64, len: u64) -> Result<(), AccessRefused> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let first = self.address(at, len);
        let Some(flush) = how.flush.filter(|_| len > 0 && self.sharing != Sharing::ReadOnly) else { return Ok(()) };
        let lead = first.addr() % LINE;
        let lines = (lead + len).div_ceil(LINE);
        let _open = self.open();
        // SAFETY: laws 3, 4 and 5; a line never reaches over the page that holds a byte of the
        // range.
        self.answer(unsafe { flush.routine()(first.wrapping_sub(lead), lines) })
    }

    /// As [`Mapping::flush`], of memory that is none of a region.
    ///
    /// # Safety
    ///
    /// It is mapped until this returns.
    pub(crate) unsafe fn flush_at(base: NonNull<u8>, len: usize, sharing: Sharing, how: Instructions) {
        let lent = ManuallyDrop::new(Mapping { base, len, sharing, key: None });
        // What the medium refuses it refuses to the program too, which hears of it (SIGBUS).
        let _ = lent.flush(how, 0, len as u64);
    }

    /// As [`Mapping::fence`], of memory that is none of a region.
    pub(crate) fn fence_thread() {
        leaf::fence();
    }

    /// Waits until what this thread flushed or streamed is durable.
    pub(crate) fn fence(&self) {
        leaf::fence();
    }

    /// The address of a range, which lies inside (law 3).
    fn address(&self, at: u64, len: usize) -> *mut u8 {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let inside = start <= self.len && len <= self.len - start;
        assert!(inside, "{len} bytes at offset {at} reach past the end of a region of {} bytes", self.len);
        self.base.as_ptr().wrapping_add(start)
    }

    /// The address of an aligned word, which lies inside (law 3).
    fn word_address(&self, at: u64) -> *mut u8 {
        assert!(at.is_multiple_of(8), "offset {at} is not that of an aligned word");
        self.address(at, 8)
    }

    fn check_writable(&self, at: u64) -> Result<(), AccessRefused> {
        if self.sharing == Sharing::ReadOnly { Err(AccessRefused(at)) } else { Ok(()) }
    }

    /// Turns the address that faulted into its offset here.
    fn answer(&self, outcome: LeafResult) -> Result<(), AccessRefused> {
        if outcome.failed == 0 {
            return Ok(());
        }
        Err(AccessRefused(outcome.word.saturating_sub(self.base.as_ptr().addr()) as u64))
    }
}

/// The processor's tick counter, which runs at a constant rate.
pub(crate) fn ticks() -> u64 {
    leaf::ticks()
}

/// Copies between the region's `side` and a slice: by words when short, else by lines of the
/// region.
///
/// # Safety
/// Laws 3 and 5: `bytes` bytes at both `to` and `from`, one of which is `side`; `routine` runs
/// here.
unsafe fn copy(routine: LinesRoutine, to: *mut u8, from: *const u8, bytes: usize, side: *const u8) -> LeafResult {
    let (head, middle) = if bytes < LINES_BYTES_MIN { (bytes, 0) } else { cut(side, bytes) };
    let parts = [(0, head, false), (head, middle, true), (head + middle, bytes - head - middle, false)];
    let mut outcome = LeafResult { failed: 0, word: 0 };
    for (start, len, lines) in parts {
        if len > 0 && outcome.failed == 0 {
            let (to, from, side) = (to.wrapping_add(start), from.wrapping_add(start), side.wrapping_add(start));
            // SAFETY: the caller's promise; the parts lie in `0..bytes`, and that of lines begins a
            // line of the region.
            outcome = unsafe { if lines { routine(to, from, len) } else { leaf::copy_words(to, from, len, side) } };
        }
    }
    outcome
}

/// Cuts a range of the region into the bytes before its first whole line, its whole lines, and the
/// rest.
fn cut(side: *const u8, bytes: usize) -> (usize, usize) {
    let head = (side.addr().wrapping_neg() % LINE).min(bytes);
    (head, (bytes - head) / LINE * LINE)
}
