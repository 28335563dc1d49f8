//! Functions on memory that may be pages of the pool.

use crate::exports::set_errno;
use crate::mappings::{self, MADV_DROPCACHE, MAP_DAX, Presence, Wanted};
use crate::{files, guarded};
use libc::{c_int, c_uint, c_void, off_t, size_t};
use rustix::io::Errno;
use tidegate_preload_common::next;

/// Whether this process has anything mapped. A child that was forked is not watched from here on.
pub(in crate::exports) fn any() -> bool {
    mappings::any() && files::has_path()
}

/// Has upgraded mappings of these addresses be the kernel's pages again: the call that follows does
/// with those something else.
fn before_call_of_kernel(at: *const c_void, len: size_t) {
    if mappings::any_upgraded() && any() {
        mappings::give_back_range(at.cast_mut(), len);
    }
}

/// Whether anything is known of these addresses.
fn is_known(at: *mut c_void, len: size_t) -> bool {
    any() && mappings::is_known(at, len)
}

/// Whether any of these addresses are pages of the pool.
fn is_ours(at: *mut c_void, len: size_t) -> bool {
    any() && mappings::is_ours(at, len)
}

macro_rules! maps {
    ($($name:ident),*) => { $(
        /// As in libc. A mapping shows the kernel's pages, so there is no lease beside it, and the
        /// kernel knows the length; with `MAP_DAX` it shows the pool's.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            at: *mut c_void,
            len: size_t,
            access: c_int,
            flags: c_int,
            fd: c_int,
            from: off_t,
        ) -> *mut c_void {
            if flags & libc::MAP_ANONYMOUS == 0
                && let Some(descriptor) = files::known(fd)
            {
                guarded(|| descriptor.hand_over(fd));
            }
            let wanted = Wanted { at, len, access, flags, fd, from };
            if flags & MAP_DAX != 0 && wanted.is_direct() && guarded(files::has_path) {
                return mapped(guarded(|| wanted.map()));
            }
            // SAFETY: L1.
            let map = || unsafe { next::mmap(at, len, access, flags, fd, from) };
            let is_file = flags & libc::MAP_ANONYMOUS == 0 && mappings::are_wanted();
            if is_file && guarded(files::has_path) {
                return mapped(guarded(|| wanted.map_by_kernel(map)));
            }
            if flags & libc::MAP_FIXED == 0 || !guarded(|| is_known(at, len)) {
                return map();
            }
            mapped(guarded(|| mappings::unmapping((at, len), |base| *base != libc::MAP_FAILED, map)))
        }
    )* };
}

maps!(mmap, mmap64);

/// The answer of a function that says where it mapped, or sets errno.
fn mapped(outcome: Result<*mut c_void, Errno>) -> *mut c_void {
    outcome.unwrap_or_else(|errno| {
        set_errno(errno.raw_os_error());
        libc::MAP_FAILED
    })
}

/// The answer of a function that says 0 or sets errno.
pub(in crate::exports) fn answered(outcome: Result<c_int, Errno>) -> c_int {
    outcome.unwrap_or_else(|errno| {
        set_errno(errno.raw_os_error());
        -1
    })
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    // SAFETY: L1.
    let unmap = || unsafe { next::munmap(at, len) };
    if !guarded(|| is_known(at, len)) {
        return unmap();
    }
    answered(guarded(|| mappings::unmapping((at, len), |done| *done == 0, unmap)))
}

/// As in libc: of pages of the pool it makes durable what was stored to them, without a request.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let is_plain =
        at.addr().is_multiple_of(4096) && [libc::MS_SYNC, libc::MS_SYNC | libc::MS_INVALIDATE].contains(&flags);
    if is_plain && let Some(answer) = synced_in_pool(at, len) {
        return answer;
    }
    // SAFETY: L1.
    let synced = unsafe { next::msync(at, len, flags) };
    if !is_plain || synced != 0 || !mappings::are_wanted() || !guarded(any) {
        return synced;
    }
    // Another thread may have begun an upgrade before the kernel was asked: this waits until what
    // was stored before is the file's.
    synced_in_pool(at, len)
        .unwrap_or_else(|| answered(guarded(|| mappings::after_kernel_sync(at, len, files::is_own)).map(|()| 0)))
}

/// What `msync` answers if all of these addresses are pages of the pool, which are durable then.
fn synced_in_pool(at: *mut c_void, len: size_t) -> Option<c_int> {
    match guarded(|| if any() { mappings::sync(at, len) } else { Ok(false) }) {
        Ok(false) => None,
        outcome => Some(answered(outcome.map(|_| 0))),
    }
}

