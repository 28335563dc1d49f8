//! The bound of DRAM: blocks of unsynced writes never have more bytes than was said.

use crate::InMemory;
use std::sync::Arc;
use tidegate_file_cache::{BackingFile, FilePool, Persistence, PoolSpec, dram_bytes, format};
use tidegate_media::Region;
use tidegate_sim::{Rng, SharedMemory};

const LANES: u32 = 3;

/// Bytes of DRAM: no multiple of a block in each lane.
const DRAM_BYTES: u64 = 5 * 4096 * LANES as u64 + 4000;

/// A pool with memory for [`DRAM_BYTES`] of blocks.
fn pool() -> FilePool<SharedMemory> {
    let region = Arc::new(SharedMemory::new(40 << 20));
    let spec = PoolSpec { lanes: LANES, files: 8, ring_slots: 256, ..PoolSpec::usual([7; 16]) };
    format(&*region, &spec).expect("nothing refuses");
    let bytes = dram_bytes(&*region, DRAM_BYTES).expect("nothing refuses");
    let memory = |_| Ok(Arc::new(SharedMemory::new(bytes)) as Arc<dyn Region>);
    FilePool::open(&region, memory).expect("nothing refuses")
}

/// Writes at random places, and says what the file has to hold.
fn write_at_random(pool: &FilePool<SharedMemory>, file: &Arc<dyn BackingFile>, seed: u64) -> Vec<u8> {
    let (mut rng, mut model) = (Rng::new(seed), vec![0; 200_000]);
    let id = pool.open_file(file, b"a file").expect("nothing refuses");
    let mut end = 0;
    for _ in 0..400 {
        let (at, len) = (rng.index(180_000), 1 + rng.index(20_000));
        let data = vec![u8::try_from(1 + rng.below(255)).expect("a byte"); len];
        pool.write(id, at as u64, &data, Persistence::Asynchronous).expect("nothing refuses");
        model[at..at + len].copy_from_slice(&data);
        end = end.max(at + len);
        if rng.one_in(16) {
            pool.sync(id).expect("nothing refuses");
        }
        let fill = pool.fill();
        assert!(fill.dram <= DRAM_BYTES && fill.dram_used <= fill.dram, "{fill:?}");
    }
    model.truncate(end);
    let mut read = vec![0xcc; end + 1];
    assert_eq!(pool.read(id, 0, &mut read).expect("nothing refuses"), end);
    assert!(read[..end] == model, "what was written is read");
    model
}

#[test]
fn blocks_in_dram_never_have_more_bytes_than_was_said_whoever_writes() {
    let pool = pool();
    let files: Vec<_> = (0..4).map(|inode| Arc::new(InMemory::new(inode, &[]))).collect();
    std::thread::scope(|threads| {
        let writers: Vec<_> = files
            .iter()
            .map(|file| {
                let below: Arc<dyn BackingFile> = file.clone();
                let pool = &pool;
                threads.spawn(move || write_at_random(pool, &below, file.inode))
            })
            .collect();
        let models: Vec<Vec<u8>> = writers.into_iter().map(|writer| writer.join().expect("no writer panics")).collect();
        for (file, _) in pool.files() {
            pool.drain(file).expect("nothing refuses");
        }
        assert!(files.iter().zip(&models).all(|(file, model)| file.bytes(|bytes| bytes == model)));
    });
    assert_eq!(pool.fill().dram_used, 0, "what is below takes no DRAM");
}

#[test]
fn the_memory_of_all_lanes_has_room_for_what_was_said_and_not_a_block_more() {
    let pool = pool();
    assert_eq!(pool.fill().dram, DRAM_BYTES / 4096 / u64::from(LANES) * u64::from(LANES) * 4096);
    let one = pool.open_file(&(Arc::new(InMemory::new(1, &[])) as _), b"one").expect("nothing refuses");
    pool.write(one, 0, &[1; 3], Persistence::Asynchronous).expect("nothing refuses");
    assert_eq!((pool.fill().dirty, pool.fill().dram_used), (3, 4096), "a block counts as a whole");
}
