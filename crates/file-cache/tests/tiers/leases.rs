//! A process that has a lease and stores whatever it likes to all that it may store to: it spoils
//! its own file only.

use crate::InMemory;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_file_cache::{
    BackingFile, FilePool, LeasedFile, Persistence, PoolFile, PoolSpec, ProgramAccess, Wrote, check, dram_bytes, format,
};
use tidegate_layout::file_cache::{CHUNK_BYTES, Class, LEASE_CLASS, LeaseElement, LeaseGrant, block_in};
use tidegate_media::{ExchangeWords, Poison, Region, Result, Sealed};
use tidegate_policy::placement::{IoKind, NamedPlacement};
use tidegate_sim::{InterceptMemory, InterceptedMemory, Rng, SharedMemory};
use zerocopy::{FromZeros, IntoBytes};

struct Setting {
    region: Arc<SharedMemory>,
    dram: Arc<SharedMemory>,
    files: [Arc<dyn BackingFile>; 2],
}

impl Setting {
    fn new() -> Setting {
        let region = Arc::new(SharedMemory::new(12 << 20));
        let spec = PoolSpec { lanes: 1, files: 8, ring_slots: 64, ..PoolSpec::usual([7; 16]) };
        format(&*region, &spec).expect("nothing refuses");
        let dram = Arc::new(SharedMemory::new(dram_bytes(&*region, 1 << 20).expect("nothing refuses")));
        let file = |inode| Arc::new(InMemory::new(inode, &[])) as Arc<dyn BackingFile>;
        Setting { region, dram, files: [file(1), file(2)] }
    }

    /// A process that opens the pool, and both files.
    fn open(&self) -> (FilePool<SharedMemory>, [PoolFile; 2]) {
        let pool = FilePool::open(&self.region, |_| Ok(self.dram.clone() as Arc<dyn Region>)).expect("it opens");
        let files = self.files.each_ref().map(|file| pool.open_file(file, b"a file").expect("it opens"));
        (pool, files)
    }
}

fn contents<R: Region>(pool: &FilePool<R>, file: PoolFile) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let length = pool.read(file, 0, &mut bytes).expect("nothing refuses");
    bytes.truncate(length);
    bytes
}

/// All that a process with a lease has mapped: its log, and the chunks of blocks that were lent.
struct Mapped {
    grant: LeaseGrant,
    chunks: BTreeSet<u64>,
}

impl Mapped {
    /// Notes the chunks that elements name now, as the service filled them in.
    fn note(&mut self, region: &SharedMemory) {
        for number in 0..u64::from(self.grant.log.elements) {
            let mut element = LeaseElement::new_zeroed();
            region.read(self.grant.log.element_at(number), element.as_mut_bytes()).expect("it is sound");
            let block = block_in(self.grant.blocks_at, element.unit.get());
            self.chunks.insert((block - self.grant.blocks_at) / CHUNK_BYTES);
        }
    }

    /// Spoils every byte of every chunk.
    fn rave(&self, region: &SharedMemory) {
        for chunk in &self.chunks {
            let at = self.grant.blocks_at + chunk * CHUNK_BYTES;
            (at..at + CHUNK_BYTES).step_by(4096).for_each(|at| region.write(at, &[0xbd; 4096]));
        }
    }
}

/// Writes in a turn of its own.
pub(crate) fn write_leased<R: ExchangeWords>(leased: &mut LeasedFile<R>, at: u64, data: &[u8]) -> Result<Wrote> {
    leased.turn(&mut |_| {}, &mut |_| false)?.expect("nobody else writes").write(at, data, 1)
}

/// Appends in a turn of its own.
pub(crate) fn append_leased<R: ExchangeWords>(leased: &mut LeasedFile<R>, data: &[u8]) -> Result<Wrote> {
    let mut turn = leased.turn(&mut |_| {}, &mut |_| false)?.expect("nobody else writes");
    turn.write(turn.size(), data, 1)
}

