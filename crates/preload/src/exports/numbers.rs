//! Functions after which the number of a descriptor means something else.

use crate::{descriptors, follow, line, next, quiet};
use libc::{c_int, c_uint, c_void};
use rustix::io::Errno;

macro_rules! closes {
    ($($name:ident),*) => { $(
        /// As in libc. The line's own number and those of quiet descriptors are nothing that the
        /// program opened.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            if line::is_own(fd) || quiet::is_own(fd) {
                return follow::failed(Errno::BADF);
            }
            closing(fd);
            // SAFETY: L1.
            unsafe { next::close(fd) }
        }
    )* };
}

closes!(close, __close);

/// The descriptor is going to be closed.
pub(super) fn closing(fd: c_int) {
    descriptors::forget(fd);
    quiet::take(fd).into_iter().for_each(line::close);
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
        closing_among(first, last);
    }
    // SAFETY: L1.
    unsafe { next::close_range(first, last, flags) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let from = u32::try_from(first).unwrap_or(0);
    closing_among(from, u32::MAX);
    // SAFETY: L1.
    unsafe { next::closefrom(first) }
}

/// These descriptors are going to be closed.
fn closing_among(first: c_uint, last: c_uint) {
    forget_range(first, last);
    quiet::close_among(first, last);
}

fn forget_range(first: c_uint, last: c_uint) {
    descriptors::forget_range(first, last);
    line::give_up_among(first, last);
}

/// A copy got the number `fd`, if it is one.
fn copied(fd: c_int) -> c_int {
    if fd >= 0 {
        follow::opened(fd);
    }
    fd
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: L1.
    copied(unsafe { next::dup(fd) })
}

macro_rules! copies_over {
    ($($name:ident = $next:ident($($flags:ident)?);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(fd: c_int, to: c_int $(, $flags: c_int)?) -> c_int {
            if fd == to {
                // SAFETY: L1.
                return copied(unsafe { next::$next(fd, to $(, $flags)?) });
            }
            u32::try_from(to).into_iter().for_each(|to| forget_range(to, to));
            let quiet = quiet::take(to);
            // SAFETY: L1.
            let answer = copied(unsafe { next::$next(fd, to $(, $flags)?) });
            quiet.into_iter().for_each(|quiet| if answer < 0 { quiet::put_back(to, quiet) } else { line::close(quiet) });
            answer
        }
    )* };
}

copies_over! {
    dup2 = dup2();
    __dup2 = dup2();
    dup3 = dup3(flags);
}

macro_rules! controls {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1, L4.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
            // SAFETY: L1, L4.
            let answer = unsafe { next::fcntl(fd, command, argument) };
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(answer),
                _ => answer,
            }
        }
    )* };
}

controls!(fcntl, fcntl64, __fcntl);

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn daemon(nochdir: c_int, noclose: c_int) -> c_int {
    forget_range(0, 2);
    // SAFETY: L1.
    unsafe { next::daemon(nochdir, noclose) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn login_tty(fd: c_int) -> c_int {
    forget_range(0, 2);
    descriptors::forget(fd);
    // SAFETY: L1.
    unsafe { next::login_tty(fd) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn closedir(folder: *mut c_void) -> c_int {
    if !folder.is_null() {
        // SAFETY: L1.
        descriptors::forget(unsafe { libc::dirfd(folder.cast()) });
    }
    // SAFETY: L1.
    unsafe { next::closedir(folder) }
}
