//! Functions after which the number of a descriptor means something else.

use crate::{files, guarded};
use libc::{FILE, c_int, c_uint, c_void, mode_t};
use std::ffi::c_char;
use tidegate_preload_common::next;

macro_rules! closes {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            guarded(|| files::closing(fd));
            // SAFETY: L1.
            unsafe { next::close(fd) }
        }
    )* };
}

closes!(close, __close);

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
        guarded(|| files::closing_among(first, last));
    }
    // SAFETY: L1.
    unsafe { next::close_range(first, last, flags) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    guarded(|| files::closing_among(u32::try_from(first).unwrap_or(0), u32::MAX));
    // SAFETY: L1.
    unsafe { next::closefrom(first) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: L1: it is a stream.
    let fd = unsafe { libc::fileno(stream) };
    guarded(|| files::closing(fd));
    // SAFETY: L1.
    unsafe { next::fclose(stream) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pclose(stream: *mut FILE) -> c_int {
    // SAFETY: L1: it is a stream.
    let fd = unsafe { libc::fileno(stream) };
    guarded(|| files::closing(fd));
    // SAFETY: L1.
    unsafe { next::pclose(stream) }
}

macro_rules! reopens {
    ($($name:ident),*) => { $(
        /// As in libc, which closes the descriptor and gives its number to the new file by itself.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            // SAFETY: L1: it is a stream.
            let before = unsafe { libc::fileno(stream) };
            guarded(|| files::closing(before));
            // SAFETY: L1.
            let reopened = unsafe { next::$name(path, mode, stream) };
            // Another thread may have used the number meanwhile.
            guarded(|| files::closing(before));
            if !reopened.is_null() {
                // SAFETY: it is the stream.
                let fd = unsafe { libc::fileno(reopened) };
                guarded(|| files::opened(fd));
            }
            reopened
        }
    )* };
}

reopens!(freopen, freopen64);

/// As in libc, which gives the numbers of the standard streams to a terminal by itself.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn login_tty(fd: c_int) -> c_int {
    let forget = || guarded(|| [0, 1, 2, fd].into_iter().for_each(files::closing));
    forget();
    // SAFETY: L1.
    let answer = unsafe { next::login_tty(fd) };
    // Another thread may have used the numbers meanwhile.
    forget();
    answer
}

/// As in libc, which gives the numbers of the standard streams to `/dev/null` by itself.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn daemon(keeps_folder: c_int, keeps_streams: c_int) -> c_int {
    // SAFETY: L1.
    let answer = unsafe { next::daemon(keeps_folder, keeps_streams) };
    guarded(|| [0, 1, 2].into_iter().for_each(files::closing));
    answer
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: L1.
    copied(fd, unsafe { next::dup(fd) })
}

macro_rules! copies_to {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, to: c_int) -> c_int {
            if fd != to {
                guarded(|| files::closing(to));
            }
            // SAFETY: L1.
            let copy = unsafe { next::dup2(fd, to) };
            if fd == to { copy } else { copied(fd, copy) }
        }
    )* };
}

copies_to!(dup2, __dup2);

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    guarded(|| files::closing(to));
    // SAFETY: L1.
    copied(fd, unsafe { next::dup3(fd, to, flags) })
}

fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0 {
        guarded(|| files::copied(fd, copy));
    }
    copy
}

macro_rules! controls {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
            // SAFETY: L1.
            let answer = unsafe { next::fcntl(fd, command, argument) };
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, answer),
                libc::F_SETFL => {
                    guarded(|| files::flags_changed(fd));
                    answer
                }
                _ => answer,
            }
        }
    )* };
}

controls!(fcntl, fcntl64, __fcntl);

macro_rules! opens {
    ($($name:ident = $next:ident($($argument:ident: $kind:ty),*);)*) => { $(
        /// As in libc. What was known of the number was about another file.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: L1.
            let fd = unsafe { next::$next($($argument),*) };
            guarded(|| files::opened(fd));
            fd
        }
    )* };
}

opens! {
    open = open(path: *const c_char, flags: c_int, mode: mode_t);
    __open = open(path: *const c_char, flags: c_int, mode: mode_t);
    __open64 = open(path: *const c_char, flags: c_int, mode: mode_t);
    __open_2 = __open_2(path: *const c_char, flags: c_int);
    __open64_2 = __open64_2(path: *const c_char, flags: c_int);
    __openat_2 = __openat_2(folder: c_int, path: *const c_char, flags: c_int);
    __openat64_2 = __openat64_2(folder: c_int, path: *const c_char, flags: c_int);
    open64 = open(path: *const c_char, flags: c_int, mode: mode_t);
    openat = openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    openat64 = openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    creat = creat(path: *const c_char, mode: mode_t);
    creat64 = creat(path: *const c_char, mode: mode_t);
}
