//! Functions that copy between descriptors within the kernel, which looks no further than the end
//! that it knows.

use crate::exports::transfers::before_read_by_kernel;
use crate::{files, guarded};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use tidegate_preload_common::next;

macro_rules! copies {
    ($($name:ident = $next:ident of $source:ident ($($argument:ident: $kind:ty),*);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> ssize_t {
            guarded(|| files::have_kernel_ask($source));
            before_read_by_kernel($source);
            // SAFETY: L1.
            unsafe { next::$next($($argument),*) }
        }
    )* };
}

copies! {
    sendfile = sendfile of from (out: c_int, from: c_int, at: *mut off_t, len: size_t);
    sendfile64 = sendfile of from (out: c_int, from: c_int, at: *mut off_t, len: size_t);
    splice = splice of from
        (from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, len: size_t, flags: c_uint);
    copy_file_range = copy_file_range of from
        (from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, len: size_t, flags: c_uint);
}
