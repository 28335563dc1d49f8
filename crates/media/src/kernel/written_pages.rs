//! Which pages of a mapping were stored to since the last look: the kernel write-protects them,
//! notes the first store to each, and protects them again as it tells (`userfaultfd` with
//! `UFFD_FEATURE_WP_ASYNC`, and `PAGEMAP_SCAN`, Linux 6.7). Nobody waits, and no handler runs.

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;

/// Pages that follow each other, as the kernel tells them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct WrittenRange {
    start: u64,
    end: u64,
    categories: u64,
}

impl WrittenRange {
    /// Their addresses.
    pub fn addresses(&self) -> Range<usize> {
        let [start, end] = [self.start, self.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        start..end
    }
}

/// Numbers below this are those that programs use.
const DESCRIPTOR_MIN: i32 = 512;

/// The kernel's eye on mappings of this process. Never closed: the program may have closed the
/// descriptors, and their numbers be other files' by now, on which the questions fail.
pub struct WrittenPages {
    faults: ManuallyDrop<OwnedFd>,
    pagemap: ManuallyDrop<OwnedFd>,
}

#[repr(C)]
pub(super) struct Api {
    pub(super) api: u64,
    pub(super) features: u64,
    pub(super) ioctls: u64,
}

#[repr(C)]
pub(super) struct Register {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) mode: u64,
    pub(super) ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    start: u64,
    len: u64,
    mode: u64,
}

#[derive(Default)]
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const USER_MODE_ONLY: i32 = 1;
pub(super) const UFFDIO_API: u64 = 0xC018_AA3F;
pub(super) const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_WRITEPROTECT: u64 = 0xC018_AA06;
const PAGEMAP_SCAN: u64 = 0xC060_6610;
/// Write protection of shared memory, of pages that are not there, and without a handler.
const FEATURES: u64 = 1 << 0 | 1 << 12 | 1 << 13 | 1 << 15;
const REGISTER_WRITES: u64 = 1 << 1;
const PROTECT: u64 = 1 << 0;
/// Fail where nothing is watched.
const LOOK: u64 = 1 << 1;
/// Protect again what is told.
const TAKE: u64 = 1 << 0 | LOOK;
const IS_WRITTEN: u64 = 1 << 1;

const _: () = assert!(size_of::<Scan>() == 96 && size_of::<Register>() == 32 && size_of::<WriteProtect>() == 24);

impl WrittenPages {
    /// Begins to watch in this process. An error: the kernel does not have it, or does not allow
    /// it.
    pub fn begin() -> io::Result<WrittenPages> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: it makes a descriptor.
        let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let faults = i32::try_from(faults).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: it was just made.
        let faults = out_of_the_way(unsafe { OwnedFd::from_raw_fd(faults) })?;
        let mut api = Api { api: 0xAA, features: FEATURES, ioctls: 0 };
        // SAFETY: the kernel reads and writes this structure.
        unsafe { asked(&faults, UFFDIO_API, &mut api) }?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let pagemap = out_of_the_way(rustix::fs::open("/proc/self/pagemap", flags, Mode::empty())?)?;
        Ok(WrittenPages { faults: ManuallyDrop::new(faults), pagemap: ManuallyDrop::new(pagemap) })
    }

    /// Watches `len` bytes of shared memory of this process from `at` on: whole pages. All count as
    /// not written.
    pub fn watch(&self, at: *mut c_void, len: usize) -> io::Result<()> {
        let (start, len) = (at.addr() as u64, len as u64);
        let mut register = Register { start, len, mode: REGISTER_WRITES, ioctls: 0 };
        // SAFETY: the kernel reads and writes this structure; stores to these pages do what they
        // did.
        unsafe { asked(&*self.faults, UFFDIO_REGISTER, &mut register) }?;
        let mut protect = WriteProtect { start, len, mode: PROTECT };
        // SAFETY: as above.
        unsafe { asked(&*self.faults, UFFDIO_WRITEPROTECT, &mut protect) }
    }

    /// Tells pages of `range` that were written since they were taken last, as many as `out` has
    /// room for, and up to which address it has looked. They will not be told again unless they are
    /// written again. An error: any may have been written.
    pub fn take<'a>(
        &self,
        range: Range<usize>,
        out: &'a mut [WrittenRange],
    ) -> io::Result<(&'a [WrittenRange], usize)> {
        self.scan(range, out, 0, TAKE)
    }

    /// Tells pages like [`WrittenPages::take`], which stay written: they will be told again, and a
    /// store to them takes no fault. At most as many pages as `out` has ranges.
    pub fn look<'a>(
        &self,
        range: Range<usize>,
        out: &'a mut [WrittenRange],
    ) -> io::Result<(&'a [WrittenRange], usize)> {
        let pages_max = out.len() as u64;
        self.scan(range, out, pages_max, LOOK)
    }

    fn scan<'a>(
        &self,
        range: Range<usize>,
        out: &'a mut [WrittenRange],
        max_pages: u64,
        flags: u64,
    ) -> io::Result<(&'a [WrittenRange], usize)> {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags,
            max_pages,
            start: range.start as u64,
            end: range.end as u64,
            vec: out.as_mut_ptr().addr() as u64,
            vec_len: out.len() as u64,
            category_mask: IS_WRITTEN,
            return_mask: IS_WRITTEN,
            ..Scan::default()
        };
        // Keeps the provenance of the address that the kernel writes to.
        let _ = out.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel reads and writes this structure, and writes as many ranges to `out`.
        let told = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) };
        let told = usize::try_from(told).map_err(|_| io::Error::last_os_error())?;
        let walked = usize::try_from(scan.walk_end).unwrap_or(range.end);
        Ok((out.get(..told).unwrap_or_default(), walked))
    }
}

