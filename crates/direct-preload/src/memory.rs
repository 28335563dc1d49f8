//! The memory of one lease: its log, and the chunks with the blocks that were lent, each mapped
//! when it is first touched. Offsets are those in the pool.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use tidegate_file_wire::PoolDescription;
use tidegate_layout::file_cache::{CHUNK_BYTES, LeaseGrant};
use tidegate_media::{MappedPart, Poison, Region, Sealed};

/// Chunks that one lease has mapped at most; a lease is not lent more than a quarter of a lane.
const PARTS_MAX: usize = 4096;

/// Chunks of a lane that can be told apart: those of 64 GiB.
const CHUNKS_MAX: usize = 1 << 16;

/// The tables of a lease's memory, on pages of their own.
#[repr(C)]
struct Tables {
    /// For each chunk of the lane, one more than its place in `parts`; 0: it is not mapped.
    places: [AtomicU16; CHUNKS_MAX],
    used: AtomicUsize,
    parts: [MaybeUninit<MappedPart>; PARTS_MAX],
    /// Which file the pool is. It is opened for each mapping anew: a descriptor that stayed open
    /// would be one that the program may close.
    pool: PoolDescription,
}

/// See the head of this file.
pub(crate) struct LeaseMemory {
    log: MappedPart,
    log_at: u64,
    blocks_at: u64,
    bytes: u64,
    tables: *mut Tables,
    /// A store was lost: its chunk could not be mapped, or its memory is gone.
    is_lost: AtomicBool,
}

// SAFETY: all of it is behind the lock of a slot (L3), and the tables are this memory's own.
unsafe impl Send for LeaseMemory {}
// SAFETY: likewise.
unsafe impl Sync for LeaseMemory {}

impl LeaseMemory {
    /// The memory of a lease that was just granted, in the pool that is described. The log is
    /// locked when this returns.
    pub(crate) fn of(pool: &PoolDescription, grant: &LeaseGrant) -> Option<LeaseMemory> {
        let file = open(pool)?;
        // The log fills its block: head and elements, rounded up to pages.
        let log_bytes =
            (grant.log.element_at(0) - grant.log.at + u64::from(grant.log.elements) * 32).next_multiple_of(4096);
        let log = MappedPart::of(file.as_fd(), grant.log.at, usize::try_from(log_bytes).ok()?).ok()?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let tables =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), size_of::<Tables>(), access, MapFlags::PRIVATE) }.ok()?;
        let tables: *mut Tables = tables.cast();
        // SAFETY: it was just mapped, and nobody else knows it.
        unsafe { (&raw mut (*tables).pool).write(*pool) };
        Some(LeaseMemory {
            log,
            log_at: grant.log.at,
            blocks_at: grant.blocks_at,
            bytes: pool.bytes.get(),
            tables,
            is_lost: AtomicBool::new(false),
        })
    }

    fn tables(&self) -> &Tables {
        // SAFETY: L4; all zeroes are valid tables.
        unsafe { &*self.tables }
    }

    /// Calls `act` with the part that has these bytes, and where they lie in it. `None`: the lease
    /// has no such memory.
    fn with<T>(&self, at: u64, len: u64, act: impl FnOnce(&MappedPart, u64) -> T) -> Option<T> {
        if let Some(inside) = at.checked_sub(self.log_at).filter(|inside| inside + len <= self.log.len()) {
            return Some(act(&self.log, inside));
        }
        let chunk = at.checked_sub(self.blocks_at)? / CHUNK_BYTES;
        let inside = (at - self.blocks_at) % CHUNK_BYTES;
        (inside + len <= CHUNK_BYTES).then_some(())?;
        Some(act(self.part(chunk)?, inside))
    }

    /// The chunk, mapped now if it is not.
    fn part(&self, chunk: u64) -> Option<&MappedPart> {
        let (tables, number) = (self.tables(), usize::try_from(chunk).ok()?);
        let place = tables.places.get(number)?;
        let mut known = usize::from(place.load(Ordering::Acquire));
        if known == 0 {
            let used = tables.used.load(Ordering::Relaxed);
            let at = self.blocks_at + chunk * CHUNK_BYTES;
            let bytes =
                usize::try_from(CHUNK_BYTES).ok().filter(|_| used < PARTS_MAX && at + CHUNK_BYTES <= self.bytes)?;
            let part = MappedPart::of(open(&tables.pool)?.as_fd(), at, bytes).ok()?;
            // SAFETY: L3, L4: nobody else writes to the tables, and the place is not used yet.
            unsafe {
                (&raw mut (*self.tables).parts)
                    .cast::<MaybeUninit<MappedPart>>()
                    .add(used)
                    .write(MaybeUninit::new(part))
            };
            tables.used.store(used + 1, Ordering::Relaxed);
            known = used + 1;
            place.store(u16::try_from(known).ok()?, Ordering::Release);
        }
        // SAFETY: the place says that the part is there.
        Some(unsafe { tables.parts.get(known - 1)?.assume_init_ref() })
    }

    /// Calls `store` with the part that has these bytes; what has no place is lost.
    fn store(&self, at: u64, len: u64, store: impl FnOnce(&MappedPart, u64)) {
        let stored = self.with(at, len, |part, inside| {
            store(part, inside);
            part.sealed().is_ok()
        });
        if stored != Some(true) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

/// The pool, if what lies at its path is what the service has open.
fn open(pool: &PoolDescription) -> Option<OwnedFd> {
    let bytes = usize::try_from(pool.path_bytes.get()).ok().filter(|bytes| (1..pool.path.len()).contains(bytes))?;
    let path = CStr::from_bytes_until_nul(pool.path.get(..=bytes)?).ok()?;
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let about = fstat(&file).ok()?;
    (about.st_dev == pool.device.get() && about.st_ino == pool.inode.get()).then_some(file)
}

impl Region for LeaseMemory {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let len = out.len() as u64;
        self.with(at, len, |part, inside| part.read(inside, out)).unwrap_or(Err(Poison { at, len }))
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.with(at, 8, |part, inside| part.load_u64(inside)).unwrap_or(Err(Poison { at, len: 8 }))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.store(at, bytes.len() as u64, |part, inside| part.write(inside, bytes));
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.store(at, bytes.len() as u64, |part, inside| part.stream(inside, bytes));
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.store(at, 8, |part, inside| part.store_u64(inside, word));
    }

    fn flush(&self, at: u64, len: u64) {
        self.store(at, len, |part, inside| part.flush(inside, len));
    }

    fn fence(&self) -> Result<(), Sealed> {
        // One fence orders the stores of this thread to any memory.
        self.log.fence()?;
        if self.is_lost.load(Ordering::Relaxed) { Err(Sealed::StoreLost { at: self.blocks_at }) } else { Ok(()) }
    }
}

impl Drop for LeaseMemory {
    fn drop(&mut self) {
        let used = self.tables().used.load(Ordering::Relaxed);
        for place in 0..used.min(PARTS_MAX) {
            // SAFETY: the first `used` parts are there, and nobody uses them any more.
            unsafe { (*self.tables).parts[place].assume_init_drop() };
        }
        // SAFETY: L4; nobody uses the tables any more.
        let _ = unsafe { rustix::mm::munmap(self.tables.cast(), size_of::<Tables>()) };
    }
}
