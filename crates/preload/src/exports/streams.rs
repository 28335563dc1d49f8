//! Streams: libc writes their files past `write`, so files of streams are not held.

use super::changes::{changing_by_opening, settle_contents};
use crate::names::Change;
use crate::{descriptors, follow, next};
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void};

/// Whether a stream of this mode writes, and whether it cuts the file at first.
///
/// # Safety
/// L1: `mode` is null or ends with a zero byte.
unsafe fn writes(mode: *const c_char) -> (bool, bool) {
    if mode.is_null() {
        return (false, false);
    }
    // SAFETY: not null, so it ends with a zero byte.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    (mode.iter().any(|letter| b"wa+".contains(letter)), mode.starts_with(b"w"))
}

/// A stream was made.
///
/// # Safety
/// `stream` is null or open.
unsafe fn made(stream: *mut FILE, writes: bool) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: the caller's promise.
        let fd = unsafe { libc::fileno(stream) };
        descriptors::forget(fd);
        if writes {
            follow::abandon_unseen(fd);
        }
    }
    stream
}

/// Makes a stream by `call`; nothing is kept of the file that it cuts.
///
/// # Safety
/// L1.
unsafe fn opened(path: *const c_char, mode: *const c_char, call: impl FnOnce() -> *mut FILE) -> *mut FILE {
    // SAFETY: L1.
    let (writes, cuts) = unsafe { writes(mode) };
    let prepare = || {
        if cuts {
            // SAFETY: L1.
            unsafe { settle_contents(AT_FDCWD, path) };
        }
    };
    // SAFETY: L1.
    let change = if writes { unsafe { changing_by_opening(AT_FDCWD, path) } } else { None };
    let stream = if cuts { follow::change(prepare, call) } else { call() };
    if !stream.is_null() {
        // SAFETY: it was just opened.
        change.into_iter().for_each(|change| change.opened(unsafe { libc::fileno(stream) }));
    }
    change.into_iter().for_each(Change::end);
    // SAFETY: it was just opened, or is null.
    unsafe { made(stream, writes) }
}

macro_rules! opens {
    ($($fopen:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: L1.
            unsafe { opened(path, mode, || next::fopen(path, mode)) }
        }
    )* };
}

opens!(fopen, fopen64, _IO_fopen);

macro_rules! opens_anew {
    ($($freopen:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            // SAFETY: L1.
            unsafe {
                forget(stream);
                opened(path, mode, || next::freopen(path, mode, stream))
            }
        }
    )* };
}

opens_anew!(freopen, freopen64);

macro_rules! stands_on {
    ($($fdopen:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
            // SAFETY: L1.
            unsafe { made(next::fdopen(fd, mode), writes(mode).0) }
        }
    )* };
}

stands_on!(fdopen, _IO_fdopen);

/// The descriptor below `stream` is going to be closed.
///
/// # Safety
/// L1.
unsafe fn forget(stream: *mut FILE) {
    if !stream.is_null() {
        // SAFETY: L1.
        super::numbers::closing(unsafe { libc::fileno(stream) });
    }
}

macro_rules! closes {
    ($($name:ident = $next:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(stream: *mut FILE) -> c_int {
            // SAFETY: L1.
            unsafe {
                forget(stream);
                next::$next(stream)
            }
        }
    )* };
}

closes!(fclose = fclose, _IO_fclose = fclose, pclose = pclose);

/// As in libc: a stream for the time of the call.
///
/// # Safety
/// L1. A list of arguments is passed as its address on all machines of 64 bits that this is built
/// for.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    follow::abandon_unseen(fd);
    // SAFETY: L1.
    unsafe { next::vdprintf(fd, format, arguments) }
}

/// As in libc.
///
/// # Safety
/// L1; of the list, as above.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn __vdprintf_chk(
    fd: c_int,
    level: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    follow::abandon_unseen(fd);
    // SAFETY: L1.
    unsafe { next::__vdprintf_chk(fd, level, format, arguments) }
}

/// What is done before `dprintf`, which is where this says.
#[cfg(target_arch = "x86_64")]
extern "C" fn before_dprintf(fd: c_int) -> *mut c_void {
    follow::abandon_unseen(fd);
    next::dprintf_at()
}

#[cfg(target_arch = "x86_64")]
extern "C" fn before_dprintf_chk(fd: c_int) -> *mut c_void {
    follow::abandon_unseen(fd);
    next::dprintf_chk_at()
}

/// A function of any arguments: registers that carry them are kept over a call of `$before`, and
/// the next definition is jumped to.
#[cfg(target_arch = "x86_64")]
macro_rules! passes_on {
    ($($name:ident after $before:ident;)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                "sub rsp, 0xb8",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movups [rsp + 56], xmm0",
                "movups [rsp + 72], xmm1",
                "movups [rsp + 88], xmm2",
                "movups [rsp + 104], xmm3",
                "movups [rsp + 120], xmm4",
                "movups [rsp + 136], xmm5",
                "movups [rsp + 152], xmm6",
                "movups [rsp + 168], xmm7",
                "call {before}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movups xmm0, [rsp + 56]",
                "movups xmm1, [rsp + 72]",
                "movups xmm2, [rsp + 88]",
                "movups xmm3, [rsp + 104]",
                "movups xmm4, [rsp + 120]",
                "movups xmm5, [rsp + 136]",
                "movups xmm6, [rsp + 152]",
                "movups xmm7, [rsp + 168]",
                "add rsp, 0xb8",
                "jmp r11",
                before = sym $before,
            )
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
passes_on! {
    dprintf after before_dprintf;
    __dprintf_chk after before_dprintf_chk;
}