/// As in libc. Pages of the pool stay where they are.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mremap(
    at: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    guarded(|| before_call_of_kernel(at, len.max(1)));
    let is_over = || flags & libc::MREMAP_FIXED != 0 && is_ours(to, new_len);
    if guarded(|| is_ours(at, len.max(1)) || is_over()) {
        set_errno(libc::EINVAL);
        return libc::MAP_FAILED;
    }
    // SAFETY: L1.
    let remap = || unsafe { next::mremap(at, len, new_len, flags, to) };
    if guarded(any) { guarded(|| mappings::moving((at, len), (new_len, flags), remap)) } else { remap() }
}

/// As in libc. A hole is not made through pages of the pool, as it would be one in the pool. With
/// `MADV_DROPCACHE`, the pool's pages go.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    if advice == libc::MADV_REMOVE {
        guarded(|| before_call_of_kernel(at, len));
    }
    if advice == libc::MADV_REMOVE && guarded(|| is_ours(at, len)) {
        set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    if advice == MADV_DROPCACHE && at.addr().is_multiple_of(4096) && guarded(|| is_ours(at, len)) {
        return answered(guarded(|| mappings::drop_cache(at, len)));
    }
    // SAFETY: L1.
    unsafe { next::madvise(at, len, advice) }
}

/// Pins these bytes, if they are pages of the pool; or else the kernel locks them.
fn locking(bytes: (*const c_void, size_t), presence: Presence, kernel: impl FnOnce() -> c_int) -> c_int {
    guarded(|| before_call_of_kernel(bytes.0, bytes.1));
    match guarded(|| if any() { mappings::lock(bytes, presence) } else { Ok(false) }) {
        Ok(true) => 0,
        Ok(false) => kernel(),
        Err(errno) => answered(Err(errno)),
    }
}

/// As in libc. Pages of the pool are pinned.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mlock(at: *const c_void, len: size_t) -> c_int {
    // SAFETY: L1.
    locking((at, len), Presence::Now, || unsafe { next::mlock(at, len) })
}

/// As in libc. Pages of the pool are pinned; with `MLOCK_ONFAULT`, they come when they are touched.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mlock2(at: *const c_void, len: size_t, flags: c_uint) -> c_int {
    // SAFETY: L1.
    let kernel = || unsafe { next::mlock2(at, len, flags) };
    match flags {
        0 => locking((at, len), Presence::Now, kernel),
        libc::MLOCK_ONFAULT => locking((at, len), Presence::OnTouch, kernel),
        _ => kernel(),
    }
}

/// As in libc. Pages of the pool may go again.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn munlock(at: *const c_void, len: size_t) -> c_int {
    if guarded(any) {
        guarded(|| mappings::unlock(at, len));
    }
    // SAFETY: L1. Where the kernel has locked nothing, it has nothing to do.
    unsafe { next::munlock(at, len) }
}

/// As in libc. Pages of the pool are pinned.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: L1.
    let kernel = || unsafe { next::mlockall(flags) };
    if !guarded(files::has_path) {
        return kernel();
    }
    guarded(|| before_call_of_kernel(std::ptr::null(), usize::MAX));
    answered(guarded(|| mappings::lock_all(flags, kernel)))
}

/// As in libc. Pages of the pool may go again.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn munlockall() -> c_int {
    if guarded(files::has_path) {
        guarded(mappings::unlock_all);
    }
    // SAFETY: L1.
    unsafe { next::munlockall() }
}

/// As in libc. Of pages of the pool, what was stored is flushed before they cannot be read any
/// more.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mprotect(at: *mut c_void, len: size_t, access: c_int) -> c_int {
    // SAFETY: L1: of pages that are not to be read, also to have them read for some time.
    let protect = |access| unsafe { next::mprotect(at, len, access) };
    if !guarded(|| is_known(at, len)) {
        return protect(access);
    }
    answered(guarded(|| mappings::protecting((at, len), access, protect)))
}

/// As in libc. Pages of the pool get no protection key, which would keep this library out too.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pkey_mprotect(at: *mut c_void, len: size_t, access: c_int, key: c_int) -> c_int {
    if key != -1 {
        guarded(|| before_call_of_kernel(at, len));
    }
    if !guarded(|| is_ours(at, len)) {
        // SAFETY: L1.
        return unsafe { next::pkey_mprotect(at, len, access, key) };
    }
    if key != -1 {
        set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    // SAFETY: L1: without a key it is the same.
    unsafe { mprotect(at, len, access) }
}

/// As in libc. It makes all mapped pages of the file durable, wherever they lie.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int {
    match guarded(|| before_sync(fd)) {
        // SAFETY: L1.
        Ok(()) => unsafe { next::sync_file_range(fd, at, len, flags) },
        Err(errno) => answered(Err(errno)),
    }
}

/// Makes durable what was stored to the mapped pages of a file, before the file is synced.
pub(in crate::exports) fn before_sync(fd: c_int) -> Result<(), Errno> {
    if any() { mappings::sync_file(fd) } else { Ok(()) }
}
