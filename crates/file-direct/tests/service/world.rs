//! A pool with one file, as a service has it; the system below a program that has the file open;
//! and somebody else, who comes in between at any step.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_file_cache::{
    BackingFile, BackingStatus, Fallocate, FileIdentity, FilePool, Persistence, PoolFile, PoolSpec, Refused, Sought,
    Stamp, dram_bytes, format,
};
use tidegate_file_direct::{Os, ReadCache};
use tidegate_file_wire::{Answer, Claim, Read};
use tidegate_layout::file_cache::{Class, LeaseGrant, LeasePlan};
use tidegate_media::{Poison, Region, Sealed};
use tidegate_sim::SharedMemory;

pub(crate) const POOL_BYTES: u64 = 16 << 20;
/// Bytes after the place of a claim that may be written by the lease.
const ROOM_BYTES: u64 = 60_000;
/// What somebody else writes.
pub(crate) const OTHERS: [u8; 5] = [0xee; 5];

/// What happens in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another process appends to the file.
    Append,
    /// Another process writes over its beginning.
    Overwrite,
    /// The server is killed, and another one goes on.
    Restart,
    /// A revocation begins; it goes on when the service is asked for anything.
    Revocation,
    /// The memory cannot be read any more.
    Poison,
}

pub(crate) struct World {
    region: Arc<SharedMemory>,
    dram: Arc<SharedMemory>,
    below: Arc<dyn BackingFile>,
    served: Mutex<Served>,
    pub(crate) event: Event,
    /// Steps until it happens.
    left: AtomicU64,
    has_happened: AtomicBool,
    is_mapped: AtomicBool,
    /// Whether a revocation has begun and not ended.
    is_begun: AtomicBool,
    pub(crate) log: Class,
    /// Claims, extensions and probes.
    pub(crate) asked: [AtomicU64; 3],
}

pub(crate) struct Served {
    pub(crate) pool: FilePool<SharedMemory>,
    pub(crate) file: PoolFile,
}

impl World {
    /// In which `event` happens at step `step`; the logs of leases have blocks of class `log`.
    pub(crate) fn new(event: Event, step: u64, log: Class) -> Arc<World> {
        let region = Arc::new(SharedMemory::new(POOL_BYTES));
        let spec = PoolSpec { lanes: 1, files: 8, ring_slots: 64, ..PoolSpec::usual([7; 16]) };
        format(&*region, &spec).expect("nothing refuses");
        let dram = Arc::new(SharedMemory::new(dram_bytes(&*region, 1 << 20).expect("nothing refuses")));
        let below: Arc<dyn BackingFile> = Arc::new(Below::default());
        let served = Mutex::new(Served::open(&region, &dram, &below));
        let (left, asked) = (AtomicU64::new(step), [const { AtomicU64::new(0) }; 3]);
        let [has_happened, is_mapped, is_begun] = [const { AtomicBool::new(false) }; 3];
        Arc::new(World { region, dram, below, served, event, left, has_happened, is_mapped, is_begun, log, asked })
    }

