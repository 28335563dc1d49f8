//! Parts of a file, for a process that owns a few of its chunks: one part that is mapped as long as
//! this lasts, and the chunks, each mapped when it is first touched. A chunk that was only read is
//! mapped for reading alone: it may be another one's. Offsets are those in the file.
//!
//! Whoever lends the chunks asks about the lasting part only ([`MappedPart::is_mapped`]), which
//! several processes may have. So chunks may be mapped late, and have no lock.

use crate::error::{Poison, Sealed};
use crate::mapped::mapped_part::MappedPart;
use crate::region::{ExchangeWords, Region};
use crate::sync::{AtomicU64, Ordering};
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// Chunks that are mapped at most.
const PARTS_MAX: usize = 4096;

/// With so many, no further ones are mapped that are only read.
const PARTS_READ_MAX: usize = PARTS_MAX / 2;

/// Chunks that can be told apart, from the first one on.
const CHUNKS_MAX: usize = 1 << 16;

/// No store was lost.
const SOUND: u64 = u64::MAX;

/// Opens the file, and gives it to whoever maps a part of it; or does not.
pub trait OpenShared {
    /// See [`OpenShared`]. It may be closed after that.
    fn open(&self, map: &mut dyn FnMut(BorrowedFd<'_>));
}

/// The mapped chunks, on pages of their own: the stack may be small, and nothing is allocated.
#[repr(C)]
struct Tables {
    /// For each chunk, one more than its place in `parts`; 0: it is not mapped. By [`Touch`].
    places: [[u16; CHUNKS_MAX]; 2],
    used: usize,
    parts: [MaybeUninit<MappedPart>; PARTS_MAX],
}

/// What a chunk is touched for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Load,
    Store,
}

/// A file of which this process has one part, and chunks, as a region; others may have the same.
/// What is not of them, or
/// cannot be mapped, is not read ([`Poison`]), and a store there is lost: it seals the region.
///
/// One thread at a time calls the verbs.
pub struct MappedChunks<O> {
    file: O,
    file_bytes: u64,
    /// Where the first chunk lies, and bytes in each.
    first_at: u64,
    chunk_bytes: u64,
    lasting: MappedPart,
    lasting_at: u64,
    tables: NonNull<Tables>,
    /// Offset of the first lost store, or [`SOUND`].
    first_lost: AtomicU64,
}

// SAFETY: the tables are this value's own, and nobody else has their address.
unsafe impl<O: Send> Send for MappedChunks<O> {}
// SAFETY: as its documentation says, one thread at a time calls the verbs.
unsafe impl<O: Send> Sync for MappedChunks<O> {}

impl<O: OpenShared> MappedChunks<O> {
    /// Maps the part `lasting` of a file of `file_bytes`, whose chunks of `chunk_bytes` lie from
    /// `first_at` on. `None`: it cannot be mapped, or another process has it for itself.
    pub fn of(
        file: O,
        file_bytes: u64,
        lasting: Range<u64>,
        first_at: u64,
        chunk_bytes: u64,
    ) -> Option<MappedChunks<O>> {
        let lasting_at = lasting.start;
        if lasting.end > file_bytes || chunk_bytes == 0 {
            return None;
        }
        let lasting = mapped(&file, MappedPart::beside_others, lasting_at, lasting.end.checked_sub(lasting_at)?)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let tables =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), size_of::<Tables>(), access, MapFlags::PRIVATE) }.ok()?;
        let (tables, first_lost) = (NonNull::new(tables.cast())?, AtomicU64::new(SOUND));
        Some(MappedChunks { file, file_bytes, first_at, chunk_bytes, lasting, lasting_at, tables, first_lost })
    }

    /// The place in the lasting part of `len` bytes at `at`, if they lie there.
    fn in_lasting(&self, at: u64, len: u64) -> Option<u64> {
        let place = at.checked_sub(self.lasting_at)?;
        place.checked_add(len).filter(|end| *end <= self.lasting.len()).map(|_| place)
    }

    /// The part that has `len` bytes at `at`, and their place in it. `None`: there is none.
    fn part(&self, at: u64, len: u64, touch: Touch) -> Option<(&MappedPart, u64)> {
        if let Some(place) = self.in_lasting(at, len) {
            return Some((&self.lasting, place));
        }
        let from = at.checked_sub(self.first_at)?;
        let (number, place) = (from / self.chunk_bytes, from % self.chunk_bytes);
        let end = (at - place).checked_add(self.chunk_bytes)?;
        if place.checked_add(len)? > self.chunk_bytes || end > self.file_bytes {
            return None;
        }
        Some((self.chunk(usize::try_from(number).ok()?, end - self.chunk_bytes, touch)?, place))
    }

    /// The chunk of this number at `at`, mapped now if it is not.
    fn chunk(&self, number: usize, at: u64, touch: Touch) -> Option<&MappedPart> {
        // SAFETY: the tables are mapped as long as this lives, all zeroes are valid ones, and one
        // thread at a time is here.
        let tables = unsafe { &mut *self.tables.as_ptr() };
        let [stored, loaded] = [Touch::Store, Touch::Load].map(|touch| tables.places[touch as usize].get(number));
        let known = match (*stored?, *loaded?) {
            (0, loaded) if touch == Touch::Load => loaded,
            (stored, _) => stored,
        };
        let place = match usize::from(known).checked_sub(1) {
            Some(place) => place,
            None => {
                let place = tables.used;
                let (map, most): (Map, usize) = match touch {
                    Touch::Load => (MappedPart::read_only, PARTS_READ_MAX),
                    Touch::Store => (MappedPart::unlocked, PARTS_MAX),
                };
                let part = tables.parts[..most].get_mut(place)?;
                part.write(mapped(&self.file, map, at, self.chunk_bytes)?);
                (tables.used, tables.places[touch as usize][number]) = (place + 1, u16::try_from(place + 1).ok()?);
                place
            }
        };
        // SAFETY: the first `used` parts are there, and stay where they are.
        Some(unsafe { tables.parts[place].assume_init_ref() })
    }

    /// Stores `len` bytes at `at` by `act`.
    fn store(&self, at: u64, len: u64, act: impl FnOnce(&MappedPart, u64)) {
        let is_stored = self.part(at, len, Touch::Store).is_some_and(|(part, place)| {
            act(part, place);
            part.sealed().is_ok()
        });
        if !is_stored {
            // The first offset stays: the exchange fails when one is there. Relaxed: one thread.
            let _ = self.first_lost.compare_exchange(SOUND, at, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Loads `len` bytes at `at` by `act`.
    fn load<T>(&self, at: u64, len: u64, act: impl FnOnce(&MappedPart, u64) -> Result<T, Poison>) -> Result<T, Poison> {
        let loaded = self.part(at, len, Touch::Load).map(|(part, place)| act(part, place));
        loaded.and_then(Result::ok).ok_or(Poison { at, len })
    }
}

impl<O: OpenShared + Send> ExchangeWords for MappedChunks<O> {
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        self.load(at, 8, |part, place| part.exchange_u64(place, old, new))
    }
}

impl<O: OpenShared + Send> Region for MappedChunks<O> {
    fn len(&self) -> u64 {
        self.file_bytes
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.load(at, out.len() as u64, |part, place| part.read(place, out))
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.load(at, 8, |part, place| part.load_u64(place))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.store(at, bytes.len() as u64, |part, place| part.write(place, bytes));
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.store(at, bytes.len() as u64, |part, place| part.stream(place, bytes));
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.store(at, 8, |part, place| part.store_u64(place, word));
    }

    fn flush(&self, at: u64, len: u64) {
        self.store(at, len, |part, place| part.flush(place, len));
    }

    fn fence(&self) -> Result<(), Sealed> {
        // One fence orders the stores of this thread to any memory.
        self.lasting.fence()?;
        match self.first_lost.load(Ordering::Relaxed) {
            SOUND => Ok(()),
            at => Err(Sealed::StoreLost { at }),
        }
    }
}

impl<O> Drop for MappedChunks<O> {
    /// The chunks go before the lasting part, which keeps them from others.
    fn drop(&mut self) {
        // SAFETY: as in `chunk`.
        let tables = unsafe { &mut *self.tables.as_ptr() };
        for part in &mut tables.parts[..tables.used] {
            // SAFETY: the first `used` parts are there, and nobody uses them any more.
            unsafe { part.assume_init_drop() };
        }
        // SAFETY: nobody uses the tables any more.
        let _ = unsafe { rustix::mm::munmap(self.tables.as_ptr().cast(), size_of::<Tables>()) };
    }
}

/// Maps a part of a file.
type Map = fn(BorrowedFd<'_>, u64, usize) -> io::Result<MappedPart>;

/// `len` bytes of the file at `at`.
fn mapped(file: &impl OpenShared, map: Map, at: u64, len: u64) -> Option<MappedPart> {
    let (mut part, len) = (None, usize::try_from(len).ok()?);
    file.open(&mut |file| part = map(file, at, len).ok());
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    const CHUNK_BYTES: u64 = 1 << 20;
    /// The lasting part lies in front of the chunks.
    const LASTING_AT: u64 = 65_536;
    const CHUNKS: u64 = 20;

    struct Shared {
        folder: tempfile::TempDir,
        opened: AtomicU64,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
            let shared = Shared { folder, opened: AtomicU64::new(0) };
            File::create(shared.folder.path().join("file")).expect("a file").set_len(shared.bytes()).expect("longer");
            Arc::new(shared)
        }

        fn bytes(&self) -> u64 {
            (CHUNKS + 1) * CHUNK_BYTES
        }

        fn file(&self) -> File {
            let path = self.folder.path().join("file");
            File::options().read(true).write(true).open(path).expect("it is there")
        }

        fn is_mapped(&self, at: u64) -> bool {
            MappedPart::is_mapped(self.file().as_fd(), at, 4096).expect("it can be asked")
        }

        fn memory(self: &Arc<Shared>) -> Option<MappedChunks<Arc<Shared>>> {
            MappedChunks::of(self.clone(), self.bytes(), LASTING_AT..LASTING_AT + 16_384, CHUNK_BYTES, CHUNK_BYTES)
        }
    }

    impl OpenShared for Arc<Shared> {
        fn open(&self, map: &mut dyn FnMut(BorrowedFd<'_>)) {
            self.opened.fetch_add(1, Ordering::Relaxed);
            map(self.file().as_fd());
        }
    }

    /// Where a chunk lies.
    fn chunk(number: u64) -> u64 {
        (number + 1) * CHUNK_BYTES
    }

    #[test]
    fn chunks_are_mapped_once_when_they_are_touched() {
        let shared = Shared::new();
        let memory = shared.memory().expect("mapped");
        let opened = || shared.opened.load(Ordering::Relaxed);
        assert_eq!((shared.is_mapped(LASTING_AT), opened()), (true, 1));
        memory.store_u64(LASTING_AT + 64, 5);
        for _ in 0..10 {
            memory.stream(chunk(3) + 4096, &[3; 4096]);
        }
        assert_eq!((memory.fence(), memory.load_u64(LASTING_AT + 64)), (Ok(()), Ok(5)));
        assert_eq!((opened(), shared.is_mapped(chunk(3))), (2, false));
        for number in 0..CHUNKS {
            memory.stream(chunk(number), &number.to_le_bytes());
        }
        assert_eq!(memory.fence(), Ok(()));
        assert_eq!(opened(), 1 + CHUNKS);
        for number in 0..CHUNKS {
            assert_eq!(memory.load_u64(chunk(number)), Ok(number));
        }
        let other = shared.memory().expect("mapped beside others");
        assert_eq!(other.exchange_u64(LASTING_AT + 64, 5, 6), Ok(5));
        assert_eq!((memory.exchange_u64(LASTING_AT + 64, 5, 7), memory.load_u64(LASTING_AT + 64)), (Ok(6), Ok(6)));
        drop(memory);
        assert!(shared.is_mapped(LASTING_AT));
        drop(other);
        assert!(!shared.is_mapped(LASTING_AT));
    }

    #[test]
    fn a_chunk_that_is_only_read_cannot_be_stored_to_until_it_is() {
        let shared = Shared::new();
        let [memory, other] = [(); 2].map(|()| shared.memory().expect("mapped"));
        other.stream(chunk(5), &[7; 64]);
        let mut bytes = [0; 64];
        assert_eq!((memory.read(chunk(5), &mut bytes), bytes), (Ok(()), [7; 64]));
        assert!(memory.exchange_u64(chunk(5), 0, 1).is_err());
        let opened = shared.opened.load(Ordering::Relaxed);
        memory.stream(chunk(5), &[8; 64]);
        assert_eq!((memory.fence(), memory.read(chunk(5), &mut bytes), bytes), (Ok(()), Ok(()), [8; 64]));
        assert_eq!(shared.opened.load(Ordering::Relaxed), opened + 1, "mapped once more, to be stored to");
    }

    #[test]
    fn what_cannot_be_mapped_is_not_read_and_seals_the_memory() {
        let shared = Shared::new();
        for at in [0, LASTING_AT - 8, chunk(CHUNKS), chunk(0) - 4, u64::MAX - 64] {
            let memory = shared.memory().expect("mapped");
            assert_eq!(memory.read(at, &mut [0; 16]), Err(Poison { at, len: 16 }), "{at:#x}");
            assert_eq!(memory.fence(), Ok(()));
            memory.stream(at, &[1; 16]);
            assert_eq!(memory.fence(), Err(Sealed::StoreLost { at }));
            memory.stream(chunk(1), &[1; 16]);
            assert_eq!(memory.fence(), Err(Sealed::StoreLost { at }), "it stays sealed");
        }
        let _other = MappedPart::of(shared.file().as_fd(), LASTING_AT + 4096, 4096).expect("mapped");
        assert!(shared.memory().is_none(), "others have some of it");
    }

    #[test]
    fn a_file_that_was_cut_short_seals_the_memory() {
        let shared = Shared::new();
        let memory = shared.memory().expect("mapped");
        memory.stream(chunk(1), &[1; 64]);
        assert_eq!(memory.fence(), Ok(()));
        shared.file().set_len(chunk(1)).expect("cut short");
        memory.stream(chunk(1), &[1; 64]);
        assert!(memory.fence().is_err());
    }
}
