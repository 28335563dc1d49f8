//! A pool with one file, as a service has it; the system below a program that has the file open;
//! and somebody else, who comes in between at any step.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_file_cache::{
    BackingFile, BackingStatus, Fallocate, FileIdentity, FilePool, Persistence, PoolFile, PoolSpec, Refused, Sharer,
    Sought, Stamp, dram_bytes, format,
};
use tidegate_file_direct::{Attempted, DirectFile, LeaseRequest, Os, ReadAids, ReadCache, Until, WriteTarget};
use tidegate_file_wire::{Answer, Claim, JOINS, LOCATES, Read, SOON};
use tidegate_layout::file_cache::{Class, LeaseGrant, LeasePlan};
use tidegate_media::{ExchangeWords, Poison, Region, Sealed};
use tidegate_sim::SharedMemory;

pub(crate) const POOL_BYTES: u64 = 16 << 20;
/// Bytes after the place of a claim that may be written by the lease.
const ROOM_BYTES: u64 = 60_000;
/// What somebody else writes.
const OTHERS: [u8; 5] = [0xee; 5];

/// What happens in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another process changes the file by a request.
    Request(Change),
    /// Another program does, by a share in the lease if there is one to be had: now and then from
    /// this step on.
    Share(Change),
    /// The server is killed, and another one goes on.
    Restart,
    /// A revocation begins; it goes on when the service is asked for anything.
    Revocation,
    /// The service takes back the leases that nobody has mapped: others use their memory.
    Release,
    /// The service reads the file from below from now on, and others use its blocks: now and then
    /// from this step on.
    Drop,
    /// The memory cannot be read any more.
    Poison,
}

/// What another one does to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Append,
    /// Of its beginning.
    Overwrite,
    /// Of its first two pages, each as a whole.
    Pages,
}

/// What somebody else writes to two pages: a block of the one may become one of the other.
const PAGES: [u8; 8192] = {
    let mut pages = [0xee; 8192];
    let mut at = 4096;
    while at < 8192 {
        pages[at] = 0xef;
        at += 1;
    }
    pages
};

impl Change {
    /// What somebody else writes.
    fn bytes(self) -> &'static [u8] {
        if self == Change::Pages { &PAGES } else { &OTHERS }
    }

    /// Changes these bytes.
    fn change(self, bytes: &mut Vec<u8>) {
        let (at, own) = (if self == Change::Append { bytes.len() } else { 0 }, self.bytes());
        bytes.resize(bytes.len().max(at + own.len()), 0);
        bytes[at..at + own.len()].copy_from_slice(own);
    }
}

impl Event {
    /// What the file holds after somebody else's change.
    pub(crate) fn change(self, bytes: &mut Vec<u8>) {
        match self {
            Event::Request(change) | Event::Share(change) => change.change(bytes),
            Event::Restart | Event::Revocation | Event::Release | Event::Drop | Event::Poison => {}
        }
    }
}

/// Steps between two times that a share is used, and changes then.
const SHARED_EVERY: u64 = 23;
const SHARED_CHANGES: u64 = 3;

