//! The pool's memory as the process with a lease has it: the lease's log, mapped as long as this
//! lasts, and the chunks in which its blocks lie, mapped when they are first touched.
//!
//! The service lends nothing of the lease to others while the log is mapped
//! ([`MappedPart::is_mapped`]). So chunks may be mapped late, and unmapped to make place for others.

use std::os::fd::BorrowedFd;
use tidegate_layout::file_cache::{CHUNK_BYTES, Class, LeaseGrant, LeasePlan};
use tidegate_media::sync::{Mutex, MutexGuard};
use tidegate_media::{MappedPart, Poison, Region, Sealed};

/// So many chunks are mapped at a time. A log's blocks lie in two or three chunks, mostly; and this
/// has to find room on the stack of a signal handler.
const CHUNKS_MAX: usize = 16;

/// Opens the pool's file, and gives it to whoever maps a part of it; or does not.
pub trait OpenPool: Send + Sync {
    /// See [`OpenPool`]. It may be closed after that.
    fn open(&self, map: &mut dyn FnMut(BorrowedFd<'_>));
}

/// What a lease reaches of the pool's memory: its log and its blocks. What is not of them, or
/// cannot be mapped, is not read ([`Poison`]), and a store there is lost ([`Sealed`]).
pub struct PoolMemory<O> {
    pool: O,
    pool_bytes: u64,
    blocks_at: u64,
    chunks: Mutex<Chunks>,
    // Behind the chunks, as fields are dropped in their order: it keeps them from others.
    log: MappedPart,
    log_at: u64,
}

struct Chunks {
    places: [Option<Chunk>; CHUNKS_MAX],
    /// Which place is taken next.
    next: usize,
    lost: Option<Sealed>,
}

struct Chunk {
    number: u64,
    part: MappedPart,
    /// Whether stores to it may be behind no fence yet.
    is_stored_to: bool,
}

/// What is done with a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
}

impl<O: OpenPool> PoolMemory<O> {
    /// Maps the log of a lease that was granted in a pool of `pool_bytes`. `None`: it cannot be.
    pub fn of(pool: O, pool_bytes: u64, grant: &LeaseGrant) -> Option<PoolMemory<O>> {
        let is_log = |class: &&Class| LeasePlan::of(0, **class).elements == grant.log.elements;
        let len = Class::ALL.iter().find(is_log)?.bytes();
        let log = mapped(&pool, grant.log.at, len)?;
        let chunks = Chunks { places: [const { None }; CHUNKS_MAX], next: 0, lost: None };
        let (log_at, blocks_at) = (grant.log.at, grant.blocks_at);
        Some(PoolMemory { pool, pool_bytes, log, log_at, blocks_at, chunks: Mutex::new(chunks) })
    }

    /// The place in the log of `len` bytes at `at`, if they lie there.
    fn in_log(&self, at: u64, len: u64) -> Option<u64> {
        let place = at.checked_sub(self.log_at)?;
        place.checked_add(len).filter(|end| *end <= self.log.len()).map(|_| place)
    }

    /// Does `act` with the chunk that has `len` bytes at `at`, and their place in it. `None`: it
    /// cannot be had.
    fn in_chunk<T>(&self, at: u64, len: u64, access: Access, act: impl FnOnce(&MappedPart, u64) -> T) -> Option<T> {
        let from = at.checked_sub(self.blocks_at)?;
        let (number, place) = (from / CHUNK_BYTES, from % CHUNK_BYTES);
        let end = (at - place).checked_add(CHUNK_BYTES)?;
        if place.checked_add(len)? > CHUNK_BYTES || end > self.pool_bytes {
            return None;
        }
        let mut chunks = self.chunks();
        let chunk = match chunks.position(number) {
            Some(place) => &mut chunks.places[place],
            None => {
                let part = mapped(&self.pool, end - CHUNK_BYTES, CHUNK_BYTES)?;
                chunks.put(Chunk { number, part, is_stored_to: false })
            }
        };
        let chunk = chunk.as_mut()?;
        chunk.is_stored_to |= access == Access::Store;
        Some(act(&chunk.part, place))
    }

    /// Stores `len` bytes at `at` by `act`.
    fn store(&self, at: u64, len: u64, act: impl FnOnce(&MappedPart, u64)) {
        match self.in_log(at, len) {
            Some(place) => act(&self.log, place),
            None if self.in_chunk(at, len, Access::Store, act).is_none() => {
                self.chunks().lost.get_or_insert(Sealed::StoreLost { at });
            }
            None => {}
        }
    }

    /// Loads `len` bytes at `at` by `act`.
    fn load<T>(&self, at: u64, len: u64, act: impl FnOnce(&MappedPart, u64) -> Result<T, Poison>) -> Result<T, Poison> {
        let loaded = match self.in_log(at, len) {
            Some(place) => Some(act(&self.log, place)),
            None => self.in_chunk(at, len, Access::Load, act),
        };
        loaded.and_then(Result::ok).ok_or(Poison { at, len })
    }

    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock()
    }
}

impl Chunks {
    fn position(&self, number: u64) -> Option<usize> {
        self.places.iter().position(|chunk| chunk.as_ref().is_some_and(|chunk| chunk.number == number))
    }

    /// Puts a chunk in place of the one that came first.
    fn put(&mut self, chunk: Chunk) -> &mut Option<Chunk> {
        let place = self.next;
        self.next = (place + 1) % CHUNKS_MAX;
        self.fence(place);
        self.places[place] = Some(chunk);
        &mut self.places[place]
    }

