//! Signals of this thread, held back.

use libc::sigset_t;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// No signal handler runs on this thread as long as this is there.
pub(super) struct HeldSignals(sigset_t);

impl HeldSignals {
    pub(super) fn new() -> HeldSignals {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both are sets, of which the first is filled before it is read, and the second by
        // the second call, which has no other reason to fail than a wrong word.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            HeldSignals(before.assume_init())
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: it is a set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}
