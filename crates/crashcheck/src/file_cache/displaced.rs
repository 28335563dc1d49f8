//! Files below that are not as the cache left them: they are not written over, and the pool retains
//! the cache's bytes.

use crate::file_cache::machine::{Machine, Refusal, SimBelow, SimFile, SmallPool, Watched, backing};
use std::sync::Arc;
use tidegate_file_cache::{
    Below, Displaced, Disposition, FileError, FileIdentity, FilePool, Outcome, Persistence, PoolFile, Recovered,
    Refused,
};
use tidegate_layout::file_cache::LEASE_CLASS;
use tidegate_sim::{Region, Rng};

const OLD: &[u8] = b"what the file had before";

/// A machine whose pool has synced bytes of file 0, and whose process ended. The file has the mark
/// of its last change, as some of it was written back.
fn machine() -> Arc<Machine> {
    let small = SmallPool::of(4);
    let region = Region::with_line_order(small.image.clone(), small.order);
    let machine = Machine::new(&small, region, vec![SimFile::new(OLD), SimFile::new(&[])], None, None);
    let pool = machine.open().unwrap();
    let file = pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    pool.write(file, 0, b"WRITTEN BACK", Persistence::Synchronous).unwrap();
    pool.write_back_step(0, u64::MAX).unwrap();
    pool.write(file, 5, b"SYNCED", Persistence::Synchronous).unwrap();
    machine
}

/// Answers recovery in one way.
struct Decided {
    machine: Arc<Machine>,
    found: Result<bool, Refused>,
    disposition: fn(&Arc<Machine>) -> Disposition,
}

impl Below for Decided {
    fn find(
        &self,
        identity: FileIdentity,
        hint: &[u8],
    ) -> Result<Option<Arc<dyn tidegate_file_cache::BackingFile>>, Refused> {
        let missing = (!self.found?).then_some(0);
        SimBelow { machine: self.machine.clone(), missing }.find(identity, hint)
    }

    fn displaced(&self, _: FileIdentity, _: &[u8], _: Displaced) -> Result<Disposition, Refused> {
        Ok((self.disposition)(&self.machine))
    }
}

fn recover(
    machine: &Arc<Machine>,
    found: Result<bool, Refused>,
    disposition: fn(&Arc<Machine>) -> Disposition,
) -> (FilePool<Watched>, Outcome) {
    let pool = machine.open().unwrap();
    let below = Decided { machine: machine.clone(), found, disposition };
    let recovered = pool.recover(&below).unwrap();
    let [Recovered { outcome, ref path_hint, bytes: 6, .. }] = recovered[..] else { panic!("{recovered:?}") };
    assert_eq!(path_hint, b"a path");
    (pool, outcome)
}

fn read(pool: &FilePool<Watched>, file: PoolFile) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let length = pool.read(file, 0, &mut bytes).unwrap();
    bytes[..length].to_vec()
}

#[test]
fn a_changed_file_is_not_written_over_and_its_data_can_be_salvaged() {
    let machine = machine();
    machine.change(0, 0, b"by others");
    let changed = machine.contents()[0].clone();
    let (pool, outcome) = recover(&machine, Ok(true), |_| Disposition::Retain);
    assert_eq!(outcome, Outcome::Retained(Displaced::Changed));
    assert_eq!(pool.open_file(&backing(&machine, 0), b"a path"), Err(FileError::Changed));
    let (pool, outcome) = recover(&machine, Ok(true), |machine| Disposition::Salvage(backing(machine, 1)));
    assert_eq!((outcome, pool.files()), (Outcome::Salvaged(Displaced::Changed), Vec::new()));
    assert_eq!(machine.contents()[0], changed);
    assert_eq!(machine.contents()[1][5..11], *b"SYNCED");
    let file = pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    assert_eq!(read(&pool, file), changed);
}

/// Opened anew, a file has lost its reserved room: that is reserved again by the first write.
#[test]
fn a_file_that_was_opened_again_and_then_changed_is_not_written_over() {
    let machine = machine();
    let pool = machine.open().unwrap();
    let open = || pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    let file = open();
    pool.write_back_step(0, u64::MAX).unwrap();
    assert!(pool.close_if_done(file, || Ok(())).unwrap());
    let file = open();
    pool.write(file, 5, b"LATELY", Persistence::Synchronous).unwrap();
    machine.change(0, 0, b"by others");
    let changed = machine.contents()[0].clone();
    // As long as the process lives, too.
    assert_eq!(pool.write_back_step(0, u64::MAX), Err(FileError::Changed));
    assert_eq!(pool.drain(file), Err(FileError::Changed));
    assert_eq!(pool.truncate(file, 3), Err(FileError::Changed));
    pool.write(file, 11, b"MORE", Persistence::Asynchronous).unwrap();
    assert_eq!(read(&pool, file)[5..15], *b"LATELYMORE");
    drop(pool);
    let pool = machine.open().unwrap();
    let below = Decided { machine: machine.clone(), found: Ok(true), disposition: |_| Disposition::Retain };
    assert_eq!(pool.recover(&below).unwrap()[0].outcome, Outcome::Retained(Displaced::Changed));
    assert_eq!(machine.contents()[0], changed);
}

