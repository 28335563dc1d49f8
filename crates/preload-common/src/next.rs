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

use libc::{
    FILE, aiocb, dev_t, iovec, mode_t, off_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, sigevent, size_t,
    ssize_t, timespec, timeval, utimbuf,
};
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

/// Where the next `dprintf` is, which takes any arguments.
pub fn dprintf_at() -> *mut c_void {
    static PLACE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    resolved(&PLACE, "dprintf\0")
}

/// Where the next definition is of what `dprintf` becomes in programs compiled with fortification.
pub fn dprintf_chk_at() -> *mut c_void {
    static PLACE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    resolved(&PLACE, "__dprintf_chk\0")
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
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;
    sync() -> ();
    syncfs(fd: c_int) -> c_int;
    ftruncate(fd: c_int, size: off_t) -> c_int;
    truncate(path: *const c_char, size: off_t) -> c_int;
    fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int;
    posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int;
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    creat(path: *const c_char, mode: mode_t) -> c_int;
    mkdtemp(template: *mut c_char) -> *mut c_char;
    mkstemp(template: *mut c_char) -> c_int;
    mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    mkstemps(template: *mut c_char, ending: c_int) -> c_int;
    mkostemps(template: *mut c_char, ending: c_int, flags: c_int) -> c_int;
    rename(old: *const c_char, new: *const c_char) -> c_int;
    renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int;
    renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint) -> c_int;
    unlink(path: *const c_char) -> c_int;
    unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int;
    remove(path: *const c_char) -> c_int;
    link(old: *const c_char, new: *const c_char) -> c_int;
    linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int;
    symlink(target: *const c_char, path: *const c_char) -> c_int;
    symlinkat(target: *const c_char, folder: c_int, path: *const c_char) -> c_int;
    mkdir(path: *const c_char, mode: mode_t) -> c_int;
    mkdirat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int;
    rmdir(path: *const c_char) -> c_int;
    mkfifo(path: *const c_char, mode: mode_t) -> c_int;
    mkfifoat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int;
    mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    mknodat(folder: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    closedir(folder: *mut c_void) -> c_int;
    daemon(nochdir: c_int, noclose: c_int) -> c_int;
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fclose(stream: *mut FILE) -> c_int;
    pclose(stream: *mut FILE) -> c_int;
    login_tty(fd: c_int) -> c_int;
    utime(path: *const c_char, times: *const utimbuf) -> c_int;
    utimes(path: *const c_char, times: *const timeval) -> c_int;
    lutimes(path: *const c_char, times: *const timeval) -> c_int;
    utimensat(folder: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int;
    futimesat(folder: c_int, path: *const c_char, times: *const timeval) -> c_int;
    futimens(fd: c_int, times: *const timespec) -> c_int;
    futimes(fd: c_int, times: *const timeval) -> c_int;
    setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    removexattr(path: *const c_char, name: *const c_char) -> c_int;
    lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    __vdprintf_chk(fd: c_int, level: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    posix_spawn(child: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, how: *const posix_spawnattr_t, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    posix_spawnp(child: *mut pid_t, name: *const c_char, actions: *const posix_spawn_file_actions_t, how: *const posix_spawnattr_t, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void;
    mprotect(at: *mut c_void, len: size_t, access: c_int) -> c_int;
    pkey_mprotect(at: *mut c_void, len: size_t, access: c_int, key: c_int) -> c_int;
    munmap(at: *mut c_void, len: size_t) -> c_int;
    mremap(from: *mut c_void, len: size_t, new_len: size_t, how: c_int, to: *mut c_void) -> *mut c_void;
    aio_write(request: *mut aiocb) -> c_int;
    aio_fsync(how: c_int, request: *mut aiocb) -> c_int;
    lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
    io_setup(events: c_uint, context: *mut c_void) -> c_int;
    io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int;
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    pthread_testcancel() -> ();
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
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
