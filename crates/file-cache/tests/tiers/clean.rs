//! Clean entries: who is served from them, and who is not.

use crate::InMemory;
use std::sync::Arc;
use tidegate_file_cache::{BackingFile, FilePool, Persistence, PoolFile, PoolSpec, dram_bytes, format};
use tidegate_media::Region;
use tidegate_sim::SharedMemory;

pub(crate) const BYTES: usize = 20_000;

pub(crate) fn pool_of(bytes: u64, files: u32) -> Arc<SharedMemory> {
    let region = Arc::new(SharedMemory::new(bytes));
    let spec = PoolSpec { files, ring_slots: 256, ..PoolSpec::usual([7; 16]) };
    format(&*region, &spec).expect("laid out");
    region
}

/// The next process, after a power loss: DRAM is empty.
pub(crate) fn start(region: &Arc<SharedMemory>) -> FilePool<SharedMemory> {
    let bytes = dram_bytes(&**region, 1 << 20).expect("a pool");
    FilePool::open(region, |_| Ok(Arc::new(SharedMemory::new(bytes)) as Arc<dyn Region>)).expect("opened")
}

pub(crate) fn open(pool: &FilePool<SharedMemory>, file: &Arc<InMemory>) -> PoolFile {
    let below: Arc<dyn BackingFile> = file.clone();
    pool.open_file(&below, b"a file").expect("opened")
}

pub(crate) fn read(pool: &FilePool<SharedMemory>, file: PoolFile) -> Vec<u8> {
    let mut out = vec![0xcc; BYTES];
    let bytes = pool.read(file, 0, &mut out).expect("read");
    out.truncate(bytes);
    out
}

pub(crate) fn close(pool: &FilePool<SharedMemory>, file: PoolFile) {
    assert_eq!(pool.close_if_done(file, || Ok(())), Ok(true));
}

/// A file that was written, synced and written back.
pub(crate) fn written_back(pool: &FilePool<SharedMemory>, file: &Arc<InMemory>) -> PoolFile {
    let id = open(pool, file);
    pool.write(id, 0, &vec![7; BYTES], Persistence::Synchronous).expect("written");
    pool.write_back_step(0, u64::MAX).expect("written back");
    assert_eq!((pool.fill().out_of_sync, pool.clean_bytes()), (0, BYTES as u64));
    id
}

#[test]
fn what_was_written_back_is_read_from_the_pool_after_a_power_loss() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[])));
    written_back(&start(&region), &file);
    let pool = start(&region);
    assert!(pool.rests(file.identity()));
    assert_eq!((pool.detached().len(), pool.files().len(), pool.clean_bytes()), (0, 0, BYTES as u64));
    let id = open(&pool, &file);
    assert_eq!((read(&pool, id), file.bytes_read()), (vec![7; BYTES], 0));
    assert_eq!((pool.counters().reads_pool, pool.counters().reads_below), (1, 0));
    // Its record is there still: the next sync does not wait for the file below.
    pool.write(id, 0, &[8; 10], Persistence::Asynchronous).expect("written");
    pool.sync(id).expect("synced");
    assert_eq!(pool.counters().syncs_below, 0);
}

#[test]
fn a_closed_file_rests_and_is_read_from_the_pool_again() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[])));
    let pool = start(&region);
    close(&pool, written_back(&pool, &file));
    assert!(pool.rests(file.identity()) && Arc::strong_count(&file) == 1, "the file below is closed");
    let id = open(&pool, &file);
    assert_eq!((read(&pool, id), file.bytes_read()), (vec![7; BYTES], 0));
}

#[test]
fn a_file_that_somebody_else_changed_is_read_below() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &[])));
    let pool = start(&region);
    let id = written_back(&pool, &file);
    // While it is open.
    file.write(0, &[1; 5]).expect("written");
    pool.revalidate(id).expect("looked");
    assert_eq!((read(&pool, id)[..6].to_vec(), pool.clean_bytes()), (vec![1, 1, 1, 1, 1, 7], 0));
    // While it rests, and between two processes.
    for restarts in [false, true] {
        let region = pool_of(16 << 20, 8);
        let file = Arc::new(InMemory::new(2, &[]));
        let mut pool = start(&region);
        close(&pool, written_back(&pool, &file));
        file.write(0, &[2; 5]).expect("written");
        if restarts {
            pool = start(&region);
        }
        let id = open(&pool, &file);
        assert_eq!((read(&pool, id)[..6].to_vec(), pool.clean_bytes()), (vec![2, 2, 2, 2, 2, 7], 0));
    }
}

#[test]
fn reads_are_admitted_and_survive_a_power_loss_and_writes_are_newer() {
    let (region, file) = (pool_of(16 << 20, 8), Arc::new(InMemory::new(1, &vec![5; BYTES])));
    let pool = start(&region);
    let id = open(&pool, &file);
    pool.write(id, 100, &[6; 10], Persistence::Asynchronous).expect("written");
    assert_eq!(pool.admit(id, 0..10_000), Ok(10_000 - 10), "what is newer here is left alone");
    assert_eq!(pool.admit(id, 0..10_000), Ok(0), "all of it is here");
    pool.sync(id).expect("synced");
    pool.write_back_step(0, u64::MAX).expect("written back");
    assert_eq!(pool.counters().bytes_admitted, 9990);
    drop(pool);
    let (pool, before) = (start(&region), file.bytes_read());
    let id = open(&pool, &file);
    let mut expected = vec![5; BYTES];
    expected[100..110].fill(6);
    assert_eq!(read(&pool, id), expected);
    assert!(pool.counters().bytes_read_pool >= 10_000, "{:?}", pool.counters());
    assert!(file.bytes_read() > before, "the rest lies below");
}

/// Files of twice the pool's size, one after the other: none waits for room, and what was given up
/// is read below.
#[test]
fn clean_entries_make_room_at_once_and_records_too() {
    let region = pool_of(8 << 20, 4);
    let pool = start(&region);
    let files: Vec<_> = (0..12).map(|inode| Arc::new(InMemory::new(inode, &[]))).collect();
    for (byte, file) in (1..).zip(&files) {
        let id = open(&pool, file);
        pool.write(id, 0, &vec![byte; 1 << 20], Persistence::Synchronous).expect("written");
        pool.write_back_step(0, u64::MAX).expect("written back");
        close(&pool, id);
    }
    assert_eq!(pool.counters().below, 0, "every sync found room in the pool");
    for (byte, file) in (1..).zip(&files) {
        let id = open(&pool, file);
        assert_eq!(read(&pool, id), vec![byte; BYTES]);
        close(&pool, id);
    }
}
