//! The words of a stack next to its top.

use crate::modules::{CodeRanges, Modules};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Words that are scanned.
const WORDS: usize = 96;
/// So many that point into code are enough, and so many where the next ones are in another page.
const CODE_WORDS: u32 = 8;
const CODE_WORDS_IN_PAGE: u32 = 5;

const WORD_BYTES: usize = size_of::<usize>();
const PAGE_BYTES: usize = 4096;

/// Where the stack of a thread begins that is in a call. It is of use only while the function that
/// took it runs, and to that thread.
#[derive(Clone, Copy, Debug)]
pub struct StackTop(pub(crate) usize);

impl StackTop {
    /// Of the function that this is inlined into.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the place has to be the caller's own")]
    pub fn here() -> StackTop {
        let local = 0_usize;
        StackTop(std::hint::black_box(&raw const local).expose_provenance())
    }
}

/// What tells apart the ways that led to a call. `None`: too little points into code, or the stack
/// ends.
pub(crate) fn key(top: StackTop, modules: &Modules) -> Option<u64> {
    let StackTop(top) = top;
    let end = top.checked_add(WORDS * WORD_BYTES)?;
    let page_end = top.checked_add(PAGE_BYTES)? & !(PAGE_BYTES - 1);
    let (mut key, code) = (Key::default(), modules.code());
    // S1.
    key.scan(top..end.min(page_end), code);
    if key.found < CODE_WORDS_IN_PAGE && page_end < end {
        key.scan_above(page_end..end, code)?;
    }
    (key.found > 0).then_some(key.hash)
}

#[derive(Default)]
struct Key {
    hash: u64,
    found: u32,
}

impl Key {
    /// Takes in the words of a range of this thread's own stack, until there are enough.
    fn scan(&mut self, range: std::ops::Range<usize>, code: CodeRanges<'_>) {
        for at in range.step_by(WORD_BYTES) {
            let place = std::ptr::with_exposed_provenance_mut(at);
            // SAFETY: S1; an aligned word, which other threads may store to that have a pointer to
            // something on this stack.
            let word = unsafe { AtomicUsize::from_ptr(place) }.load(Ordering::Relaxed);
            if code.has(word) && self.has_enough_with(word) {
                return;
            }
        }
    }

    /// Takes in the words of a range in the page above. `None`: they cannot be read.
    #[cold]
    fn scan_above(&mut self, range: std::ops::Range<usize>, code: CodeRanges<'_>) -> Option<()> {
        let mut words = [0; WORDS];
        let words = &mut words[..range.len() / WORD_BYTES];
        // S2.
        copy_of(range.start, words)?;
        _ = words.iter().any(|word| code.has(*word) && self.has_enough_with(*word));
        Some(())
    }

    /// Takes in a word that points into code. Whether there are enough.
    fn has_enough_with(&mut self, word: usize) -> bool {
        // An odd factor with mixed bits, so that the order counts too.
        self.hash = (self.hash.rotate_left(23) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.found += 1;
        self.found == CODE_WORDS
    }
}

/// Copies words from `at` on, by the kernel: that page may be the guard of another stack, or none.
fn copy_of(at: usize, words: &mut [usize]) -> Option<()> {
    let bytes = size_of_val(words);
    let here = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(at), iov_len: bytes };
    // SAFETY: it is this thread's own, and the kernel stores to `words` alone.
    let copied = unsafe {
        let errno = *libc::__errno_location();
        let copied = libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0);
        *libc::__errno_location() = errno;
        copied
    };
    (usize::try_from(copied) == Ok(bytes)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    #[test]
    fn a_stack_that_ends_with_its_page_is_read_no_further() {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the place.
        let two = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * PAGE_BYTES, access, flags) }.expect("memory");
        let second = two.wrapping_byte_add(PAGE_BYTES);
        let protect = |access| {
            // SAFETY: nobody uses it.
            unsafe { mprotect(second, PAGE_BYTES, access) }.expect("it is mapped");
        };
        let modules = Modules::new();
        assert!(modules.refresh());
        let top = StackTop(second.addr() - 3 * WORD_BYTES);
        assert_eq!(key(top, &modules), None, "zeroes are no code");
        // SAFETY: it is the last word of the first page.
        unsafe { second.wrapping_byte_sub(WORD_BYTES).cast::<usize>().write(black_box_of_code()) };
        assert!(key(top, &modules).is_some());
        protect(MprotectFlags::empty());
        assert_eq!(key(top, &modules), None, "the second page is a guard");
        protect(MprotectFlags::READ);
        assert!(key(top, &modules).is_some());
        // SAFETY: nobody uses it any more.
        unsafe { munmap(second, PAGE_BYTES) }.expect("it is mapped");
        assert_eq!(key(top, &modules), None, "there is no second page");
        // SAFETY: nobody uses it any more.
        unsafe { munmap(two, PAGE_BYTES) }.expect("it is mapped");
    }

    /// An address in code that is not this crate's own.
    fn black_box_of_code() -> usize {
        let function: unsafe extern "C" fn() -> libc::pid_t = libc::getpid;
        function as usize
    }
}