pub(crate) struct World {
    region: Arc<SharedMemory>,
    dram: Arc<SharedMemory>,
    below: Arc<Below>,
    served: Mutex<Served>,
    pub(crate) event: Event,
    /// Steps until it happens.
    left: AtomicU64,
    has_happened: AtomicBool,
    /// The other program, while it does nothing.
    companion: Mutex<Option<DirectFile<Program>>>,
    /// Changes by others, and those of them that took no request.
    changes: [AtomicU64; 2],
    /// Memory of a lease that was taken back before its program had mapped it.
    others: Mutex<Option<Range<u64>>>,
    /// Programs that have the memory of a lease mapped.
    mapped: AtomicU64,
    /// Whether a revocation has begun and not ended.
    is_begun: AtomicBool,
    pub(crate) log: Class,
    /// Claims, extensions and probes.
    pub(crate) asked: [AtomicU64; 3],
    /// Pages that were dropped while programs may read them.
    pub(crate) dropped: AtomicU64,
    /// So often the file is just being lent to somebody else.
    pub(crate) soon: AtomicU64,
    /// Whether programs are told where pages lie.
    pub(crate) tells_places: AtomicBool,
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
        let below = Arc::new(Below::default());
        let served = Mutex::new(Served::open(&region, &dram, &below));
        let (left, asked) = (AtomicU64::new(step), [const { AtomicU64::new(0) }; 3]);
        let ([has_happened, is_begun], mapped) = ([const { AtomicBool::new(false) }; 2], AtomicU64::new(0));
        let (companion, changes) = (Mutex::new(None), [const { AtomicU64::new(0) }; 2]);
        Arc::new(World {
            region,
            dram,
            below,
            served,
            event,
            left,
            has_happened,
            companion,
            changes,
            others: Mutex::new(None),
            mapped,
            is_begun,
            log,
            asked,
            dropped: AtomicU64::new(0),
            soon: AtomicU64::new(0),
            tells_places: AtomicBool::new(true),
        })
    }

    pub(crate) fn served(&self) -> MutexGuard<'_, Served> {
        let served = self.served.lock().expect("no holder panics");
        if self.is_begun.swap(false, Ordering::SeqCst) {
            served.pool.revoke(served.file).expect("nothing refuses");
        }
        served
    }

    /// A program has left: a lease that nobody has mapped is released.
    fn leave(&self) {
        let served = self.served();
        if self.mapped.load(Ordering::SeqCst) == 0 {
            served.pool.leases().into_iter().for_each(|lease| served.pool.release(lease).expect("nothing refuses"));
        }
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

    /// The other program is there.
    pub(crate) fn admit(&self, program: DirectFile<Program>) {
        *self.companion.lock().expect("no holder panics") = Some(program);
    }

    /// The other program ends.
    pub(crate) fn dismiss(&self) {
        let program = self.companion.lock().expect("no holder panics").take();
        if let Some(mut program) = program {
            program.leave();
        }
    }

    /// How often others have changed the file.
    pub(crate) fn changes(&self) -> u64 {
        self.changes[0].load(Ordering::SeqCst)
    }

    /// How often they did so without a request.
    pub(crate) fn shares(&self) -> u64 {
        self.changes[1].load(Ordering::SeqCst)
    }

    /// A step of the program, before which something may happen.
    fn step(&self) {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        let again = matches!(self.event, Event::Share(_) | Event::Drop)
            && self.has_happened()
            && (u64::MAX - left).is_multiple_of(SHARED_EVERY);
        if left != 0 && !again {
            return;
        }
        self.has_happened.store(true, Ordering::SeqCst);
        match self.event {
            Event::Request(change) => {
                self.request(change);
                self.changes[0].fetch_add(1, Ordering::SeqCst);
            }
            Event::Share(change) => self.share(change),
            Event::Restart => *self.served() = Served::open(&self.region, &self.dram, &self.below),
            Event::Revocation => {
                let served = self.served();
                let lease = served.pool.lease_of(served.file);
                if let Some(log) = lease.and_then(|lease| served.pool.log_of(lease)) {
                    self.region.store_u64(LeasePlan::of(log.start, self.log).lease_at(), 0);
                    self.is_begun.store(true, Ordering::SeqCst);
                }
            }
            Event::Release => self.release(),
            Event::Drop => self.drop_blocks(),
            Event::Poison => {}
        }
    }

    fn release(&self) {
        let served = self.served();
        if self.mapped.load(Ordering::SeqCst) == 0 {
            for lease in served.pool.leases() {
                *self.others.lock().expect("no holder panics") = served.pool.log_of(lease);
                served.pool.release(lease).expect("nothing refuses");
            }
        }
    }

    /// All of the file is below, and its blocks are somebody else's.
    fn drop_blocks(&self) {
        let Served { pool, file } = &*self.served();
        while pool.write_back_step(0, u64::MAX).expect("nothing refuses").bytes > 0 {}
        let located = || pool.locate(*file, &(0..1 << 20)).expect("nothing refuses");
        let before = located();
        // For a moment it is as if others had changed it: the service believes none of its copies.
        self.below.changes.fetch_add(1, Ordering::SeqCst);
        pool.revalidate(*file).expect("nothing refuses");
        self.below.changes.fetch_sub(1, Ordering::SeqCst);
        if located().is_empty() {
            let dropped = before.iter().flat_map(|run| (run.pool_at..run.pool_at + run.bytes).step_by(4096));
            dropped.for_each(|at| {
                self.region.write(at, &[0xdd; 4096]);
                self.dropped.fetch_add(1, Ordering::SeqCst);
            });
        }
    }

    /// A program stores to the pool.
    fn storing(&self, at: u64) {
        self.step();
        let others = self.others.lock().expect("no holder panics");
        assert!(!others.as_ref().is_some_and(|others| others.contains(&at)), "a store to memory of others");
    }

    fn request(&self, change: Change) {
        let Served { pool, file } = &*self.served();
        let changed = match change {
            Change::Append => pool.append(*file, change.bytes(), Persistence::Asynchronous).map(drop),
            Change::Overwrite | Change::Pages => pool.write(*file, 0, change.bytes(), Persistence::Asynchronous),
        };
        changed.expect("nothing refuses");
    }

    /// The other program changes the file some times, with places of the log lent anew in between,
    /// syncs it, and reads it.
    fn share(&self, change: Change) {
        let program = self.companion.lock().expect("no holder panics").take();
        let Some(mut program) = program else { return };
        let mut message = crate::no_read();
        let place = if change == Change::Append { WriteTarget::End } else { WriteTarget::At(0) };
        for _ in 0..SHARED_CHANGES {
            match program.write(place, change.bytes(), Until::PowerLoss, &mut message) {
                Attempted::ByDescriptor => self.request(change),
                attempted => {
                    assert!(matches!(attempted, Attempted::Done(_)), "{attempted:?}");
                    self.changes[1].fetch_add(1, Ordering::SeqCst);
                }
            }
            self.changes[0].fetch_add(1, Ordering::SeqCst);
            let Served { pool, file } = &*self.served();
            let lease = pool.lease_of(*file);
            lease.map(|lease| pool.refill(lease).expect("nothing refuses"));
        }
        if program.sync() == Attempted::ByDescriptor {
            let served = self.served();
            served.pool.sync(served.file).expect("nothing refuses");
        }
        for (at, len) in [(0_u64, 40), (4000, 200), (8192, 4096)] {
            let mut bytes = vec![0; len];
            let read = program.read(at, &mut bytes, ReadAids { message: &mut message, cache: read_cache });
            let (contents, from) = (self.contents(), usize::try_from(at).expect("small"));
            let there = contents.get(from..).unwrap_or_default();
            if let Attempted::Done(read) = read {
                assert_eq!(bytes[..usize::try_from(read).expect("small")], there[..there.len().min(len)], "at {at}");
            }
        }
        self.admit(program);
    }

    fn readable(&self, at: u64, len: u64) -> Result<(), Poison> {
        let is_poisoned = self.event == Event::Poison && self.has_happened();
        if is_poisoned { Err(Poison { at, len }) } else { Ok(()) }
    }
}

