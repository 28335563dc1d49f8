//! Memory whose pages are absent until somebody maps something there: a thread that touches one
//! waits, also within a system call, and whoever asks is told the address (`userfaultfd` for
//! missing pages, Linux 6.6).
//!
//! A descriptor that is closed would have the memory read as zeroes. So the threads that answer
//! have a table of descriptors of their own ([`AbsentPages::alone`]), which no program closes.

use crate::kernel::written_pages::{Api, Register, UFFDIO_API, UFFDIO_REGISTER, asked, closed, out_of_the_way};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;

/// What tells that absent pages were touched. A number that is never closed: the program may have
/// closed it, and it be another file's by now, on which all questions fail.
#[derive(Clone, Copy, Debug)]
pub struct AbsentPages(i32);

/// What the kernel tells.
#[derive(Default)]
#[repr(C)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    rest: u64,
}

#[derive(Default)]
#[repr(C)]
struct Addresses {
    start: u64,
    len: u64,
}

#[derive(Default)]
#[repr(C)]
struct Poison {
    place: Addresses,
    mode: u64,
    done: i64,
}

const UFFDIO_WAKE: u64 = 0x8010_AA02;
const UFFDIO_POISON: u64 = 0xC020_AA08;
/// Of `/dev/userfaultfd`.
const NEW: u64 = 0xAA00;
/// Absent memory stays so when it is moved, which is told; pages can be refused.
const FEATURES: u64 = 1 << 2 | 1 << 14;
const REGISTER_ABSENT: u64 = 1 << 0;
const TOUCHED: u8 = 0x12;
const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;

const _: () = assert!(size_of::<Message>() == 32 && size_of::<Poison>() == 32);

