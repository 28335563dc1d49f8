//! libc's functions, taken over.

mod children;
mod copies;
mod lengths;
mod limits;
mod mappings;
mod numbers;
mod transfers;
#[cfg(target_arch = "x86_64")]
mod vfork;

use crate::{contexts, files, process, read_memory, trace};
use libc::c_int;
use tidegate_preload_common::next;

/// Called by the loader before the program begins.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

extern "C" fn start() {
    crate::guarded(|| {
        next::find_all();
        #[cfg(target_arch = "x86_64")]
        vfork::find_all();
        process::start(before_fork, after_fork, after_fork_in_child);
        contexts::start();
        read_memory::start();
        trace::start();
        crate::mappings::start();
    });
}

/// Called when the program ends.
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;

extern "C" fn end() {
    crate::guarded(|| {
        if mappings::any() {
            crate::mappings::end();
        }
    });
}

/// Sets the program's errno.
fn set_errno(errno: c_int) {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

extern "C" fn before_fork() {
    crate::guarded(|| {
        files::before_fork();
        crate::mappings::before_fork();
    });
}

extern "C" fn after_fork_in_child() {
    crate::guarded(|| {
        if files::has_path() {
            crate::mappings::after_fork_in_child();
        }
    });
}

/// In the parent: what another thread opened while the child was made, the child has too.
extern "C" fn after_fork() {
    crate::guarded(|| {
        crate::mappings::after_fork();
        files::all_shared();
    });
}
