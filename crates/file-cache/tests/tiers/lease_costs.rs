//! What adoption, extension and revocation cost: lines and fences exactly, and, on request, time in
//! a lane with a million entries.

use crate::InMemory;
use crate::leases::{append_leased, write_leased};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_file_cache::{
    BackingFile, FilePool, LeasedFile, Persistence, PoolFile, PoolLease, PoolSpec, Wrote, dram_bytes, format,
};
use tidegate_layout::file_cache::Class;
use tidegate_media::{ExchangeWords, Region};
use tidegate_sim::SharedMemory;

/// A log of 508 elements, half of which have a block to begin with.
const LOG: Class = Class::ALL[3];
const ELEMENTS: u64 = 508;
const ROOM: u64 = 64 << 20;

fn open<R: Region>(region: &Arc<R>, bytes_per_entry: u32) -> (FilePool<R>, [PoolFile; 2]) {
    format(&**region, &PoolSpec { bytes_per_entry, ..PoolSpec::usual([7; 16]) }).expect("nothing refuses");
    let dram = Arc::new(SharedMemory::new(dram_bytes(&**region, 1 << 20).expect("nothing refuses")));
    let pool = FilePool::open(region, |_| Ok(dram.clone() as Arc<dyn Region>)).expect("it opens");
    let files = [1, 2].map(|inode| {
        let below: Arc<dyn BackingFile> = Arc::new(InMemory::new(inode, &[]));
        pool.open_file(&below, b"a file").expect("it opens")
    });
    (pool, files)
}

fn lend<R: ExchangeWords>(region: &Arc<R>, pool: &FilePool<R>, file: PoolFile) -> (PoolLease, LeasedFile<Arc<R>>) {
    let (lease, grant) = pool.lend(file, 0..ROOM, LOG).expect("nothing refuses").expect("room");
    (lease, LeasedFile::new(region.clone(), grant))
}

/// Writes so many blocks, of which the place `first` is the first one.
fn write_blocks<R: ExchangeWords>(leased: &mut LeasedFile<Arc<R>>, first: u64, blocks: u64) {
    for place in first..first + blocks {
        assert_eq!(write_leased(leased, place % 4096 * 4096, &[5; 4096]), Ok(Wrote::Done));
    }
}

#[test]
fn adoption_takes_two_fences_and_about_a_line_for_each_element() {
    let region = Arc::new(tidegate_sim::Region::new(24 << 20));
    let (pool, [file, _]) = open(&region, 4096);
    let (lease, mut leased) = lend(&region, &pool, file);
    let costs = |act: &dyn Fn()| {
        let before = region.counters();
        act();
        let after = region.counters();
        let streamed = (after.bytes_stored - before.bytes_stored).div_ceil(64);
        (after.fences - before.fences, after.lines_flushed - before.lines_flushed + streamed)
    };
    let mut first = 0;
    for blocks in [1, 64, 191] {
        write_blocks(&mut leased, first, blocks);
        first += blocks;
        let (fences, lines) = costs(&|| pool.adopt(file).expect("nothing refuses"));
        println!("adoption of {blocks}: {fences} fences, {lines} lines");
        assert!(fences <= 2 && lines <= 6 + blocks * 5 / 4, "{blocks} elements: {fences} fences, {lines} lines");
    }
    assert_eq!(costs(&|| pool.adopt(file).expect("nothing refuses")), (0, 0), "there is nothing to adopt");
    let (fences, lines) = costs(&|| assert_eq!(pool.extend(lease), Ok(true)));
    println!("extension: {fences} fences, {lines} lines");
    let (fences, _) = costs(&|| pool.revoke(file).expect("nothing refuses"));
    assert!(fences <= 3, "a revocation of nothing takes {fences} fences");
}

/// Each write has a block of its own until it is adopted: those alone would take 160 MiB.
#[test]
fn a_log_that_grows_by_small_writes_takes_the_room_of_its_bytes() {
    const WRITES: u64 = 40_000;
    let line =
        |number: u64| -> [u8; 100] { std::array::from_fn(|at| u8::try_from((number + at as u64) % 251).unwrap()) };
    let region = Arc::new(SharedMemory::new(24 << 20));
    let (pool, [file, _]) = open(&region, 4096);
    let (lease, mut leased) = lend(&region, &pool, file);
    for number in 0..WRITES {
        if append_leased(&mut leased, &line(number)) == Ok(Wrote::OutOfBlocks) {
            assert_eq!(pool.extend(lease), Ok(true), "at write {number}");
            assert_eq!(append_leased(&mut leased, &line(number)), Ok(Wrote::Done));
        }
    }
    leased.sync().expect("nothing refuses");
    let all: Vec<u8> = (0..WRITES).flat_map(line).collect();
    let mut out = vec![0xcc; all.len()];
    assert_eq!(pool.read_leased(file, 0, &mut out), Ok((all.len(), 0)));
    assert!(out == all);
    assert_eq!(pool.fill().out_of_sync, WRITES * 100);
    while pool.write_back_step(0, u64::MAX).expect("nothing refuses").bytes > 0 {}
    assert_eq!(pool.clean_bytes(), WRITES * 100);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints times, and judges none.
#[test]
#[ignore = "a measurement: it takes a minute"]
fn times_in_a_lane_with_a_million_entries() {
    const ENTRIES: u64 = 1 << 20;
    let region = Arc::new(SharedMemory::new(640 << 20));
    let (pool, [file, full]) = open(&region, 256);
    for entry in 0..ENTRIES {
        pool.write(full, entry * 512, &[3; 200], Persistence::Synchronous).expect("nothing refuses");
    }
    let (mut extended, mut revoked, mut adopted) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..30 {
        let (lease, mut leased) = lend(&region, &pool, file);
        write_blocks(&mut leased, round * 100, 256);
        assert_eq!(pool.extend(lease), Ok(true));
        write_blocks(&mut leased, round * 100, ELEMENTS);
        let start = Instant::now();
        assert_eq!(pool.extend(lease), Ok(true));
        extended.push(start.elapsed());
        write_blocks(&mut leased, round * 77, ELEMENTS / 2);
        let start = Instant::now();
        pool.adopt(file).expect("nothing refuses");
        adopted.push(start.elapsed());
        assert_eq!(pool.extend(lease), Ok(true));
        write_blocks(&mut leased, round * 50, ELEMENTS);
        let start = Instant::now();
        pool.revoke(file).expect("nothing refuses");
        revoked.push(start.elapsed());
        drop(leased);
        pool.release(lease).expect("nothing refuses");
    }
    let most = revoked.iter().max().copied();
    println!("extension by 508: {:?}; adoption of 254: {:?}", median(extended), median(adopted));
    println!("revocation with 508 to adopt: {:?}, at most {most:?}", median(revoked));
}