impl AbsentPages {
    /// Begins to tell in this process. An error: the kernel does not have it, or does not allow
    /// this process to have its system calls wait.
    pub fn begin() -> io::Result<AbsentPages> {
        // SAFETY: it makes a descriptor.
        let plain = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let made = match i32::try_from(plain).ok().filter(|fd| *fd >= 0) {
            // SAFETY: it was just made.
            Some(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            None => by_device()?,
        };
        let mut api = Api { api: 0xAA, features: FEATURES, ioctls: 0 };
        // SAFETY: the kernel reads and writes this structure.
        unsafe { asked(&made, UFFDIO_API, &mut api) }?;
        Ok(AbsentPages(out_of_the_way(made)?.into_raw_fd()))
    }

    /// Gives this thread, and those that it starts, a table of descriptors of their own, in which
    /// nothing is but this, and the others of these numbers. An error: some are not there.
    pub fn alone<const N: usize>(self, others: [i32; N]) -> io::Result<(AbsentPages, [i32; N])> {
        // SAFETY: what this thread uses from here on is in the new table.
        let alone = unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, CLOSE_RANGE_UNSHARE) };
        if alone != 0 {
            return Err(io::Error::last_os_error());
        }
        let process = pidfd_open(getpid(), PidfdFlags::empty())?;
        let fetched = |number: i32| match number {
            0.. => pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).map(IntoRawFd::into_raw_fd),
            _ => Ok(number),
        };
        let mine = others.map(fetched);
        let this = fetched(self.0);
        closed(process);
        let failed = mine.iter().find_map(|fetched| fetched.err());
        match failed {
            Some(errno) => Err(errno.into()),
            None => Ok((AbsentPages(this?), mine.map(|fetched| fetched.unwrap_or(-1)))),
        }
    }

    /// Makes `len` bytes of memory from `at` on absent, which was somebody's or nobody's.
    ///
    /// # Safety
    ///
    /// Nobody uses the memory that was there. Other threads do not touch it before this returns.
    pub unsafe fn make(self, at: *mut c_void, len: usize, access: ProtFlags) -> io::Result<()> {
        let how = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as the caller says.
        let made = unsafe { rustix::mm::mmap_anonymous(at, len, ProtFlags::empty(), how) }?;
        let mut register = Register { start: made.addr() as u64, len: len as u64, mode: REGISTER_ABSENT, ioctls: 0 };
        // SAFETY: the kernel reads and writes this structure; the memory is empty.
        unsafe { asked(&self.fd(), UFFDIO_REGISTER, &mut register) }?;
        // Before it is to be reached: otherwise `mlockall` might have filled it.
        // SAFETY: it is this memory.
        unsafe { rustix::mm::mprotect(made, len, MprotectFlags::from_bits_retain(access.bits())) }?;
        // A child would have zeroes there.
        // SAFETY: as above.
        Ok(unsafe { rustix::mm::madvise(made, len, Advice::LinuxDontFork) }?)
    }

    /// Makes memory absent that other threads may touch meanwhile: each of them finds what was
    /// there before, or waits. Returns when another thread has called [`AbsentPages::next`]. After
    /// an error what was there is there still.
    ///
    /// # Safety
    ///
    /// Whoever touches it expects that it is replaced.
    pub unsafe fn replace(self, at: *mut c_void, len: usize, access: ProtFlags) -> io::Result<()> {
        let how = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping overlaps no other.
        let beside = unsafe { rustix::mm::mmap_anonymous(null_mut(), len, ProtFlags::empty(), how) }?;
        // SAFETY: nobody knows of it; then it is moved over what was there, as the caller says.
        let replaced = unsafe {
            self.make(beside, len, access)
                .and_then(|()| Ok(rustix::mm::mremap_fixed(beside, len, len, MremapFlags::MAYMOVE, at)?))
        };
        if replaced.is_err() {
            // SAFETY: it was not moved.
            let _ = unsafe { rustix::mm::munmap(beside, len) };
        }
        replaced.map(drop)
    }

    /// Waits until a thread touches an absent page, and tells the address. `None`: memory was
    /// moved.
    pub fn next(self) -> io::Result<Option<usize>> {
        let mut message = Message::default();
        // SAFETY: the kernel writes a message there.
        let read =
            unsafe { libc::syscall(libc::SYS_read, self.0, (&raw mut message).cast::<c_void>(), size_of::<Message>()) };
        if usize::try_from(read) != Ok(size_of::<Message>()) {
            return Err(io::Error::last_os_error());
        }
        Ok((message.event == TOUCHED).then(|| usize::try_from(message.address).unwrap_or(0)))
    }

    /// Has the threads go on that wait for any of these addresses. Those that find a page absent
    /// still are told anew.
    pub fn wake(self, at: usize, len: usize) {
        let mut place = Addresses { start: at as u64, len: len as u64 };
        // SAFETY: the kernel reads this structure. If it refuses, nobody waits.
        let _ = unsafe { asked(&self.fd(), UFFDIO_WAKE, &mut place) };
    }

    /// Has whoever touches an absent page be told so by `SIGBUS`, or `EFAULT` of a system call,
    /// from now on, until something is mapped there.
    pub fn refuse(self, at: usize, len: usize) -> io::Result<()> {
        loop {
            let mut poison = Poison { place: Addresses { start: at as u64, len: len as u64 }, ..Poison::default() };
            // SAFETY: the kernel reads and writes this structure; absent memory has no bytes.
            match unsafe { asked(&self.fd(), UFFDIO_POISON, &mut poison) } {
                // Memory is being moved.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    /// Its number in the table that it was made for.
    pub fn number(self) -> i32 {
        self.0
    }

    /// It, by a number.
    pub fn of(number: i32) -> AbsentPages {
        AbsentPages(number)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: see the type.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Where the plain call is not allowed, who may open the device may have it.
fn by_device() -> io::Result<OwnedFd> {
    let device = rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: it makes a descriptor.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), NEW as _, libc::O_CLOEXEC) };
    let failed = io::Error::last_os_error();
    closed(device);
    if made < 0 {
        return Err(failed);
    }
    // SAFETY: it was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    const PAGE: usize = 4096;

    fn memory(pages: usize) -> *mut c_void {
        // SAFETY: a new mapping.
        unsafe { rustix::mm::mmap_anonymous(null_mut(), pages * PAGE, ProtFlags::empty(), MapFlags::PRIVATE) }
            .expect("memory")
    }

    fn load(at: usize) -> u8 {
        // SAFETY: it is mapped.
        unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() }
    }

    /// Where the kernel has none of it, there is nothing to be tried.
    #[test]
    fn a_thread_waits_for_an_absent_page_until_something_is_mapped_there() {
        let Ok(absent) = AbsentPages::begin() else { return };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let at = memory(4);
        let base = at.expose_provenance();
        // SAFETY: nobody uses it.
        unsafe { absent.make(at, 4 * PAGE, access) }.expect("absent");
        let (touched, touches) = channel();
        let (go, gone) = channel();
        thread::spawn(move || {
            let (mine, [missing]) = absent.alone([-1]).expect("a table of its own");
            assert_eq!(missing, -1);
            while let Ok(next) = mine.next() {
                touched.send((mine.0, next)).expect("somebody listens");
                gone.recv().expect("somebody answers");
            }
        });
        let reader = thread::spawn(move || load(base + PAGE + 5));
        let (number, next) = touches.recv().expect("told");
        assert!(next.is_some_and(|seen| seen / PAGE == base / PAGE + 1), "the page that was touched");
        assert_ne!(number, absent.number(), "a descriptor that this thread does not have");
        // SAFETY: the page is absent.
        unsafe {
            let how = MapFlags::PRIVATE | MapFlags::FIXED;
            rustix::mm::mmap_anonymous(at.wrapping_byte_add(PAGE), PAGE, access, how).expect("mapped");
            at.cast::<u8>().add(PAGE + 5).write_volatile(7);
        }
        go.send(()).expect("it listens");
        assert!(!reader.is_finished(), "nobody woke it");
        absent.wake(base + PAGE, PAGE);
        assert_eq!(reader.join().expect("it ended"), 7);
        // The page goes again, and the next thread waits for it again.
        let replacer = thread::spawn(move || {
            let at = std::ptr::with_exposed_provenance_mut(base + PAGE);
            // SAFETY: nobody minds.
            unsafe { absent.replace(at, PAGE, access) }.expect("replaced");
        });
        assert_eq!(touches.recv().expect("told").1, None, "that memory was moved");
        replacer.join().expect("it ended");
        go.send(()).expect("it listens");
        let writer = thread::spawn(move || {
            // SAFETY: as much as is mapped.
            let bytes = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(base + PAGE), 10) };
            let file = tempfile::tempfile().expect("a file");
            rustix::io::pwrite(&file, bytes, 0)
        });
        assert!(touches.recv().expect("told").1.is_some_and(|seen| seen / PAGE == base / PAGE + 1));
        absent.refuse(base + PAGE, PAGE).expect("refused");
        assert_eq!(writer.join().expect("it ended"), Err(rustix::io::Errno::FAULT));
    }
}
