//! This process, and whether it is the one that began.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use tidegate_file_wire::DIRECT;
use tidegate_preload_common::wiped_page;

/// The word of the page that forks wipe.
const SAME: u32 = 1;

static MARK: OnceLock<&'static AtomicU32> = OnceLock::new();
static PID: AtomicI32 = AtomicI32::new(0);

/// What the environment says to this library under a name. Only for what is done before the program
/// begins, which may change it.
pub(crate) fn said(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a zero byte, and nobody changes the environment yet.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: it is a string of the environment, which is as it is until the program begins.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Looks whether this process has the direct path. `before_fork` is called before it is forked,
/// and `after_fork` in the parent then, and `in_child` in the child.
pub(crate) fn start(
    before_fork: unsafe extern "C" fn(),
    after_fork: unsafe extern "C" fn(),
    in_child: unsafe extern "C" fn(),
) {
    if said(DIRECT).is_none() {
        return;
    }
    let Some(mark) = wiped_page::mapped(SAME) else { return };
    PID.store(pid(), Ordering::Relaxed);
    if MARK.set(mark).is_err() {
        return;
    }
    // SAFETY: it has no conditions, and the functions do nothing that a child may not do that has
    // one thread of many.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
}

/// A file of this library's own. Libc's `close` would be a place where a thread may be cancelled,
/// and nothing here may be unwound; so it is closed by the kernel's call.
pub(crate) struct OwnFile(ManuallyDrop<OwnedFd>);

impl OwnFile {
    /// Opens an existing file. `None`: it cannot be.
    pub(crate) fn open(path: &CStr, flags: OFlags) -> Option<OwnFile> {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).ok().map(OwnFile::of)
    }

    /// One that was just opened.
    pub(crate) fn of(file: OwnedFd) -> OwnFile {
        OwnFile(ManuallyDrop::new(file))
    }
}

impl AsFd for OwnFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // SAFETY: it is open, and nobody uses it after this.
        unsafe { rustix::io::close(self.0.as_raw_fd()) };
    }
}

/// Whether this process has the direct path. A child that was forked has `forget` called first.
pub(crate) fn has_path(forget: impl FnOnce()) -> bool {
    let Some(mark) = MARK.get() else { return false };
    if mark.load(Ordering::Acquire) != SAME {
        // A child has one thread until it makes more, and those are made after this.
        forget();
        PID.store(pid(), Ordering::Relaxed);
        mark.store(SAME, Ordering::Release);
    }
    true
}

/// Whether a process with the memory of this one may have descriptors of its own. Where no export
/// sees it begin, always.
static SHARES_MEMORY: AtomicBool = AtomicBool::new(cfg!(not(target_arch = "x86_64")));

/// From now on there may be such a process.
pub(crate) fn shares_memory() {
    SHARES_MEMORY.store(true, Ordering::Relaxed);
}

/// Whether the descriptors that are known are this process's own: what runs between `vfork` and
/// `exec` has the memory of its parent, and descriptors of its own.
pub(crate) fn owns_descriptors() -> bool {
    PID.load(Ordering::Relaxed) == pid()
}

/// As [`owns_descriptors`], for what is done often: it costs a system call only where an export saw
/// such a process begin.
#[inline]
pub(crate) fn seems_to_own_descriptors() -> bool {
    !SHARES_MEMORY.load(Ordering::Relaxed) || owns_descriptors()
}

fn pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