    pub(crate) fn served(&self) -> MutexGuard<'_, Served> {
        let served = self.served.lock().expect("no holder panics");
        if self.is_begun.swap(false, Ordering::SeqCst) {
            served.pool.revoke(served.file).expect("nothing refuses");
        }
        served
    }

    pub(crate) fn region(&self) -> &Arc<SharedMemory> {
        &self.region
    }

    /// All of the file; a lease goes on.
    pub(crate) fn contents(&self) -> Vec<u8> {
        let (served, mut bytes) = (self.served(), vec![0; 1 << 18]);
        let length = served.pool.read_leased(served.file, 0, &mut bytes).expect("nothing refuses").0;
        bytes.truncate(length);
        bytes
    }

    pub(crate) fn has_happened(&self) -> bool {
        self.has_happened.load(Ordering::SeqCst)
    }

    pub(crate) fn count(&self, which: usize) -> u64 {
        self.asked[which].load(Ordering::SeqCst)
    }

    /// A step of the program, before which something may happen.
    fn step(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return;
        }
        self.has_happened.store(true, Ordering::SeqCst);
        match self.event {
            Event::Append => {
                let served = self.served();
                served.pool.append(served.file, &OTHERS, Persistence::Asynchronous).expect("nothing refuses");
            }
            Event::Overwrite => {
                let served = self.served();
                served.pool.write(served.file, 0, &OTHERS, Persistence::Asynchronous).expect("nothing refuses");
            }
            Event::Restart => *self.served() = Served::open(&self.region, &self.dram, &self.below),
            Event::Revocation => {
                let served = self.served();
                let lease = served.pool.lease_of(served.file);
                if let Some(log) = lease.and_then(|lease| served.pool.log_of(lease)) {
                    self.region.store_u64(LeasePlan::of(log.start, self.log).lease_at(), 0);
                    self.is_begun.store(true, Ordering::SeqCst);
                }
            }
            Event::Poison => {}
        }
    }

    fn readable(&self, at: u64, len: u64) -> Result<(), Poison> {
        let is_poisoned = self.event == Event::Poison && self.has_happened();
        if is_poisoned { Err(Poison { at, len }) } else { Ok(()) }
    }
}

impl Served {
    fn open(region: &Arc<SharedMemory>, dram: &Arc<SharedMemory>, below: &Arc<dyn BackingFile>) -> Served {
        let pool = FilePool::open(region, |_| Ok(dram.clone() as Arc<dyn Region>)).expect("it opens");
        let file = pool.open_file(below, b"a file").expect("it opens");
        Served { pool, file }
    }
}

/// Pages that the program may keep in DRAM, and the words that those take.
pub(crate) const KEPT_PAGES: u64 = 8;
const DRAM_WORDS: usize = 4608;

thread_local! {
    /// One program after the other has it.
    static DRAM: &'static [AtomicU64] = Vec::leak((0..DRAM_WORDS).map(|_| AtomicU64::new(0)).collect());
}

/// The DRAM that the program has now.
pub(crate) fn read_cache() -> Option<ReadCache<'static>> {
    DRAM.with(|words| ReadCache::over(words))
}

/// The system below the program.
pub(crate) struct Program {
    world: Arc<World>,
    /// Requests for reading.
    pub(crate) reads: u64,
}

impl Program {
    /// One that has read nothing yet.
    pub(crate) fn new(world: Arc<World>) -> Program {
        DRAM.with(|words| words.iter().for_each(|word| word.store(0, Ordering::SeqCst)));
        Program { world, reads: 0 }
    }
}

impl Os for Program {
    type Memory = Mapped;

    fn claim(&mut self, claim: &mut Claim) -> bool {
        self.world.step();
        self.world.asked[0].fetch_add(1, Ordering::SeqCst);
        let (served, room) = (self.world.served(), claim.at.get()..claim.at.get() + ROOM_BYTES);
        let granted = served.pool.lend(served.file, room, self.world.log).expect("nothing refuses");
        drop(served);
        let Some((_, grant)) = granted else {
            claim.answer = Answer::Later.word().into();
            return true;
        };
        claim.answer = Answer::Granted.word().into();
        (claim.lease, claim.size) = (grant.lease.into(), grant.size.into());
        (claim.log_at, claim.log_elements) = (grant.log.at.into(), u64::from(grant.log.elements).into());
        claim.blocks_at = grant.blocks_at.into();
        [claim.room_from, claim.room_until] = grant.room.map(Into::into);
        self.world.step();
        true
    }

    fn extend(&mut self, lease: u64) -> bool {
        self.world.step();
        self.world.asked[1].fetch_add(1, Ordering::SeqCst);
        let served = self.world.served();
        let found = served.pool.lease_numbered(served.file, lease);
        let extended = found.is_some_and(|lease| served.pool.extend(lease).expect("nothing refuses"));
        drop(served);
        self.world.step();
        extended
    }

