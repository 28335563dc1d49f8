//! Functions that give open file descriptions to other processes, beside `fork`.
//!
//! libc makes these children by itself, and no handler of forks sees that. A child has the memory
//! of its parent only until it executes another program: there is nothing to give up.

use crate::{files, guarded};
use libc::{
    FILE, c_int, c_uint, cmsghdr, mmsghdr, msghdr, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, ssize_t,
};
use std::ffi::c_char;
use tidegate_preload_common::next;

macro_rules! spawns {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => { $(
        /// As in libc. The child may keep all descriptors.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $answer {
            guarded(files::all_shared);
            // SAFETY: L1.
            let answer = unsafe { next::$name($($argument),*) };
            // What another thread opened meanwhile, the child may have too.
            guarded(files::all_shared);
            answer
        }
    )* };
}

spawns! {
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    system(command: *const c_char) -> c_int;
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
}

/// The descriptors that a message passes on are shared from now on.
///
/// # Safety
/// L1: it is a message.
unsafe fn passing(message: *const msghdr) {
    // SAFETY: L1.
    let is_without = message.is_null() || unsafe { (*message).msg_control.is_null() };
    if is_without {
        return;
    }
    // SAFETY: L1, here and below: its control data is as it says.
    let mut part: *const cmsghdr = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !part.is_null() {
        // SAFETY: as above.
        let (level, kind, len) = unsafe { ((*part).cmsg_level, (*part).cmsg_type, (*part).cmsg_len) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: as above.
            let numbers = unsafe { libc::CMSG_DATA(part) }.cast::<c_int>();
            // SAFETY: L1. What is wrong with a length, the kernel says.
            let bytes = len.min(unsafe { (*message).msg_controllen }).saturating_sub(numbers.addr() - part.addr());
            for place in 0..bytes / size_of::<c_int>() {
                // SAFETY: as above; they may lie anywhere.
                files::shared(unsafe { numbers.add(place).read_unaligned() });
            }
        }
        // SAFETY: as above.
        part = unsafe { libc::CMSG_NXTHDR(message, part) };
    }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: L1.
    guarded(|| unsafe { passing(message) });
    // SAFETY: L1.
    unsafe { next::sendmsg(fd, message, flags) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    for place in 0..if messages.is_null() { 0 } else { count as usize } {
        // SAFETY: L1: there are so many.
        guarded(|| unsafe { passing(&raw const (*messages.add(place)).msg_hdr) });
    }
    // SAFETY: L1.
    unsafe { next::sendmmsg(fd, messages, count, flags) }
}
