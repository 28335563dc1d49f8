//! How many bytes of a file each process has pinned: a lock of that length (`F_OFD_SETLK`), far
//! behind the end of every file. Each process has a slot of its own there.
//!
//! A mapping of one page, which no child has, keeps the open file and so the lock: it goes with
//! `exec` and death, in whichever way that comes. Whoever has the file open can sum the locks up.

use crate::mapped::mapped_part::{LockKind, holder, take_lock};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// Where the slots begin: no file is that long.
const SLOTS_AT: u64 = 1 << 62;

/// Bytes of a slot: most that a process can pin.
const SLOT_BYTES: u64 = 1 << 44;

/// Slots: most processes that can pin.
const SLOTS: u64 = 1 << 16;

/// What keeps the lock is a page of the file.
const PAGE_BYTES: usize = 4096;

/// What a charge comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// It is charged.
    Done,
    /// The processes would have more than the limit: nothing has changed.
    BeyondLimit,
}

/// What this process has pinned of one file. Nothing is given back when this is dropped.
#[derive(Debug)]
pub struct PinCharge {
    slot: u64,
    bytes: u64,
    /// The address of the page that keeps the lock, if there are any bytes.
    keeper: usize,
}

impl PinCharge {
    /// Nothing.
    pub const NONE: PinCharge = PinCharge { slot: 0, bytes: 0, keeper: 0 };

    /// Bytes that are charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges so many bytes in all, as long as all processes together have at most `limit`. Fewer
    /// than before are charged in any case. `file` was opened for this, to be read and written, and
    /// is closed afterwards. If two processes ask at once, and there is room for one, both may be
    /// refused. After an error nothing has changed.
    pub fn charge(&mut self, file: BorrowedFd<'_>, bytes: u64, limit: u64) -> io::Result<Charged> {
        if bytes == 0 {
            self.end();
            return Ok(Charged::Done);
        }
        if bytes > SLOT_BYTES {
            return Ok(Charged::BeyondLimit);
        }
        let slot = match self.bytes {
            0 => free_slot(file, bytes)?,
            // Nobody else takes a lock in this slot.
            _ => take_lock(file, LockKind::Shared, start_of(self.slot), bytes).map(|()| self.slot)?,
        };
        // The lock is there first: whoever looks later sees it, so nobody goes beyond the limit.
        if bytes > self.bytes && PinCharge::of_all(file)?.saturating_sub(self.bytes) + bytes > limit {
            return Ok(Charged::BeyondLimit);
        }
        let keeper = keeper_of(file)?;
        self.end();
        *self = PinCharge { slot, bytes, keeper };
        Ok(Charged::Done)
    }

    /// Gives all of it back.
    pub fn end(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it is this one's own, and nobody uses it.
            let _ = unsafe { rustix::mm::munmap(with_exposed_provenance_mut(self.keeper), PAGE_BYTES) };
        }
        self.forget();
    }

    /// In a child of `fork`: its parent has pinned it.
    pub fn forget(&mut self) {
        *self = PinCharge::NONE;
    }

    /// Bytes that all processes have pinned of a file, but for what is charged by this open file.
    pub fn of_all(file: BorrowedFd<'_>) -> io::Result<u64> {
        let (mut bytes, mut at) = (0, SLOTS_AT);
        while let Some(lock) = first_lock(file, at..start_of(SLOTS))? {
            bytes += lock.end - lock.start;
            at = lock.end;
        }
        Ok(bytes)
    }
}

fn start_of(slot: u64) -> u64 {
    SLOTS_AT + slot * SLOT_BYTES
}

/// The first part of a range on which another open file has a lock.
fn first_lock(file: BorrowedFd<'_>, mut range: Range<u64>) -> io::Result<Option<Range<u64>>> {
    let mut first = None;
    while range.start < range.end
        && let Some((_, lock)) = holder(file, range.clone())?
    {
        let lock = lock.start.max(range.start)..lock.end.min(range.end);
        range.end = lock.start;
        first = Some(lock);
    }
    Ok(first)
}

