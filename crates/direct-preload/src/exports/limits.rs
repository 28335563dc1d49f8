//! Functions that set a limit of file sizes: the kernel looks after that, so the process has no
//! lease from then on, as `Service` claims none.

use crate::service::has_limit;
use crate::{files, guarded};
use libc::{RLIMIT_FSIZE, c_int, c_long, pid_t, rlimit};
use tidegate_preload_common::next;

/// A limit may have been set, if `answer` says that the call did what it was to do.
fn limited(resource: c_int, answer: c_long) {
    if answer >= 0 && resource == RLIMIT_FSIZE as c_int && guarded(has_limit) {
        guarded(files::give_up_all);
    }
}

macro_rules! limits {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(resource: c_int, limit: *const rlimit) -> c_int {
            // SAFETY: L1.
            let answer = unsafe { next::setrlimit(resource, limit) };
            limited(resource, answer.into());
            answer
        }
    )* };
}

limits!(setrlimit, setrlimit64);

macro_rules! limits_of {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            process: pid_t,
            resource: c_int,
            limit: *const rlimit,
            before: *mut rlimit,
        ) -> c_int {
            // SAFETY: L1.
            let answer = unsafe { next::prlimit(process, resource, limit, before) };
            if !limit.is_null() {
                limited(resource, answer.into());
            }
            answer
        }
    )* };
}

limits_of!(prlimit, prlimit64);

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ulimit(command: c_int, limit: c_long) -> c_long {
    // SAFETY: L1.
    let answer = unsafe { next::ulimit(command, limit) };
    limited(RLIMIT_FSIZE as c_int, answer);
    answer
}
