//! Memory that outlives this process, as another process holds its file too: what was stored
//! before a kill is there. Its room is reserved before it is mapped, so that no store meets a
//! machine without memory.

use crate::mapped::mapped_part::MappedPart;
use crate::region::Region;
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, fallocate};
use std::{fmt, io};

/// Bytes that a window has mapped at once.
const WINDOW_BYTES: usize = 1 << 18;

/// A part of a file in memory, mapped.
pub struct OutlivingMemory(MappedPart);

/// The part of a long file in memory that is stored to now.
#[derive(Default)]
pub struct OutlivingWindow(Option<(u64, OutlivingMemory)>);

impl OutlivingMemory {
    /// Maps `len` bytes of `file` from byte `at` on, a multiple of the size of a page.
    pub fn of(file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<OutlivingMemory> {
        fallocate(file, FallocateFlags::empty(), at, len as u64)?;
        MappedPart::of(file, at, len).map(OutlivingMemory)
    }

    /// Copies `out.len()` bytes from offset `at`.
    pub fn load(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(at, out).map_err(io::Error::other)
    }

    /// Stores `bytes` at offset `at`. A kill leaves any part of them.
    pub fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(at, bytes);
        self.taken()
    }

    /// Stores the aligned word at offset `at`, after all earlier stores and before all later ones.
    /// A kill leaves all of it or nothing.
    pub fn store_word(&self, at: u64, word: u64) -> io::Result<()> {
        self.0.store_u64(at, word);
        self.taken()
    }

    /// Counts the aligned word at offset `at` up, and wakes every thread that waits by futex for
    /// its first four bytes to change, in whichever process. Of two threads that count at once, one
    /// may not be counted.
    pub fn ring(&self, at: u64) -> io::Result<()> {
        let word = self.0.load_u64(at).map_err(io::Error::other)?;
        self.store_word(at, word.wrapping_add(1))?;
        self.0.mapping().wake(at)
    }

    /// Whether the memory took the stores. Nothing has to be durable, but the fence keeps their
    /// order.
    fn taken(&self) -> io::Result<()> {
        self.0.fence().map_err(io::Error::other)
    }
}

impl fmt::Debug for OutlivingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutlivingMemory").field("len", &self.0.len()).finish()
    }
}

impl OutlivingWindow {
    /// Stores `bytes`, at most a quarter of 1 MiB less a page, at offset `at` of `file`: each time
    /// the same one.
    pub fn store(&mut self, file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        let has_room = |(start, _): &(u64, OutlivingMemory)| *start <= at && end - start <= WINDOW_BYTES as u64;
        let (start, memory) = match self.0.take().filter(has_room) {
            Some(window) => window,
            None => {
                let start = at - at % rustix::param::page_size() as u64;
                (start, OutlivingMemory::of(file, start, WINDOW_BYTES)?)
            }
        };
        let stored = memory.store(at - start, bytes);
        self.0 = Some((start, memory));
        stored
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_window_follows_what_is_stored_and_the_file_has_it_all() {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (mut window, bytes) = (OutlivingWindow::default(), [7; 5000]);
        for at in (0..3 * WINDOW_BYTES as u64).step_by(bytes.len()) {
            window.store(memory.as_fd(), at, &bytes).unwrap();
        }
        window.store(memory.as_fd(), 100, b"back").unwrap();
        let (file, mut found) = (File::from(memory), vec![0; 3 * WINDOW_BYTES]);
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found[100..104], b"back");
        assert!(found[..100].iter().chain(&found[104..]).all(|byte| *byte == 7));
    }

    #[test]
    fn the_next_mapping_has_what_was_stored_in_the_last_one() {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let of = || OutlivingMemory::of(memory.as_fd(), 0, 10_000).unwrap();
        of().store(4090, b"over two pages").unwrap();
        of().store_word(8, u64::from_ne_bytes(*b"one word")).unwrap();
        let mut found = [0; 14];
        of().load(4090, &mut found).unwrap();
        assert_eq!(&found, b"over two pages");
        of().load(8, &mut found[..8]).unwrap();
        assert_eq!(&found[..8], b"one word");
    }
}
