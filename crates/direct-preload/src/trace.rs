//! A record of each access to a file of a mount, for `tidegate run --trace`.
//!
//! A process takes a chunk of the trace's file for itself, which it maps and fills; then it takes
//! the next one. So a record is in the file as soon as it is made, whatever ends the process.

use crate::process::OwnFile;
use crate::service::has_limit;
use crate::{contexts, process};
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, fstat, tell};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::nanosleep;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use tidegate_file_wire::{AccessKind, AccessRecord, CHUNK_RECORDS, TRACE};
use tidegate_preload_common::lock::Lock;
use tidegate_program_context::StackTop;
use zerocopy::little_endian::U32;

/// Bytes of a chunk: whole pages.
const CHUNK_BYTES: usize = CHUNK_RECORDS * size_of::<AccessRecord>();

/// So often a lock is asked for, a millisecond apart: it is held for microseconds.
const LOCK_TRIES: u32 = 1000;

/// Where the trace is, in the environment, which the program may change: so it is kept.
static PATH: OnceLock<TracePath> = OnceLock::new();

static CHUNK: OwnChunk = OwnChunk { lock: Lock::new(), taken: UnsafeCell::new(None) };

/// Whether a chunk could not be had.
static HAS_NO_ROOM: AtomicBool = AtomicBool::new(false);

/// A path that ends with a zero byte.
struct TracePath([u8; 4096]);

/// The chunk that this process fills.
struct OwnChunk {
    lock: Lock,
    taken: UnsafeCell<Option<TakenChunk>>,
}

/// A chunk, and how many of its records are filled.
struct TakenChunk {
    records: NonNull<AccessRecord>,
    filled: usize,
}

// SAFETY: L2.
unsafe impl Sync for OwnChunk {}

impl OwnChunk {
    /// Calls `act` with the chunk; a signal handler that finds its own thread at it does nothing.
    fn with(&self, act: impl FnOnce(&mut Option<TakenChunk>)) {
        if self.lock.take() {
            // SAFETY: L2.
            act(unsafe { &mut *self.taken.get() });
            self.lock.give();
        }
    }
}

impl TakenChunk {
    /// Takes the next one. `None`: there is no room for it.
    fn take() -> Option<TakenChunk> {
        // The file of all may be longer than one process may make it.
        (!has_limit()).then_some(())?;
        let path = CStr::from_bytes_until_nul(&PATH.get()?.0).ok()?;
        let file = OwnFile::open(path, OFlags::RDWR)?;
        locked(&file)?;
        let taken = TakenChunk::behind(&file);
        // The mapping keeps the open file, and with it the lock.
        flock(&file, FlockOperation::Unlock).ok()?;
        taken
    }

    /// Takes the chunk behind the last one of a file, which nobody else does meanwhile.
    fn behind(file: &OwnFile) -> Option<TakenChunk> {
        let at = u64::try_from(fstat(file).ok()?.st_size).ok()?;
        // Reserved, so that no store to it fails.
        fallocate(file, FallocateFlags::empty(), at, CHUNK_BYTES as u64).ok()?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let mapped = unsafe { mmap(null_mut(), CHUNK_BYTES, access, MapFlags::SHARED, file, at) }.ok()?;
        Some(TakenChunk { records: NonNull::new(mapped.cast())?, filled: 0 })
    }

    /// Stores a record; its kind last, so that what a kill leaves of it is none.
    fn put(&mut self, record: AccessRecord) {
        let kind = record.kind;
        // SAFETY: L2, and there are so many, as `is_full` has said.
        let place = unsafe { self.records.add(self.filled).as_mut() };
        *place = AccessRecord { kind: U32::ZERO, ..record };
        compiler_fence(Ordering::Release);
        place.kind = kind;
        self.filled += 1;
    }

    fn is_full(&self) -> bool {
        self.filled == CHUNK_RECORDS
    }
}

impl Drop for TakenChunk {
    fn drop(&mut self) {
        // SAFETY: it was mapped with so many bytes, and nobody reaches it any more. If it stays
        // mapped, memory is lost and no more.
        let _ = unsafe { munmap(self.records.as_ptr().cast(), CHUNK_BYTES) };
    }
}

/// Locks the trace's file. `None`: whoever has it does not come on, and is not waited for.
fn locked(file: &OwnFile) -> Option<()> {
    let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    (0..LOCK_TRIES).find_map(|_| {
        let locked = flock(file, FlockOperation::NonBlockingLockExclusive).ok();
        if locked.is_none() {
            // A shorter pause is one too.
            let _ = nanosleep(&pause);
        }
        locked
    })
}

/// Looks whether accesses are to be recorded. Before the program begins.
pub(crate) fn start() {
    let Some(said) = process::said(TRACE).map(CStr::to_bytes_with_nul) else { return };
    let mut path = TracePath([0; 4096]);
    let Some(room) = path.0.get_mut(..said.len()) else { return };
    room.copy_from_slice(said);
    // It is the first one.
    let _ = PATH.set(path);
}

/// Whether accesses are recorded.
#[inline]
pub(crate) fn is_on() -> bool {
    PATH.get().is_some()
}

/// Records an access that was carried out, to the file with this device and inode.
#[cold]
pub(crate) fn record(top: StackTop, (device, inode): (u64, u64), (offset, bytes): (u64, u64), kind: AccessKind) {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let record = AccessRecord {
        at_ns: (seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)).into(),
        context: contexts::found(top).into(),
        device: device.into(),
        inode: inode.into(),
        offset: offset.into(),
        bytes: u32::try_from(bytes).unwrap_or(u32::MAX).into(),
        kind: kind.word().into(),
    };
    CHUNK.with(|taken| {
        if taken.as_ref().is_none_or(TakenChunk::is_full) && !HAS_NO_ROOM.load(Ordering::Relaxed) {
            *taken = TakenChunk::take();
            // It is not tried at each access.
            HAS_NO_ROOM.store(taken.is_none(), Ordering::Relaxed);
        }
        match taken {
            Some(chunk) => chunk.put(record),
            // The program goes on, and `tidegate run` tells.
            None => contexts::lost_record(),
        }
    });
}

/// In a child that was forked: the chunk is its parent's.
pub(crate) fn forget() {
    CHUNK.lock.reset();
    CHUNK.with(|taken| *taken = None);
}

/// Where a descriptor's position is.
pub(crate) fn position(fd: i32) -> u64 {
    // SAFETY: the program has just used it; whether it is open, the kernel says.
    tell(unsafe { BorrowedFd::borrow_raw(fd) }).unwrap_or(0)
}