/// A copy of a descriptor with a number that programs do not use, in its place.
pub(super) fn out_of_the_way(fd: OwnedFd) -> io::Result<OwnedFd> {
    let copy = rustix::io::fcntl_dupfd_cloexec(&fd, DESCRIPTOR_MIN).unwrap_or_else(|_| {
        // There are no such numbers.
        // SAFETY: it is open, and forgotten here.
        unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) }
    });
    if copy.as_raw_fd() == fd.as_raw_fd() {
        let _ = ManuallyDrop::new(fd);
    } else {
        closed(fd);
    }
    Ok(copy)
}

/// Closes a descriptor, not by libc, whose functions may be taken over.
pub(super) fn closed(fd: OwnedFd) {
    let fd = ManuallyDrop::new(fd);
    // SAFETY: it is open, and nobody uses it after this.
    unsafe { rustix::io::close(fd.as_raw_fd()) };
}

/// Asks the kernel something about a descriptor.
///
/// # Safety
///
/// The question takes such a structure.
pub(super) unsafe fn asked<T>(fd: &impl AsRawFd, question: u64, about: &mut T) -> io::Result<()> {
    // SAFETY: as the caller says.
    match unsafe { libc::ioctl(fd.as_raw_fd(), question as _, &raw mut *about) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags};

    /// Where the kernel has none of it, there is nothing to be tried.
    #[test]
    fn pages_are_told_once_for_each_time_they_are_written() {
        let Ok(eye) = WrittenPages::begin() else { return };
        let file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
        file.set_len(16 * 4096).expect("longer");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 16 * 4096, access, MapFlags::SHARED, &file, 0) }.unwrap();
        eye.watch(at, 16 * 4096).expect("watched");
        let store = |page: usize| {
            // SAFETY: it is mapped.
            unsafe { at.cast::<u8>().add(page * 4096 + 5).write_volatile(1) }
        };
        let written = |room: usize| {
            let (mut out, mut pages) = (vec![WrittenRange::default(); room], Vec::new());
            let (mut from, end) = (at.addr(), at.addr() + 16 * 4096);
            while from < end {
                let (told, walked) = eye.take(from..end, &mut out).expect("told");
                pages.extend(told.iter().flat_map(|range| range.addresses().step_by(4096)));
                from = walked;
            }
            pages.iter().map(|page| (page - at.addr()) / 4096).collect::<Vec<_>>()
        };
        assert_eq!(written(4), []);
        [3, 4, 9].into_iter().for_each(store);
        assert_eq!(written(4), [3, 4, 9]);
        assert_eq!(written(4), []);
        [0, 2, 4, 6, 15].into_iter().for_each(store);
        assert_eq!(written(2), [0, 2, 4, 6, 15], "in several answers");
        [1, 2, 3, 9].into_iter().for_each(store);
        let looked = |room: usize| {
            let mut out = vec![WrittenRange::default(); room];
            let (told, walked) = eye.look(at.addr()..at.addr() + 16 * 4096, &mut out).expect("told");
            let pages = told.iter().map(|range| range.addresses().len() / 4096).sum::<usize>();
            (pages, (walked - at.addr()) / 4096)
        };
        assert_eq!([looked(8), looked(8)], [(4, 16), (4, 16)], "pages that are not taken are told again");
        assert_eq!(looked(2).0, 2, "no more than there is room for");
        assert_eq!(written(8), [1, 2, 3, 9]);
        // SAFETY: nobody uses it any more.
        unsafe { rustix::mm::munmap(at, 16 * 4096) }.expect("unmapped");
    }
}
