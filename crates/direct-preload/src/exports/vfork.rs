//! Functions that may begin a process with this memory and descriptors of its own: a number means
//! something else there than here.
//!
//! Each is passed on by a jump, as what calls it may return twice, or on another stack. On other
//! machines than this every process is taken for such a one.

use crate::{files, guarded, process};
use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;
use tidegate_preload_common::next;

macro_rules! shares {
    ($($name:ident at $place:ident after $before:ident;)*) => {
        /// Finds all of them, so that none is looked for later, where that might not be allowed.
        pub(super) fn find_all() {
            $($place();)*
        }

        $(fn $place() -> *mut c_void {
            static PLACE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            next::resolved(&PLACE, concat!(stringify!($name), "\0"))
        }

        extern "C" fn $before() -> *mut c_void {
            process::shares_memory();
            guarded(files::all_shared);
            let place = $place();
            if place.is_null() {
                std::process::abort();
            }
            place
        }

        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        })*
    };
}

shares! {
    vfork at vfork_at after before_vfork;
    __vfork at vfork_too_at after before_vfork_too;
    clone at clone_at after before_clone;
    __clone at clone_too_at after before_clone_too;
}
