//! Parts of a file that a program has mapped as its own memory: it loads and stores them itself,
//! and gives them up as it does any mapping.
//!
//! Each part has a lock on its place in the file (`F_OFD_SETLK`), which the mapping keeps: it goes
//! when no process has any of it mapped any more, however that came. Several processes may have one
//! part. [`MappedRuns::is_mapped`] tells.

use crate::mapped::mapped_part::{LockKind, holder, take_lock};
use crate::memory::{Instructions, Mapping, Sharing};
use rustix::fd::BorrowedFd;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::{io, iter};

/// Addresses for parts of a file. Nothing is unmapped when this is dropped.
pub struct MappedRuns {
    base: NonNull<c_void>,
    len: usize,
}

impl MappedRuns {
    /// Takes `len` bytes of addresses, at `place` if `how` says so; nothing is mapped there yet.
    ///
    /// # Safety
    ///
    /// Where `how` has `FIXED`, nobody uses the memory there any more.
    pub unsafe fn reserve(place: *mut c_void, len: usize, how: MapFlags) -> io::Result<MappedRuns> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | how;
        // SAFETY: as the caller says; otherwise a new mapping overlaps no other.
        let base = unsafe { rustix::mm::mmap_anonymous(place, len, ProtFlags::empty(), flags) }?;
        let base = NonNull::new(base).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(MappedRuns { base, len })
    }

    /// Where it begins.
    pub fn base(&self) -> *mut c_void {
        self.base.as_ptr()
    }

    /// How many bytes of addresses they are.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Maps `len` bytes of `file` from `at` on, at the place `within` of this, in the place of
    /// what was there. `file` may be closed afterwards.
    pub fn put(
        &self,
        within: usize,
        file: BorrowedFd<'_>,
        (at, len): (u64, usize),
        access: ProtFlags,
    ) -> io::Result<()> {
        if within.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        MappedRuns::lock(file, at, len)?;
        // SAFETY: the addresses are this one's own, and nobody was told of them yet.
        unsafe { MappedRuns::place(self.base.as_ptr().wrapping_byte_add(within), file, (at, len), access) }.map(drop)
    }

    /// Has the lock of the open file that says that `len` bytes from `at` on are mapped, or are
    /// about to be. It goes with the file and what was mapped of it.
    pub fn lock(file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<()> {
        take_lock(file, LockKind::Shared, at, len as u64)
    }

    /// Maps `len` bytes of `file` from `at` on, which are locked, at this place, instead of what
    /// was there.
    ///
    /// # Safety
    ///
    /// Whoever uses the memory that was there expects that.
    pub unsafe fn place(
        place: *mut c_void,
        file: BorrowedFd<'_>,
        (at, len): (u64, usize),
        access: ProtFlags,
    ) -> io::Result<*mut c_void> {
        let sharing = match Mapping::is_synchronous(file) {
            true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            false => MapFlags::SHARED,
        };
        // SAFETY: as the caller says.
        let mapped = unsafe { rustix::mm::mmap(place, len, access, sharing | MapFlags::FIXED, file, at) }?;
        let advice =
            if access.contains(ProtFlags::WRITE) { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // What cannot be made present is when it is touched.
        // SAFETY: the pages keep their bytes.
        let _ = unsafe { rustix::mm::madvise(mapped, len, advice) };
        Ok(mapped)
    }

    /// Other addresses for mapped bytes that follow each other in their file, with their lock.
    ///
    /// # Safety
    ///
    /// They are mapped, and shared.
    pub unsafe fn alias(at: *mut c_void, len: usize) -> io::Result<MappedRuns> {
        // SAFETY: as the caller says: without an old length nothing is moved.
        let base = unsafe { rustix::mm::mremap(at, 0, len, MremapFlags::MAYMOVE) }?;
        let base = NonNull::new(base).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(MappedRuns { base, len })
    }

    /// Whether anybody has mapped any of these bytes so. A part that one process owns
    /// ([`MappedPart::of`](crate::MappedPart::of)) does not count.
    pub fn is_mapped(file: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<bool> {
        let mut unknown: Vec<Range<u64>> = iter::once(at..at + len).collect();
        while let Some(range) = unknown.pop() {
            match holder(file, range.clone())? {
                None => {}
                Some((LockKind::Shared, _)) => return Ok(true),
                // Nobody else has a lock on bytes of this one: what is left lies on either side.
                Some((LockKind::Exclusive, owned)) => {
                    let beside = [range.start..owned.start, owned.end..range.end];
                    unknown.extend(beside.into_iter().filter(|range| !range.is_empty()));
                }
            }
        }
        Ok(false)
    }

    /// Gives the addresses back.
    ///
    /// # Safety
    ///
    /// Nobody was told of them.
    pub unsafe fn give_up(self) {
        // SAFETY: as the caller says.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len) };
    }

    /// Has mapped bytes written back to the medium: durable after this thread's next
    /// [`MappedRuns::fence`].
    ///
    /// # Safety
    ///
    /// They are mapped until this returns.
    pub unsafe fn flush(at: *mut c_void, len: usize) {
        static HOW: OnceLock<Instructions> = OnceLock::new();
        let Some(base) = NonNull::new(at.cast()) else { return };
        // SAFETY: as the caller says.
        unsafe { Mapping::flush_at(base, len, Sharing::Shared, *HOW.get_or_init(|| Instructions::best(false))) };
    }

    /// Waits until what this thread flushed is durable.
    pub fn fence() {
        Mapping::fence_thread();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MappedPart;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn parts_lie_where_they_were_put_and_keep_their_locks_until_they_are_unmapped() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let path = folder.path().join("file");
        std::fs::write(&path, [vec![1; 4096], vec![2; 4096], vec![3; 4096]].concat()).expect("a file");
        let open = || File::options().read(true).write(true).open(&path).expect("it is there");
        let (file, access) = (open(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping.
        let runs = unsafe { MappedRuns::reserve(std::ptr::null_mut(), 8192, MapFlags::empty()) }.expect("reserved");
        runs.put(0, file.as_fd(), (8192, 4096), access).expect("mapped");
        runs.put(4096, file.as_fd(), (0, 4096), access).expect("mapped");
        assert!(runs.put(4096, file.as_fd(), (0, 8192), access).is_err(), "it reaches too far");
        drop(file);
        let bytes: *mut u8 = runs.base().cast();
        // SAFETY: both pages are mapped.
        unsafe {
            assert_eq!((*bytes, *bytes.add(4096)), (3, 1));
            *bytes.add(4097) = 9;
            MappedRuns::flush(runs.base().wrapping_byte_add(4096), 4096);
        }
        MappedRuns::fence();
        assert_eq!(std::fs::read(&path).expect("readable")[..3], [1, 9, 1]);
        let other = open();
        let is_mapped = |at| MappedRuns::is_mapped(other.as_fd(), at, 4096).expect("it can be asked");
        assert_eq!([0, 4096, 8192].map(is_mapped), [true, false, true]);
        // SAFETY: it is mapped.
        let alias = unsafe { MappedRuns::alias(runs.base().wrapping_byte_add(4096), 4096) }.expect("mapped");
        // SAFETY: both are mapped.
        unsafe {
            *bytes.add(4096 + 7) = 5;
            assert_eq!(*alias.base().cast::<u8>().add(7), 5);
        }
        // SAFETY: nobody uses them any more.
        unsafe { runs.give_up() };
        assert_eq!([0, 4096, 8192].map(is_mapped), [true, false, true], "one open file, one lock");
        // SAFETY: as above.
        unsafe { alias.give_up() };
        assert_eq!([0, 4096, 8192].map(is_mapped), [false; 3]);
    }

    #[test]
    fn parts_of_which_a_process_is_the_owner_do_not_count() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![0; 5 * 4096]).expect("a file");
        let open = || File::options().read(true).write(true).open(&path).expect("it is there");
        let owned = [4096, 3 * 4096].map(|at| MappedPart::of(open().as_fd(), at, 4096).expect("mapped"));
        let file = open();
        let is_mapped =
            |at, pages: u64| MappedRuns::is_mapped(file.as_fd(), at, pages * 4096).expect("it can be asked");
        assert!(MappedPart::is_mapped(file.as_fd(), 4096, 4096).expect("it can be asked"));
        assert!(!is_mapped(4096, 1) && !is_mapped(0, 5));
        // SAFETY: a new mapping.
        let runs = unsafe { MappedRuns::reserve(std::ptr::null_mut(), 4096, MapFlags::empty()) }.expect("reserved");
        runs.put(0, open().as_fd(), (2 * 4096, 4096), ProtFlags::READ).expect("mapped");
        assert!(is_mapped(0, 5) && is_mapped(4096, 2) && !is_mapped(0, 2) && !is_mapped(3 * 4096, 2));
        drop(owned);
    }
}
