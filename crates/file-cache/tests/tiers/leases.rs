//! A process that has a lease and stores whatever it likes to all that it may store to: it spoils
//! its own file only.

use crate::InMemory;
use std::sync::Arc;
use tidegate_file_cache::{
    BackingFile, FilePool, LeasedFile, Persistence, PoolFile, PoolSpec, Wrote, check, dram_bytes, format,
};
use tidegate_layout::file_cache::{Class, LEASE_CLASS, LeaseElement, LeaseGrant, block_in};
use tidegate_media::Region;
use tidegate_sim::{Rng, SharedMemory};
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

fn contents(pool: &FilePool<SharedMemory>, file: PoolFile) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
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
            assert_eq!(leased.write(rng.below(20_000), &[byte; 3000], 0), Ok(Wrote::Done));
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
        assert_eq!(leased.write(0, &[byte; 100], 0), Ok(Wrote::Done));
        leased.sync().expect("nothing refuses");
        drop(leased);
        assert_eq!(contents(&pool, own), [byte; 100]);
        pool.release(lease).expect("nothing refuses");
        rounds += 1;
    }
    assert_eq!((rounds, pool.counters().bytes_adopted, pool.leases()), (199, 19_900, Vec::new()));
}
