//! Functions that set the length of a file by a descriptor.

use crate::{files, guarded};
use libc::{c_int, off_t};
use tidegate_file_direct::Attempted;
use tidegate_preload_common::next;

macro_rules! sets_length {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, length: off_t) -> c_int {
            let by_lease = || {
                let length = u64::try_from(length).ok()?;
                Some(files::known(fd)?.set_length(fd, length))
            };
            match guarded(by_lease) {
                Some(Attempted::Done(_)) => 0,
                Some(Attempted::Failed) => {
                    super::set_errno(libc::EIO);
                    -1
                }
                // SAFETY: L1.
                _ => unsafe { next::ftruncate(fd, length) },
            }
        }
    )* };
}

sets_length!(ftruncate, ftruncate64);