/// The time that a reservation gave the file below may be durable there, and not the one that was
/// put back.
#[test]
fn a_file_whose_room_was_reserved_before_a_power_cut_is_no_changed_one() {
    let small = SmallPool::of(4);
    let machine = machine();
    let pool = machine.open().unwrap();
    assert_eq!(pool.recover(&SimBelow { machine: machine.clone(), missing: None }).unwrap().len(), 1);
    pool.write_back_step(0, u64::MAX).unwrap();
    let open = || pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    assert!(pool.close_if_done(open(), || Ok(())).unwrap());
    pool.write(open(), 5, b"LATELY", Persistence::Synchronous).unwrap();
    let cut = machine.cut();
    let images = cut.files_images();
    assert!(images.len() > 1, "the time may be durable or not");
    for files in images {
        let region = Region::with_line_order(cut.region.sample(&mut Rng::new(1)), small.order);
        let restarted = Machine::new(&small, region, files, None, None);
        let (pool, outcome) = recover(&restarted, Ok(true), |_| Disposition::Retain);
        assert_eq!(outcome, Outcome::Attached);
        let file = pool.open_file(&backing(&restarted, 0), b"a path").unwrap();
        assert_eq!(read(&pool, file)[..12], *b"WRITTLATELYK");
    }
}

/// The next process syncs the file below, which gives it another time.
#[test]
fn a_file_whose_room_was_reserved_before_a_kill_is_no_changed_one() {
    let machine = machine();
    let pool = machine.open().unwrap();
    let below = SimBelow { machine: machine.clone(), missing: None };
    pool.recover(&below).unwrap();
    pool.write_back_step(0, u64::MAX).unwrap();
    let open = |pool: &FilePool<Watched>| pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    assert!(pool.close_if_done(open(&pool), || Ok(())).unwrap());
    pool.write(open(&pool), 5, b"LATELY", Persistence::Asynchronous).unwrap();
    drop(pool);
    let pool = machine.open().unwrap();
    assert_eq!(pool.recover(&below).unwrap()[0].outcome, Outcome::Attached);
    let file = open(&pool);
    machine.note(0, 77);
    pool.sync(file).unwrap();
    pool.write_back_step(0, u64::MAX).unwrap();
    assert_eq!(machine.contents()[0][..12], *b"WRITTLATELYK");
}

#[test]
fn a_file_whose_salvage_was_interrupted_is_not_written_over() {
    let machine = machine();
    machine.change(0, 0, b"by others");
    let changed = machine.contents()[0].clone();
    let pool = machine.open().unwrap();
    let file = pool.detached()[0].0;
    machine.refuse(Some((0, Refusal::Nothing)));
    assert!(pool.salvage(file, backing(&machine, 1)).is_err());
    machine.refuse(None);
    drop(pool);
    let (_, outcome) = recover(&machine, Ok(true), |_| Disposition::Retain);
    assert_eq!(outcome, Outcome::Retained(Displaced::Changed));
    assert_eq!(machine.contents()[0], changed);
}

#[test]
fn a_missing_file_keeps_its_data_in_the_pool_until_it_is_there_again() {
    let machine = machine();
    for _ in 0..2 {
        let (_, outcome) = recover(&machine, Ok(false), |_| Disposition::Retain);
        assert_eq!(outcome, Outcome::Retained(Displaced::Missing));
    }
    let (_, outcome) = recover(&machine, Err(Refused { errno: 5 }), |_| Disposition::Discard);
    assert_eq!(outcome, Outcome::Retained(Displaced::Refused(Refused { errno: 5 })));
    let (pool, outcome) = recover(&machine, Ok(true), |_| Disposition::Discard);
    assert_eq!(outcome, Outcome::Attached);
    pool.write_back_step(0, u64::MAX).unwrap();
    assert_eq!(pool.files(), Vec::new());
    assert_eq!(machine.contents()[0], *b"WRITTSYNCEDKe had before");
}

#[test]
fn discarded_bytes_are_gone_and_the_file_is_as_it_was() {
    let machine = machine();
    let before = machine.contents();
    let (pool, outcome) = recover(&machine, Ok(false), |_| Disposition::Discard);
    assert_eq!((outcome, pool.files()), (Outcome::Discarded(Displaced::Missing), Vec::new()));
    assert_eq!(machine.contents(), before);
    assert_eq!(machine.open().unwrap().files(), Vec::new());
}

/// A program that outlives the service goes on to store to its pages.
#[test]
fn pages_that_a_program_has_mapped_still_stay_what_they_are() {
    let machine = machine();
    let pool = machine.open().unwrap();
    let file = pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    pool.write(file, 0, &[7; 4096], Persistence::Synchronous).unwrap();
    let mapped = pool.map(file, 0..4096, LEASE_CLASS).unwrap();
    drop(pool);
    let dispositions: [fn(&Arc<Machine>) -> Disposition; 2] =
        [|_| Disposition::Discard, |machine| Disposition::Salvage(backing(machine, 1))];
    for disposition in dispositions {
        let pool = machine.open().unwrap();
        pool.map_again(LEASE_CLASS, 0, &mut |_| true).unwrap();
        let below = Decided { machine: machine.clone(), found: Ok(false), disposition };
        let recovered = pool.recover(&below).unwrap();
        assert_eq!(recovered[0].outcome, Outcome::Retained(Displaced::Missing));
        assert_eq!(pool.mapped(pool.detached()[0].0), mapped);
    }
}

/// As after the last link to it was removed.
#[test]
fn an_open_file_that_is_discarded_is_read_from_below() {
    let machine = machine();
    let before = machine.contents();
    let pool = machine.open().unwrap();
    let file = pool.open_file(&backing(&machine, 0), b"a path").unwrap();
    pool.write(file, 0, b"unsynced", Persistence::Asynchronous).unwrap();
    pool.discard(file).unwrap();
    assert_eq!(read(&pool, file), before[0]);
    pool.close(file).unwrap();
    assert_eq!((pool.files(), machine.contents()), (Vec::new(), before));
}
