//! Words of this process alone, from the kernel: nothing is allocated, and the stack may be small.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::slice;

/// Words that are 0 at first. Those that nobody touches take no memory.
pub struct OwnWords {
    at: NonNull<u64>,
    count: usize,
}

// SAFETY: it owns its mapping, of which nobody else has the address.
unsafe impl Send for OwnWords {}
// SAFETY: as above; what is shared is read only.
unsafe impl Sync for OwnWords {}

impl OwnWords {
    /// So many words. `None`: the kernel has none.
    pub fn zeroed(count: usize) -> Option<OwnWords> {
        let bytes = count.checked_mul(size_of::<u64>()).filter(|bytes| *bytes > 0)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let at = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
        Some(OwnWords { at: NonNull::new(at.cast())?, count })
    }
}

impl Deref for OwnWords {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: so many words are mapped as long as this lives, and begin at a page; any bytes
        // are words.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl DerefMut for OwnWords {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and nobody else has them.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.count) }
    }
}

impl Drop for OwnWords {
    fn drop(&mut self) {
        // SAFETY: nobody has the words any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_at_first_and_keep_what_is_stored() {
        let mut words = OwnWords::zeroed(100_000).expect("the kernel has some");
        assert!(words.len() == 100_000 && words.iter().all(|word| *word == 0));
        words[99_999] = 7;
        assert_eq!((words[99_998], words[99_999]), (0, 7));
        assert!(OwnWords::zeroed(0).is_none());
    }
}
