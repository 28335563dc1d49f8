//! Functions that set what a sync makes durable besides contents, size, mode and owner: nothing is
//! kept of a file whose next sync has to do that.

use super::changes::{attributing, settle_contents};
use crate::follow::change;
use crate::names::Change;
use crate::{asked, follow, names, next, process};
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, timespec, timeval, utimbuf};
use rustix::fs::FileType;

macro_rules! by_path {
    ($($name:ident($folder:expr, $path:ident $(, $argument:ident: $kind:ty)*);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($path: *const c_char $(, $argument: $kind)*) -> c_int {
            // SAFETY: L1.
            let changes = unsafe { [attributing($folder, $path)] };
            // SAFETY: L1.
            let call = || change(|| unsafe { settle_contents($folder, $path) }, || unsafe { next::$name($path $(, $argument)*) });
            names::during(changes, call)
        }
    )* };
}

by_path! {
    utime(AT_FDCWD, path, times: *const utimbuf);
    utimes(AT_FDCWD, path, times: *const timeval);
    lutimes(AT_FDCWD, path, times: *const timeval);
    setxattr(AT_FDCWD, path, name: *const c_char, value: *const c_void, len: size_t, flags: c_int);
    lsetxattr(AT_FDCWD, path, name: *const c_char, value: *const c_void, len: size_t, flags: c_int);
    removexattr(AT_FDCWD, path, name: *const c_char);
    lremovexattr(AT_FDCWD, path, name: *const c_char);
}

macro_rules! by_descriptor {
    ($($name:ident($fd:ident $(, $argument:ident: $kind:ty)*);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $kind)*) -> c_int {
            let changes = [attributing_open($fd)];
            // SAFETY: L1.
            names::during(changes, || change(|| settle_open($fd), || unsafe { next::$name($fd $(, $argument)*) }))
        }
    )* };
}

by_descriptor! {
    futimens(fd, times: *const timespec);
    futimes(fd, times: *const timeval);
    fsetxattr(fd, name: *const c_char, value: *const c_void, len: size_t, flags: c_int);
    fremovexattr(fd, name: *const c_char);
}

/// As in libc.
///
/// # Safety
/// L1. A null path stands for the file behind `folder`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn utimensat(
    folder: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: L1.
    let changes = unsafe { [dating(folder, path)] };
    // SAFETY: L1.
    let call = || unsafe { next::utimensat(folder, path, times, flags) };
    // SAFETY: L1.
    names::during(changes, || change(|| unsafe { settle_dated(folder, path) }, call))
}

/// The file behind `fd` is going to have other attributes.
pub(super) fn settle_open(fd: c_int) {
    asked::file_of(fd).into_iter().for_each(follow::settle_held);
}

/// If what is behind `fd` is a folder, it changes until the answer's end.
pub(super) fn attributing_open(fd: c_int) -> Option<Change> {
    let stat = if process::names_are_held() { asked::stat(fd) } else { None };
    let folder = stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    folder.map(|stat| names::change_of_folder(asked::id(&stat)))
}

/// The same of what is going to have other times.
///
/// # Safety
/// L1. A null path stands for the file behind `folder`.
pub(super) unsafe fn dating(folder: c_int, path: *const c_char) -> Option<Change> {
    // SAFETY: L1.
    if path.is_null() { attributing_open(folder) } else { unsafe { attributing(folder, path) } }
}

/// The file at `path` is going to have other times.
///
/// # Safety
/// L1. A null path stands for the file behind `folder`.
pub(super) unsafe fn settle_dated(folder: c_int, path: *const c_char) {
    if path.is_null() {
        settle_open(folder);
    } else {
        // SAFETY: L1.
        unsafe { settle_contents(folder, path) };
    }
}

/// As in libc.
///
/// # Safety
/// L1. A null path stands for the file behind `folder`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn futimesat(folder: c_int, path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: L1.
    let changes = unsafe { [dating(folder, path)] };
    // SAFETY: L1.
    let call = || unsafe { next::futimesat(folder, path, times) };
    // SAFETY: L1.
    names::during(changes, || change(|| unsafe { settle_dated(folder, path) }, call))
}