impl Served {
    fn open(region: &Arc<SharedMemory>, dram: &Arc<SharedMemory>, below: &Arc<Below>) -> Served {
        let pool = FilePool::open(region, |_| Ok(dram.clone() as Arc<dyn Region>)).expect("it opens");
        let below: Arc<dyn BackingFile> = below.clone();
        let file = pool.open_file(&below, b"a file").expect("it opens");
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
    is_mapped: Arc<AtomicBool>,
    /// Requests for reading, and those of them for the places of pages.
    pub(crate) reads: u64,
    pub(crate) locates: u64,
}

impl Program {
    /// One that has read nothing yet.
    pub(crate) fn new(world: Arc<World>) -> Program {
        DRAM.with(|words| words.iter().for_each(|word| word.store(0, Ordering::SeqCst)));
        Program { world, is_mapped: Arc::default(), reads: 0, locates: 0 }
    }
}

impl Os for Program {
    type Memory = Mapped;

    fn claim(&mut self, claim: &mut Claim) -> bool {
        self.world.step();
        self.world.asked[0].fetch_add(1, Ordering::SeqCst);
        if self.world.soon.load(Ordering::SeqCst) > 0 {
            (claim.answer, claim.how) = (Answer::Later.word().into(), SOON.into());
            return true;
        }
        let (served, at) = (self.world.served(), claim.at.get());
        let grant = if claim.how.get() == JOINS {
            let number = claim.lease.get();
            let by = match served.pool.lease_numbered(served.file, number) {
                Some(_) => Sharer::Holder,
                None => Sharer::Another,
            };
            let joined = || served.pool.join(served.file, &(at..at + claim.len.get()), by);
            match joined() {
                Ok(None) if by == Sharer::Holder => {
                    served.pool.widen(served.file, at..at + ROOM_BYTES).expect("nothing refuses");
                    joined()
                }
                joined => joined,
            }
        } else {
            let granted = served.pool.lend(served.file, at..at + ROOM_BYTES, self.world.log);
            granted.map(|granted| granted.map(|(_, grant)| grant))
        };
        drop(served);
        *self.world.others.lock().expect("no holder panics") = None;
        let Some(grant) = grant.expect("nothing refuses") else {
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

    fn ask(&mut self, request: LeaseRequest, lease: u64) -> bool {
        self.world.step();
        match request {
            LeaseRequest::Extend => {
                self.world.asked[1].fetch_add(1, Ordering::SeqCst);
                let served = self.world.served();
                let found = served.pool.lease_numbered(served.file, lease);
                let extended = found.is_some_and(|lease| served.pool.extend(lease).expect("nothing refuses"));
                drop(served);
                self.world.step();
                extended
            }
            LeaseRequest::Leave => {
                assert!(!self.is_mapped.load(Ordering::SeqCst), "left with the memory mapped");
                self.world.leave();
                true
            }
            LeaseRequest::Probe => {
                self.world.asked[2].fetch_add(1, Ordering::SeqCst);
                let served = self.world.served();
                served.pool.size(served.file).expect("nothing refuses");
                true
            }
        }
    }

    fn read(&mut self, read: &mut Read) -> bool {
        self.reads += 1;
        self.world.step();
        let (served, asked) = (self.world.served(), read.asked().expect("small"));
        let is_leased = served.pool.lease_numbered(served.file, read.lease.get()).is_some();
        if !is_leased {
            read.answer = Answer::Never.word().into();
            return true;
        }
        read.answer = Answer::Granted.word().into();
        if read.how.get() == LOCATES {
            self.locates += 1;
            let tells = self.world.tells_places.load(Ordering::SeqCst);
            let runs = served.pool.locate(served.file, &asked).expect("nothing refuses");
            read.tell(runs.iter().filter(|_| tells).map(|run| (run.at, run.pool_at, run.bytes)));
        } else {
            let out = read.room(asked.end - asked.start);
            let bytes = served.pool.read_leased(served.file, asked.start, out).expect("nothing refuses").0;
            read.len = u32::try_from(bytes).expect("small").into();
        }
        drop(served);
        self.world.step();
        true
    }

    fn map(&mut self, _: &LeaseGrant) -> Option<Mapped> {
        self.world.step();
        self.is_mapped.store(true, Ordering::SeqCst);
        self.world.mapped.fetch_add(1, Ordering::SeqCst);
        Some(Mapped(self.world.clone(), self.is_mapped.clone()))
    }

    fn others_have_lease(&mut self) -> bool {
        let served = self.world.served();
        served.pool.lease_of(served.file).is_some()
    }

    fn pause(&mut self, _: u32) -> bool {
        // Of a turn: the other program is within its write, as only this one runs.
        self.world.soon.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |soon| soon.checked_sub(1)).is_ok()
    }

    fn context(&mut self) -> u64 {
        0
    }

    fn now(&mut self) -> u64 {
        9
    }
}

/// The pool as the program has it mapped.
pub(crate) struct Mapped(Arc<World>, Arc<AtomicBool>);

impl Drop for Mapped {
    fn drop(&mut self) {
        self.1.store(false, Ordering::SeqCst);
        self.0.mapped.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ExchangeWords for Mapped {
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        self.0.storing(at);
        self.0.readable(at, 8)?;
        self.0.region.exchange_u64(at, old, new)
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
        self.0.storing(at);
        self.0.region.write(at, bytes);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.0.storing(at);
        self.0.region.stream(at, bytes);
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.0.storing(at);
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