    /// Makes durable what was stored to the chunk in this place.
    fn fence(&mut self, place: usize) {
        if let Some(chunk) = self.places[place].as_mut().filter(|chunk| chunk.is_stored_to) {
            chunk.is_stored_to = false;
            if let Err(lost) = chunk.part.fence() {
                self.lost.get_or_insert(lost);
            }
        }
    }
}

impl<O: OpenPool> Region for PoolMemory<O> {
    fn len(&self) -> u64 {
        self.pool_bytes
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
        let mut chunks = self.chunks();
        (0..CHUNKS_MAX).for_each(|place| chunks.fence(place));
        self.log.fence()?;
        chunks.lost.map_or(Ok(()), Err)
    }
}

/// `len` bytes of the pool at `at`.
fn mapped(pool: &impl OpenPool, at: u64, len: u64) -> Option<MappedPart> {
    let (mut part, len) = (None, usize::try_from(len).ok()?);
    pool.open(&mut |file| part = MappedPart::of(file, at, len).ok());
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The log lies in the first chunk, the blocks from the next one on.
    const LOG_AT: u64 = 65_536;
    const CHUNKS: u64 = 20;

    struct Pool {
        folder: tempfile::TempDir,
        opened: AtomicU64,
    }

    impl Pool {
        fn new() -> Arc<Pool> {
            let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
            let pool = Pool { folder, opened: AtomicU64::new(0) };
            File::create(pool.folder.path().join("pool")).expect("a file").set_len(pool.bytes()).expect("longer");
            Arc::new(pool)
        }

        fn bytes(&self) -> u64 {
            (CHUNKS + 1) * CHUNK_BYTES
        }

        fn file(&self) -> File {
            let path = self.folder.path().join("pool");
            File::options().read(true).write(true).open(path).expect("it is there")
        }

        fn is_mapped(&self, at: u64) -> bool {
            MappedPart::is_mapped(self.file().as_fd(), at, 4096).expect("it can be asked")
        }

        fn memory(self: &Arc<Pool>) -> Option<PoolMemory<Arc<Pool>>> {
            let log = LeasePlan { at: LOG_AT, elements: 508 };
            let grant = LeaseGrant { lease: 7, log, blocks_at: CHUNK_BYTES, size: 0, room: [0, 0] };
            PoolMemory::of(self.clone(), self.bytes(), &grant)
        }
    }

    impl OpenPool for Arc<Pool> {
        fn open(&self, map: &mut dyn FnMut(BorrowedFd<'_>)) {
            self.opened.fetch_add(1, Ordering::Relaxed);
            map(self.file().as_fd());
        }
    }

    /// Where the first block of a chunk lies.
    fn block(number: u64) -> u64 {
        (number + 1) * CHUNK_BYTES
    }

    #[test]
    fn chunks_are_mapped_once_when_they_are_touched_and_as_many_as_there_is_place_for() {
        let pool = Pool::new();
        let memory = pool.memory().expect("mapped");
        assert_eq!((pool.is_mapped(LOG_AT), pool.is_mapped(block(3))), (true, false));
        memory.store_u64(LOG_AT + 64, 5);
        for _ in 0..10 {
            memory.stream(block(3) + 4096, &[3; 4096]);
        }
        assert_eq!((memory.fence(), memory.load_u64(LOG_AT + 64)), (Ok(()), Ok(5)));
        assert_eq!((pool.opened.load(Ordering::Relaxed), pool.is_mapped(block(3))), (2, true));
        for number in 0..CHUNKS {
            memory.stream(block(number), &number.to_le_bytes());
        }
        assert_eq!(memory.fence(), Ok(()));
        let count = (0..CHUNKS).filter(|number| pool.is_mapped(block(*number))).count();
        assert_eq!(count, CHUNKS_MAX);
        for number in 0..CHUNKS {
            assert_eq!(memory.load_u64(block(number)), Ok(number));
        }
        drop(memory);
        assert!((0..=CHUNKS).all(|chunk| !pool.is_mapped(chunk * CHUNK_BYTES)) && !pool.is_mapped(LOG_AT));
    }

    #[test]
    fn what_cannot_be_mapped_is_not_read_and_seals_the_memory() {
        let pool = Pool::new();
        let other = MappedPart::of(pool.file().as_fd(), block(2), 4096).expect("mapped");
        for at in [block(2), 0, LOG_AT - 8, block(CHUNKS), block(0) - 4, u64::MAX - 64] {
            let memory = pool.memory().expect("mapped");
            assert_eq!(memory.read(at, &mut [0; 16]), Err(Poison { at, len: 16 }), "{at:#x}");
            assert_eq!(memory.fence(), Ok(()));
            memory.stream(at, &[1; 16]);
            assert_eq!(memory.fence(), Err(Sealed::StoreLost { at }));
            memory.stream(block(1), &[1; 16]);
            assert_eq!(memory.fence(), Err(Sealed::StoreLost { at }), "it stays sealed");
        }
        drop(other);
        let _other = MappedPart::of(pool.file().as_fd(), LOG_AT + 4096, 4096).expect("mapped");
        assert!(pool.memory().is_none(), "another process has the log");
    }

    #[test]
    fn a_pool_that_was_cut_short_seals_the_memory() {
        let pool = Pool::new();
        let memory = pool.memory().expect("mapped");
        memory.stream(block(1), &[1; 64]);
        assert_eq!(memory.fence(), Ok(()));
        pool.file().set_len(block(1)).expect("cut short");
        memory.stream(block(1), &[1; 64]);
        assert!(memory.fence().is_err());
    }
}