/// Chunks stay a lease's own, whatever becomes of their blocks, until it is released: also after a
/// revocation, and with another process that has the pool open.
#[test]
fn a_process_that_stores_to_every_chunk_it_was_ever_lent_spoils_its_own_file_only() {
    for seed in 0..12 {
        let (mut rng, setting) = (Rng::new(seed), Setting::new());
        let (mut pool, [mut own, mut other]) = setting.open();
        let mut model = vec![0; 40 * 4096];
        let (lease, grant) = pool.lend(own, 0..1 << 20, Class::ALL[1]).expect("nothing refuses").expect("room");
        let mut leased = LeasedFile::new(setting.region.clone(), grant);
        let mut mapped = Mapped { grant, chunks: BTreeSet::new() };
        let mut is_left = false;
        for byte in 1..60 {
            if !is_left {
                mapped.note(&setting.region);
            }
            if !is_left && rng.one_in(30) {
                pool.revoke(own).expect("nothing refuses");
            }
            match write_leased(&mut leased, rng.below(40) * 4096, &vec![byte; 4096 * (1 + rng.index(6))]) {
                Ok(Wrote::OutOfBlocks) => drop(pool.extend(lease).expect("nothing refuses")),
                Ok(Wrote::Done) => {}
                _ => is_left = true,
            }
            if rng.one_in(4) {
                mapped.rave(&setting.region);
            }
            if rng.one_in(20) {
                // What the next process finds in the log is not to be believed.
                rave(&setting.region, &grant, &mut rng);
                (pool, [own, other]) = setting.open();
                is_left = true;
            }
            pool.write_back_step(0, u64::MAX).expect("nothing refuses");
            let at = rng.index(40) * 4096;
            let data = vec![byte; (4096 * (1 + rng.index(12))).min(model.len() - at)];
            model[at..at + data.len()].copy_from_slice(&data);
            pool.write(other, at as u64, &data, Persistence::Synchronous).expect("nothing refuses");
            let found = contents_of(&pool, other, model.len());
            assert!(found == model[..found.len()], "seed {seed}, {byte}");
        }
        mapped.rave(&setting.region);
        let found = contents_of(&pool, other, model.len());
        assert!(found == model[..found.len()], "seed {seed}");
        pool.leases().into_iter().try_for_each(|lease| pool.release(lease)).expect("nothing refuses");
        assert_eq!(check(&setting.region).expect("a pool").findings, [], "seed {seed}");
    }
}

/// A log that names the blocks of another lease is not believed, whoever opens the pool next.
#[test]
fn a_log_takes_no_block_of_another_lease() {
    let setting = Setting::new();
    let (pool, files) = setting.open();
    let lend = |file| pool.lend(file, 0..1 << 16, Class::ALL[1]).expect("nothing refuses").expect("room").1;
    let [thief, honest] = files.map(lend);
    let mut leased = LeasedFile::new(setting.region.clone(), honest);
    assert_eq!(write_leased(&mut leased, 0, &[7; 8192]), Ok(Wrote::Done));
    for number in 0..2 {
        let mut element = LeaseElement::new_zeroed();
        setting.region.read(honest.log.element_at(number), element.as_mut_bytes()).expect("it is sound");
        setting.region.write(thief.log.element_at(number), element.as_bytes());
    }
    setting.region.store_u64(thief.log.visible_at(), 2);
    let (next, [own, other]) = setting.open();
    assert_eq!((contents(&next, other), contents(&next, own)), (vec![7; 8192], Vec::new()));
}

fn contents_of(pool: &FilePool<SharedMemory>, file: PoolFile, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let length = pool.read(file, 0, &mut bytes).expect("nothing refuses");
    bytes.truncate(length);
    bytes
}

/// Stores a few random words to a lease's log and to its blocks.
fn rave(region: &SharedMemory, grant: &LeaseGrant, rng: &mut Rng) {
    for number in 0..u64::from(grant.log.elements) {
        let mut element = LeaseElement::new_zeroed();
        region.read(grant.log.element_at(number), element.as_mut_bytes()).expect("it is sound");
        let (block, bytes) = (block_in(grant.blocks_at, element.unit.get()), LEASE_CLASS.bytes());
        if rng.one_in(2) && block + bytes <= region.len() {
            region.write(block, &[0xbd; 4096]);
        }
        if rng.one_in(3) {
            let word = if rng.one_in(2) { rng.next_u64() } else { rng.below(600) };
            region.store_u64(grant.log.element_at(number) + 8 * rng.below(4), word);
        }
    }
    for word in [grant.log.visible_at(), grant.log.committed_at(), grant.log.closed_at()] {
        if rng.one_in(2) {
            region.store_u64(word, if rng.one_in(2) { rng.next_u64() } else { rng.below(40) });
        }
    }
}

