//! The thread of an append-only log over a small window: writers wait for room, a disk that refuses
//! is told, and everything is found again.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use tidegate_append_log::{AppendLog, LogError, Making, OnDamage, create};
use tidegate_background::LogThread;
use tidegate_sim::{Disk, DiskFault, PoisonedStore, Region};

const RECORD: usize = 100;

fn testbed(below_chunks: u64) -> (Arc<Region>, Arc<Disk>) {
    let (region, disk) = (Arc::new(Region::new(12_288 + 4 * 512)), Arc::new(Disk::new(below_chunks, 512)));
    create(&region, &disk, &Making { chunk_bytes: 512, uuid: [1; 16], below: [0; 32] }).unwrap();
    (region, disk)
}

fn open(region: &Arc<Region>, disk: &Arc<Disk>) -> AppendLog<Arc<Region>> {
    AppendLog::open(Arc::clone(region), Arc::clone(disk) as _, OnDamage::Refuse).unwrap()
}

fn contents(log: &AppendLog<Arc<Region>>) -> Vec<u8> {
    let mut found = Vec::new();
    log.replay(0, &mut |_, part| found.extend_from_slice(part)).unwrap();
    found
}

#[test]
fn writers_wait_for_room_and_nothing_is_lost() {
    let (region, disk) = testbed(2048);
    let log = LogThread::start(open(&region, &disk)).unwrap();
    std::thread::scope(|scope| {
        for byte in 1..=3 {
            let log = &log;
            scope.spawn(move || {
                for _ in 0..100 {
                    log.append(&[byte; RECORD]).unwrap();
                    log.sync().unwrap();
                }
            });
        }
    });
    drop(log);
    let found = contents(&open(&region, &disk));
    let (records, rest) = found.as_chunks::<RECORD>();
    assert!(records.len() == 300 && rest.is_empty());
    assert!(records.iter().all(|record| record.iter().all(|byte| *byte == record[0])));
}

#[test]
fn an_append_longer_than_the_window_passes_through_it() {
    let (region, disk) = testbed(64);
    let log = LogThread::start(open(&region, &disk)).unwrap();
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    assert_eq!(log.append(&bytes), Ok(10_000));
    assert_eq!(log.sync(), Ok(10_000));
    drop(log);
    assert!(contents(&open(&region, &disk)) == bytes);
}

#[test]
fn a_disk_that_refuses_is_told_once_the_window_is_full_and_the_log_goes_on_later() {
    let (region, disk) = testbed(64);
    disk.fail(DiskFault::WriteFails(0..64));
    let log = LogThread::start(open(&region, &disk)).unwrap();
    let mut appended = 0;
    let told = loop {
        match log.append(&[7; RECORD]) {
            Ok(end) => appended = end,
            Err(error) => break error,
        }
        log.sync().unwrap();
    };
    assert!(matches!(told, LogError::Below(_)), "{told}");
    assert_eq!(appended, 2000, "the window took what it has room for");
    disk.mend();
    assert_eq!(log.append(&[8; RECORD]), Ok(2100));
    log.sync().unwrap();
    drop(log);
    let found = contents(&open(&region, &disk));
    assert!(found.len() == 2100 && found[..2000].iter().all(|byte| *byte == 7));
}

#[test]
fn a_disk_that_is_full_is_told_and_a_drop_makes_room() {
    let (region, disk) = testbed(4);
    let log = LogThread::start(open(&region, &disk)).unwrap();
    log.append(&[1; 2048]).unwrap();
    assert_eq!(log.append(&[2]), Err(LogError::BelowFull { chunks: 4 }));
    log.sync().unwrap();
    log.log().drop_behind(1024).unwrap();
    log.append(&[2; 1024]).unwrap();
    log.sync().unwrap();
    assert_eq!(contents(log.log()), [[1; 1024], [2; 1024]].concat());
}

#[test]
fn memory_that_fails_under_a_full_chunk_is_told_and_nobody_waits_for_it() {
    let (region, disk) = testbed(64);
    let log = LogThread::start(open(&region, &disk)).unwrap();
    log.append(&[1; 500]).unwrap();
    log.sync().unwrap();
    region.poison(12_288, 64, PoisonedStore::Kept);
    let told = (0..100).find_map(|_| log.append(&[2; RECORD]).and_then(|_| log.sync()).err());
    assert!(matches!(&told, Some(LogError::Damaged(damage)) if damage.from == 0), "{told:?}");
}