/// Takes the lock of a slot that nobody has.
fn free_slot(file: BorrowedFd<'_>, bytes: u64) -> io::Result<u64> {
    for slot in 0..SLOTS {
        let start = start_of(slot);
        if holder(file, start..start + SLOT_BYTES)?.is_some() {
            continue;
        }
        // Another process may be at it too, and its lock begins there as well.
        match take_lock(file, LockKind::Exclusive, start, bytes) {
            // From now on this process can have the lock by another open file too.
            Ok(()) => return take_lock(file, LockKind::Shared, start, bytes).map(|()| slot),
            Err(error) if [Some(libc::EAGAIN), Some(libc::EACCES)].contains(&error.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::NOLCK.into())
}

/// Maps a page of the file that keeps its locks, in this process alone.
fn keeper_of(file: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: a new mapping overlaps no other.
    let page = unsafe { rustix::mm::mmap(null_mut(), PAGE_BYTES, ProtFlags::empty(), MapFlags::SHARED, file, 0) }?;
    // SAFETY: nobody uses it.
    let kept = unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxDontFork) };
    if let Err(errno) = kept {
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(page, PAGE_BYTES) };
        return Err(errno.into());
    }
    Ok(page.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};

    const LIMIT: u64 = 100;

    struct Pool(tempfile::TempDir);

    impl Pool {
        fn new() -> Pool {
            let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
            let pool = Pool(folder);
            std::fs::write(pool.path(), vec![0; PAGE_BYTES]).expect("a file");
            pool
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("file")
        }

        fn open(&self) -> File {
            File::options().read(true).write(true).open(self.path()).expect("it is there")
        }

        /// As each process does: by an open file for it.
        fn charge(&self, pins: &mut PinCharge, bytes: u64) -> Charged {
            pins.charge(self.open().as_fd(), bytes, LIMIT).expect("the kernel has such locks")
        }

        fn of_all(&self) -> u64 {
            PinCharge::of_all(self.open().as_fd()).expect("the kernel has such locks")
        }
    }

    #[test]
    fn processes_are_charged_up_to_the_limit_and_what_is_refused_changes_nothing() {
        let (pool, [mut one, mut two, mut three]) = (Pool::new(), [const { PinCharge::NONE }; 3]);
        assert_eq!((pool.charge(&mut one, 40), pool.charge(&mut two, 30)), (Charged::Done, Charged::Done));
        assert_eq!((pool.charge(&mut three, 31), pool.of_all()), (Charged::BeyondLimit, 70));
        assert_eq!((pool.charge(&mut one, 71), one.bytes(), pool.of_all()), (Charged::BeyondLimit, 40, 70));
        assert_eq!((pool.charge(&mut one, 70), pool.of_all()), (Charged::Done, 100));
        assert_eq!((pool.charge(&mut one, 10), pool.of_all()), (Charged::Done, 40));
        assert_eq!((pool.charge(&mut three, 60), pool.of_all()), (Charged::Done, 100));
        two.end();
        assert_eq!((two.bytes(), pool.of_all()), (0, 70));
        assert_eq!((pool.charge(&mut two, 30), pool.of_all()), (Charged::Done, 100));
        [one, two, three].iter_mut().for_each(PinCharge::end);
        assert_eq!(pool.of_all(), 0);
    }

    #[test]
    fn fewer_bytes_are_charged_where_the_limit_was_lowered() {
        let (pool, mut pins) = (Pool::new(), PinCharge::NONE);
        assert_eq!(pool.charge(&mut pins, 90), Charged::Done);
        let lowered = |pins: &mut PinCharge, bytes| pins.charge(pool.open().as_fd(), bytes, 50).expect("locks");
        assert_eq!((lowered(&mut pins, 91), lowered(&mut pins, 80)), (Charged::BeyondLimit, Charged::Done));
        assert_eq!(pool.of_all(), 80);
        pins.end();
    }

    #[test]
    fn threads_that_ask_at_once_never_have_more_than_the_limit() {
        let (pool, charged) = (Pool::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut pins = PinCharge::NONE;
                    for turn in 0..300 {
                        let bytes = 20 + turn % 30;
                        if pool.charge(&mut pins, bytes) == Charged::Done {
                            assert!(charged.fetch_add(bytes, Ordering::SeqCst) + bytes <= LIMIT);
                            std::thread::yield_now();
                            charged.fetch_sub(bytes, Ordering::SeqCst);
                        }
                        pins.end();
                    }
                });
            }
        });
        assert_eq!(pool.of_all(), 0);
    }
}
