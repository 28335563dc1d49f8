//! Functions that promise that files are durable.

use crate::{follow, next};
use std::ffi::c_int;

/// As in libc; ends in persistent memory if the file is held.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn fsync(fd: c_int) -> c_int {
    // SAFETY: L1.
    follow::sync(fd, true, || unsafe { next::fsync(fd) })
}

/// As in libc; ends in persistent memory if the file is held.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: L1.
    follow::sync(fd, false, || unsafe { next::fdatasync(fd) })
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sync() {
    // SAFETY: L1.
    unsafe { next::sync() }
    follow::synced_all();
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn syncfs(fd: c_int) -> c_int {
    // SAFETY: L1.
    let answer = unsafe { next::syncfs(fd) };
    follow::synced_all();
    answer
}
