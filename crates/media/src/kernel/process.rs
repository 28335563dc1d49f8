//! Which process this is, told by one load: a child of `fork` has its parent's memory and open
//! files, and is another process all the same.
//!
//! The number of a process is a word in a page of its own that the kernel wipes in every child that
//! gets a copy of the memory (`MADV_WIPEONFORK`): by `fork`, and by `clone` called past libc, which
//! handlers of `pthread_atfork` do not see. `getpid` would tell as much, and is a system call each
//! time. A child that shares the memory (`vfork`, `CLONE_VM`) is not told from its parent: what it
//! does there it does to its parent's own handles, as a thread would, and until it runs a program
//! or ends, `vfork` allows it nothing of the kind. Kernels before 4.14 do not wipe pages; there the
//! number is that of the system.

use crate::memory::forgotten_in_children;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The page; null before it is first needed.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// The last number that this process or one that it descends from had. Children begin with a copy
/// of it, so no process has the number of an ancestor.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// In place of the page where the kernel wipes none: it stays empty.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// One process, and none of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The process that asks.
    pub fn current() -> Process {
        let word = word();
        if std::ptr::eq(word, &raw const NO_PAGE) {
            return Process(std::process::id().into());
        }
        match word.load(Ordering::Relaxed) {
            // Nobody has asked before, or the page was wiped: then this is a child. Relaxed: the
            // number is all that is told.
            0 => {
                let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
                let first = word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
                Process(first.map_or_else(|other| other, |_| number))
            }
            number => Process(number),
        }
    }

    /// Whether the process that asks is this one.
    pub fn is_current(self) -> bool {
        self == Process::current()
    }
}

/// The word that a child finds empty. No lock is held while it is made: a child forked at that
/// moment would wait for it forever.
fn word() -> &'static AtomicU64 {
    // Acquire: pairs with the exchange below, by which the page is ready.
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let made = forgotten_in_children().unwrap_or(&NO_PAGE);
        let made = std::ptr::from_ref(made).cast_mut();
        // Two threads may make one each; the second page stays unused, which happens once.
        page = match PAGE.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => other,
        };
    }
    // SAFETY: it is `NO_PAGE` or the first word of a page that is never unmapped, and nothing else
    // is ever there.
    unsafe { &*page }
}

/// Runs `child` in a child of this process, and tells whether it said yes.
#[cfg(test)]
pub(crate) fn in_a_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs a closure that waits for no other thread, and ends without coming
    // back.
    match unsafe { libc::fork() } {
        0 => {
            let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
            // SAFETY: ends the child at once, past what the test's process would do at its end.
            unsafe { libc::_exit(i32::from(!said)) }
        }
        child => {
            assert!(child > 0, "a child was forked");
            let mut status = 0;
            // SAFETY: waits for the child made above, and writes to a number of this function.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
            ended == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let parent = Process::current();
        assert!(parent.is_current() && Process::current() == parent);
        assert!(in_a_child(|| {
            let child = Process::current();
            let others = !parent.is_current() && child.is_current();
            others && in_a_child(|| !parent.is_current() && !child.is_current())
        }));
        assert!(parent.is_current());
    }

    #[test]
    fn all_threads_of_a_process_are_one() {
        let parent = Process::current();
        assert!(std::thread::spawn(move || parent.is_current()).join().expect("it answers"));
    }
}