    fn leave(&mut self, _lease: u64) {
        assert!(!self.world.is_mapped.load(Ordering::SeqCst), "left with the memory mapped");
        self.world.step();
        let served = self.world.served();
        // Nobody has its memory mapped.
        served.pool.leases().into_iter().for_each(|lease| served.pool.release(lease).expect("nothing refuses"));
    }

    fn read(&mut self, read: &mut Read) -> bool {
        self.reads += 1;
        self.world.step();
        let (served, len) = (self.world.served(), usize::try_from(read.len.get()).expect("small"));
        let is_leased = served.pool.lease_numbered(served.file, read.lease.get()).is_some();
        if !is_leased {
            read.answer = Answer::Never.word().into();
            return true;
        }
        let bytes = served.pool.read_leased(served.file, read.at.get(), &mut read.data[..len]).map(|(bytes, _)| bytes);
        read.len = u32::try_from(bytes.expect("nothing refuses")).expect("small").into();
        read.answer = Answer::Granted.word().into();
        true
    }

    fn map(&mut self, _: &LeaseGrant) -> Option<Mapped> {
        self.world.step();
        self.world.is_mapped.store(true, Ordering::SeqCst);
        Some(Mapped(self.world.clone()))
    }

    fn probe(&mut self) {
        self.world.step();
        self.world.asked[2].fetch_add(1, Ordering::SeqCst);
        let served = self.world.served();
        served.pool.size(served.file).expect("nothing refuses");
    }

    fn context(&mut self) -> u64 {
        0
    }

    fn now(&mut self) -> u64 {
        9
    }
}

/// The pool as the program has it mapped.
pub(crate) struct Mapped(Arc<World>);

impl Drop for Mapped {
    fn drop(&mut self) {
        self.0.is_mapped.store(false, Ordering::SeqCst);
    }
}

impl Region for Mapped {
    fn len(&self) -> u64 {
        self.0.region.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.0.step();
        self.0.readable(at, out.len() as u64)?;
        self.0.region.read(at, out)
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.0.step();
        self.0.readable(at, 8)?;
        self.0.region.load_u64(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.0.step();
        self.0.region.write(at, bytes);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.0.step();
        self.0.region.stream(at, bytes);
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.0.step();
        self.0.region.store_u64(at, word);
    }

    fn flush(&self, at: u64, len: u64) {
        self.0.step();
        self.0.region.flush(at, len);
    }

    fn fence(&self) -> Result<(), Sealed> {
        self.0.step();
        self.0.region.fence()
    }
}

/// The file below, in memory.
#[derive(Default)]
struct Below {
    bytes: Mutex<Vec<u8>>,
    changes: AtomicU64,
}

impl Below {
    fn bytes<T>(&self, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        act(&mut self.bytes.lock().expect("no holder panics"))
    }
}

impl BackingFile for Below {
    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 1, inode: 1, generation: 0 }
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        let changes = self.changes.load(Ordering::SeqCst) + 1;
        Ok(BackingStatus {
            len: self.bytes(|bytes| bytes.len() as u64),
            stamp: Stamp::of(changes, changes),
            is_removed: false,
        })
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        Ok(self.bytes(|bytes| {
            let left = bytes.get(usize::try_from(at).expect("small")..).unwrap_or_default();
            let read = left.len().min(out.len());
            out[..read].copy_from_slice(&left[..read]);
            read
        }))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        let at = usize::try_from(at).expect("small");
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.bytes(|bytes| {
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        });
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.bytes(|bytes| bytes.resize(usize::try_from(len).expect("small"), 0));
        Ok(())
    }

    fn fallocate(&self, _: u64, _: u64, _: Fallocate) -> Result<(), Refused> {
        Ok(())
    }

    fn seek(&self, at: u64, _: Sought) -> Result<Option<u64>, Refused> {
        Ok(Some(at))
    }

    fn sync(&self) -> Result<(), Refused> {
        Ok(())
    }
}
