//! A page that the kernel wipes in children that are forked, which tells them that they are ones.
//!
//! # The law of the unsafe code
//!
//! - **L1** The page lives as long as the process, and is only used as an atomic.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the page.
const BYTES: usize = 4096;

/// Maps such a page, which begins with `word` in this process and with 0 in its children. `None`:
/// the kernel refuses.
pub fn mapped(word: u32) -> Option<&'static AtomicU32> {
    // SAFETY: a new mapping at a place that the kernel chooses.
    let page = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the page was just mapped, and nobody else knows it.
    unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: L1, and the beginning of a page is aligned.
    let mark = unsafe { AtomicU32::from_ptr(page.cast()) };
    mark.store(word, Ordering::Release);
    Some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_finds_zero_and_its_parent_the_word() {
        let mark = mapped(7).expect("the kernel knows it");
        // SAFETY: the child does nothing but end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it has no conditions.
            unsafe { libc::_exit(i32::try_from(mark.load(Ordering::Acquire)).unwrap_or(-1)) };
        }
        let mut status = -1;
        // SAFETY: the status is this function's own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, mark.load(Ordering::Acquire)), (0, 7));
    }
}
