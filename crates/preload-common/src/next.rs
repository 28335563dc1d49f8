//! The next definition of each name that this library exports: libc's own, or another preloaded
//! library's.
//!
//! # The law of the unsafe code
//!
//! - **L1** Each function here is called as libc's own function of that name may be called; the
//!   next definition gets the same.
//! - **L2** The next definition of a name has the type that libc's header gives it.
//! - **L4** Variadic functions of libc that take at most one argument of word size behind the named
//!   ones get it in the same register either way.
#![expect(non_upper_case_globals, reason = "places are called as what they lead to")]

use libc::{FILE, iovec, mmsghdr, mode_t, msghdr, off_t, pid_t, rlimit, size_t, ssize_t};
use libc::{posix_spawn_file_actions_t, posix_spawnattr_t};
use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where the next definition of `name` is, which ends with a zero byte; null: there is none. It is
/// found once, and then known in `place`.
pub fn resolved(place: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    place.store(found, Ordering::Release);
    found
}

macro_rules! next {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        mod places {
            use super::{AtomicPtr, c_void};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        /// Finds all there are, so that none is looked for later, where that might not be allowed.
        pub fn find_all() {
            $(resolved(&places::$name, concat!(stringify!($name), "\0"));)*
        }

        $(#[doc = concat!("The next `", stringify!($name), "`.\n\n# Safety\nL1.")]
        pub unsafe fn $name($($argument: $kind),*) -> $answer {
            let next = resolved(&places::$name, concat!(stringify!($name), "\0"));
            if next.is_null() {
                // The program was linked to a function that only this library has.
                std::process::abort();
            }
            // SAFETY: L2.
            let next: unsafe extern "C-unwind" fn($($kind),*) -> $answer = unsafe { std::mem::transmute(next) };
            // SAFETY: L1, L4.
            unsafe { next($($argument),*) }
        })*
    };
}

next! {
    write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t;
    pwrite(fd: c_int, bytes: *const c_void, len: size_t, at: off_t) -> ssize_t;
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    pwritev(fd: c_int, pieces: *const iovec, count: c_int, at: off_t) -> ssize_t;
    read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t;
    pread(fd: c_int, bytes: *mut c_void, len: size_t, at: off_t) -> ssize_t;
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    preadv(fd: c_int, pieces: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev2(fd: c_int, pieces: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    sendfile(out: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t;
    splice(from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    copy_file_range(from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    ftruncate(fd: c_int, length: off_t) -> c_int;
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open_2(path: *const c_char, flags: c_int) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int;
    creat(path: *const c_char, mode: mode_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    fclose(stream: *mut FILE) -> c_int;
    pclose(stream: *mut FILE) -> c_int;
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    login_tty(fd: c_int) -> c_int;
    daemon(keeps_folder: c_int, keeps_streams: c_int) -> c_int;
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    system(command: *const c_char) -> c_int;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    setrlimit(resource: c_int, limit: *const rlimit) -> c_int;
    prlimit(process: pid_t, resource: c_int, limit: *const rlimit, before: *mut rlimit) -> c_int;
    ulimit(command: c_int, limit: c_long) -> c_long;
    posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int;
    posix_spawnp(
        process: *mut pid_t,
        file: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int;
    munmap(at: *mut c_void, len: size_t) -> c_int;
    msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int;
    mremap(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, to: *mut c_void) -> *mut c_void;
    madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int;
    mlock(at: *const c_void, len: size_t) -> c_int;
    mlock2(at: *const c_void, len: size_t, flags: c_uint) -> c_int;
    munlock(at: *const c_void, len: size_t) -> c_int;
    mlockall(flags: c_int) -> c_int;
    munlockall() -> c_int;
    mprotect(at: *mut c_void, len: size_t, access: c_int) -> c_int;
    pkey_mprotect(at: *mut c_void, len: size_t, access: c_int, key: c_int) -> c_int;
    sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int;
    mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is preloaded here, so the next definition is libc's own.
    #[test]
    fn a_definition_is_found_once_and_does_what_libc_does() {
        static PLACE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        let found = resolved(&PLACE, "dup\0");
        assert!(!found.is_null() && resolved(&PLACE, "something else\0") == found);
        static NONE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        assert!(resolved(&NONE, "tidegate_has_no_such_function\0").is_null());
        // SAFETY: L1; no descriptor has this number.
        assert_eq!(unsafe { dup(-1) }, -1);
    }
}