#[test]
fn a_process_that_raves_spoils_its_own_file_only() {
    for seed in 0..60 {
        let (mut rng, setting) = (Rng::new(seed), Setting::new());
        let (pool, [own, other]) = setting.open();
        let mut model = Vec::new();
        for byte in 1..20 {
            model.extend([byte; 700]);
            pool.append(other, &[byte; 700], Persistence::Asynchronous).expect("nothing refuses");
            pool.sync(other).expect("nothing refuses");
        }
        let (lease, grant) = pool.lend(own, 0..1 << 16, Class::ALL[1]).expect("nothing refuses").expect("room");
        let mut leased = LeasedFile::new(setting.region.clone(), grant);
        for byte in 1..10 {
            assert_eq!(write_leased(&mut leased, rng.below(20_000), &[byte; 3000]), Ok(Wrote::Done));
        }
        rave(&setting.region, &grant, &mut rng);
        if rng.one_in(2) {
            pool.extend(lease).expect("nothing refuses");
            rave(&setting.region, &grant, &mut rng);
        }
        let (pool, [own, other]) = if rng.one_in(2) { setting.open() } else { (pool, [own, other]) };
        drop(contents(&pool, own));
        assert!(contents(&pool, other) == model, "seed {seed}");
        pool.write(own, 0, &[0xaa; 5000], Persistence::Synchronous).expect("nothing refuses");
        model.extend([0x55; 5000]);
        pool.append(other, &[0x55; 5000], Persistence::Synchronous).expect("nothing refuses");
        pool.leases().into_iter().try_for_each(|lease| pool.release(lease)).expect("nothing refuses");
        assert_eq!((pool.leases(), contents(&pool, other) == model), (Vec::new(), true), "seed {seed}");
        assert_eq!(contents(&pool, own)[..5000], [0xaa; 5000]);
        assert_eq!(check(&setting.region).expect("a pool").findings, [], "seed {seed}");
        let (next, [_, other]) = setting.open();
        assert!(contents(&next, other) == model, "seed {seed}");
    }
}

/// What was lent and not used is there for others after the release, and so is the log.
#[test]
fn a_released_lease_gives_all_of_its_room_back() {
    let setting = Setting::new();
    let (pool, [own, _]) = setting.open();
    let mut rounds = 0;
    for byte in 1..200 {
        let (lease, grant) = pool.lend(own, 0..4096, Class::ALL[3]).expect("nothing refuses").expect("room");
        let mut leased = LeasedFile::new(setting.region.clone(), grant);
        assert_eq!(write_leased(&mut leased, 0, &[byte; 100]), Ok(Wrote::Done));
        leased.sync().expect("nothing refuses");
        drop(leased);
        assert_eq!(contents(&pool, own), [byte; 100]);
        pool.release(lease).expect("nothing refuses");
        rounds += 1;
    }
    assert_eq!((rounds, pool.counters().bytes_adopted, pool.leases()), (199, 19_900, Vec::new()));
}

/// Does something before one of the accesses of a process.
struct Interrupted {
    left: AtomicU64,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Interrupted {
    fn step(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0
            && let Some(act) = self.act.lock().expect("nobody panics").take()
        {
            act();
        }
    }
}

impl InterceptMemory for Interrupted {
    fn read<R: Region + ?Sized>(&self, memory: &R, at: u64, out: &mut [u8]) -> std::result::Result<(), Poison> {
        self.step();
        memory.read(at, out)
    }

    fn stream<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        self.step();
        memory.stream(at, bytes);
    }

    fn store_u64<R: Region + ?Sized>(&self, memory: &R, at: u64, word: u64) {
        self.step();
        memory.store_u64(at, word);
    }

    fn fence<R: Region + ?Sized>(&self, memory: &R) -> std::result::Result<(), Sealed> {
        self.step();
        memory.fence()
    }
}

/// The process that has the pool open was killed, and the next one opens it; the program with the
/// lease goes on, and writes at any instant.
#[test]
fn a_write_while_the_pool_is_opened_anew_is_there_or_was_not_done() {
    let mut counts = [0; 2];
    for step in 0.. {
        let setting = Setting::new();
        let (pool, [file, _]) = setting.open();
        let (_, grant) = pool.lend(file, 0..1 << 16, Class::ALL[0]).expect("nothing refuses").expect("room");
        let mut leased = LeasedFile::new(setting.region.clone(), grant);
        assert_eq!(write_leased(&mut leased, 0, &[1; 10]), Ok(Wrote::Done));
        drop(pool);
        let wrote = Arc::new(Mutex::new(None));
        let (left, into) = (AtomicU64::new(step), wrote.clone());
        let act: Box<dyn FnOnce() + Send> = Box::new(move || {
            let ended = write_leased(&mut leased, 10, &[2; 10]).expect("it is sound");
            *into.lock().expect("nobody panics") = Some((leased, ended));
        });
        let by = Interrupted { left, act: Mutex::new(Some(act)) };
        let region = Arc::new(InterceptedMemory { memory: setting.region.clone(), by });
        let pool = FilePool::open(&region, |_| Ok(setting.dram.clone() as Arc<dyn Region>)).expect("it opens");
        let file = pool.open_file(&setting.files[0], b"a file").expect("it opens");
        let Some((mut leased, mut ended)) = wrote.lock().expect("nobody panics").take() else { break };
        if ended == Wrote::InDoubt {
            ended = leased.resolve().expect("it is sound");
        }
        let expected: &[u8] = match ended {
            Wrote::Done => &[[1; 10], [2; 10]].concat(),
            Wrote::Revoked => &[1; 10],
            ended => panic!("step {step}: {ended:?}"),
        };
        assert_eq!(contents(&pool, file), expected, "step {step}, {ended:?}");
        counts[usize::from(ended == Wrote::Done)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?} were not done, and done");
}

/// Bytes that left the pool for the file below are not looked for in their block any more, which
/// may be lent again.
#[test]
fn bytes_that_left_the_pool_are_told_before_their_block_is_lent_again() {
    let setting = Setting::new();
    let (pool, [file, _]) = setting.open();
    let (lease, grant) = pool.lend(file, 0..1 << 16, Class::ALL[0]).expect("nothing refuses").expect("room");
    let mut leased = LeasedFile::new(setting.region.clone(), grant);
    assert_eq!(write_leased(&mut leased, 0, &[7; 4096]), Ok(Wrote::Done));
    let reads = |leased: &mut LeasedFile<_>| {
        leased.look(&mut |_| {}).expect("it is sound");
        leased.read_written(0, &mut [0; 4096]).expect("it is sound")
    };
    let dropped = || setting.region.load_u64(grant.log.dropped_at()).expect("it is sound");
    assert!(reads(&mut leased));
    while pool.write_back_step(0, u64::MAX).expect("nothing refuses").bytes > 0 {}
    let before = dropped();
    assert!(pool.refill(lease).expect("nothing refuses").is_some() && reads(&mut leased), "a clean block stays");
    pool.place_by(NamedPlacement::Uhnvm);
    // Reads of a context that nothing is known of are random ones, which the pool does not keep.
    let read = ProgramAccess { at: 0, bytes: 8192, kind: IoKind::Read, context: 1 };
    pool.accessed(file, &read).expect("nothing refuses");
    assert_eq!(pool.clean_bytes(), 0);
    for byte in 0..4 {
        assert_eq!(write_leased(&mut leased, 8192, &[byte; 10]), Ok(Wrote::Done));
        pool.extend(lease).expect("nothing refuses");
    }
    assert!(dropped() > before && !reads(&mut leased));
}
