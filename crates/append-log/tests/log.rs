//! The log against a model: a vector of bytes.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use tidegate_append_log::{
    AppendLog, CreateError, LogError, LogOpenError, Making, OnDamage, Prepared, WrittenBack, create,
};
use tidegate_layout::append_log::{LOG_HEADS_AT, LogPlan};
use tidegate_media::{BlockDevice, Durability, Error, Lba, MappedRegion, NoRoom, Region as Medium};
use tidegate_sim::{Disk, DiskFault, Intercept, Intercepted, PoisonedStore, Region, Rng};

const MAKING: Making = Making { chunk_bytes: 512, uuid: [7; 16], below: [0; 32] };
const CHUNK: usize = 512;

struct Testbed {
    region: Arc<Region>,
    disk: Arc<Disk>,
    plan: LogPlan,
}

impl Testbed {
    /// A window of three chunks in front of a disk of so many.
    fn new(below_chunks: u64) -> Testbed {
        let (region, disk) = (Arc::new(Region::new(12_288 + 3 * 512)), Arc::new(Disk::new(below_chunks, 512)));
        let plan = create(&region, &disk, &MAKING).unwrap();
        assert_eq!(plan.chunks, 3);
        Testbed { region, disk, plan }
    }

    fn open(&self) -> AppendLog<Arc<Region>> {
        AppendLog::open(Arc::clone(&self.region), self.disk.clone(), OnDamage::Refuse).unwrap()
    }

    fn open_error(&self) -> LogOpenError {
        AppendLog::open(Arc::clone(&self.region), self.disk.clone(), OnDamage::Refuse).map(drop).unwrap_err()
    }
}

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

fn contents<R: Medium>(log: &AppendLog<R>) -> Vec<u8> {
    let mut found = Vec::new();
    let begin = log.begin();
    let end = log.replay(0, &mut |at, part| {
        assert_eq!(at, begin + found.len() as u64);
        found.extend_from_slice(part);
    });
    assert_eq!(end, Ok(begin + found.len() as u64));
    found
}

/// Appends bytes that follow, with the steps that are needed.
fn append<R: Medium>(log: &AppendLog<R>, len: usize) {
    let data = bytes(log.appended_to(), len);
    let part = usize::try_from(log.window_bytes()).unwrap() * 2 / 3;
    for part in data.chunks(part) {
        while let Err(error) = log.append(part) {
            assert!(matches!(error, LogError::Full { .. }), "{error}");
            log.sync().unwrap();
            assert_eq!(log.write_back_step(), Ok(WrittenBack::Chunk));
        }
    }
}

#[test]
fn a_short_append_and_its_sync_take_four_lines_and_two_fences() {
    let region = Arc::new(MappedRegion::anonymous((40 << 20) + 12_288).unwrap());
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new(1 << 20, 4096));
    create(&region, &disk, &Making { chunk_bytes: 2 << 20, ..MAKING }).unwrap();
    let log = AppendLog::open(Arc::clone(&region), disk, OnDamage::Refuse).unwrap();
    assert_eq!(log.prepare_step(), Ok(Prepared::Chunk));
    for turn in 0..1000 {
        let before = region.counters();
        log.append(&[7; 100]).unwrap();
        log.sync().unwrap();
        let cost = region.counters() - before;
        let begin = turn * 100;
        let lines = (begin + 99) / 64 - begin / 64 + 1;
        assert_eq!((cost.lines_flushed, cost.fences, cost.bytes_stored), (lines + 1, 2, 108), "turn {turn}");
        assert!(cost.lines_flushed <= 4);
    }
    let before = region.counters();
    (0..10).for_each(|_| assert!(log.append(&[8; 10]).is_ok()));
    assert_eq!(region.counters() - before, Default::default(), "nothing is stored before a sync");
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!((region.counters() - before).fences, 2, "a sync of nothing is free");
}

#[test]
fn what_is_synced_is_there_after_each_opening_and_the_rest_is_not() {
    let testbed = Testbed::new(64);
    let mut random = Rng::new(3);
    for _ in 0..60 {
        let log = testbed.open();
        let mut synced = log.durable_to();
        assert_eq!(contents(&log), bytes(0, usize::try_from(synced).unwrap()));
        for _ in 0..random.index(6) {
            append(&log, random.index(300) + 1);
            if random.one_in(2) {
                synced = log.sync().unwrap();
            }
            synced = synced.max(log.durable_to());
        }
        assert_eq!(log.durable_to(), synced);
        assert_eq!(contents(&log), bytes(0, usize::try_from(synced).unwrap()));
    }
    assert!(testbed.open().durable_to() > 20 * 512, "the window was used many times over");
}

#[test]
fn a_long_append_passes_through_the_window_at_once() {
    let region = Region::new(12_288 + (1 << 20));
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new(1 << 13, 512));
    create(&region, &disk, &Making { chunk_bytes: 1 << 16, ..MAKING }).unwrap();
    let log = AppendLog::open(region, disk, OnDamage::Refuse).unwrap();
    let len = (128 << 10) + 77;
    append(&log, 50);
    append(&log, len);
    append(&log, 50);
    assert_eq!((log.durable_to(), log.sync()), (0, Ok(len as u64 + 100)));
    assert_eq!(contents(&log), bytes(0, len + 100));
    let window = log.window_bytes();
    let long = vec![0; usize::try_from(window).unwrap() + 1];
    assert_eq!(log.append(&long), Err(LogError::TooLong { len: window + 1, window }));
}

#[test]
fn a_full_window_is_told_and_steps_make_room() {
    let testbed = Testbed::new(64);
    let log = testbed.open();
    append(&log, 3 * CHUNK - 10);
    assert_eq!(log.append(&[1; 11]), Err(LogError::Full { room: 10 }));
    assert_eq!(log.write_back_step(), Ok(WrittenBack::Nothing), "nothing is durable");
    log.sync().unwrap();
    assert_eq!(log.write_back_step(), Ok(WrittenBack::Chunk));
    assert_eq!(log.written_back_to(), 512);
    append(&log, 11);
    assert_eq!(log.sync(), Ok(3 * CHUNK as u64 + 1));
    assert_eq!(contents(&log), bytes(0, 3 * CHUNK + 1));
}

#[test]
fn what_lies_below_is_the_log_itself() {
    let testbed = Testbed::new(64);
    let log = testbed.open();
    append(&log, 5 * CHUNK + 100);
    log.sync().unwrap();
    log.write_back_all().unwrap();
    let mut expected = bytes(0, 5 * CHUNK + 100);
    expected.resize(64 * CHUNK, 0);
    assert!(testbed.disk.cut().least().to_vec() == expected, "the disk has it durably, and zeroes behind it");
    append(&log, 412);
    log.sync().unwrap();
    drop(log);
    assert_eq!(contents(&testbed.open()), bytes(0, 6 * CHUNK));
}

#[test]
fn a_log_goes_round_below_as_its_oldest_bytes_are_dropped() {
    let testbed = Testbed::new(4);
    let mut log = testbed.open();
    append(&log, 4 * CHUNK);
    log.sync().unwrap();
    assert_eq!(log.append(&[1]), Err(LogError::BelowFull { chunks: 4 }));
    assert_eq!(log.drop_behind(2049), Err(LogError::Beyond { at: 2049, durable: 2048 }));
    for turn in 0..20 {
        log.drop_behind(log.durable_to() - 700).unwrap();
        log.drop_behind(3).unwrap();
        append(&log, 600);
        log.sync().unwrap();
        assert_eq!(contents(&log), bytes(log.begin(), 1300), "turn {turn}");
        log = testbed.open();
        assert_eq!(contents(&log), bytes(log.begin(), 1300), "turn {turn}, opened again");
        let begin = log.begin();
        assert_eq!(log.read(begin - 1, &mut [0; 4]), Err(LogError::Dropped { begin }));
    }
    log.drop_behind(log.durable_to()).unwrap();
    assert!(contents(&testbed.open()).is_empty());
}

#[test]
fn a_file_below_that_refuses_is_told_and_nothing_is_lost() {
    let testbed = Testbed::new(64);
    let log = testbed.open();
    append(&log, 2 * CHUNK);
    log.sync().unwrap();
    for fault in [DiskFault::WriteFails(0..1), DiskFault::NextFlushFails] {
        testbed.disk.fail(fault);
        assert!(matches!(log.write_back_step(), Err(LogError::Below(_))));
        assert!(log.stuck().is_some());
        testbed.disk.mend();
    }
    testbed.disk.fail(DiskFault::WriteFails(0..64));
    log.write_back_step().unwrap_err();
    append(&log, CHUNK);
    log.sync().unwrap();
    assert!(matches!(log.append(&[1]), Err(LogError::Below(Error::Media(_)))), "the reason why there is no room");
    testbed.disk.mend();
    assert_eq!((log.write_back_step(), log.stuck()), (Ok(WrittenBack::Chunk), None));
    append(&log, 100);
    log.sync().unwrap();
    drop(log);
    assert_eq!(contents(&testbed.open()), bytes(0, 3 * CHUNK + 100));
}

/// A file system that is full.
struct NoSpace;

impl Intercept for NoSpace {
    fn write<D: BlockDevice + ?Sized>(&self, _: &D, at: Lba, data: &[u8], _: Durability) -> Result<(), Error> {
        Err(NoRoom { at: at.0 * 512, len: data.len() as u64 }.into())
    }
}

#[test]
fn a_full_file_system_below_is_told_as_such_and_nothing_is_lost() {
    let testbed = Testbed::new(64);
    let below = Arc::new(Intercepted { device: Arc::clone(&testbed.disk), by: NoSpace });
    let log = AppendLog::open(Arc::clone(&testbed.region), below, OnDamage::Refuse).unwrap();
    append(&log, 3 * CHUNK);
    log.sync().unwrap();
    let told = log.write_back_step().unwrap_err();
    assert!(matches!(&told, LogError::Below(error) if error.is_for_want_of_room()), "{told}");
    assert_eq!((log.append(&[1]), log.stuck()), (Err(told.clone()), Some(told)));
    drop(log);
    let log = testbed.open();
    append(&log, CHUNK);
    assert_eq!(log.sync(), Ok(4 * CHUNK as u64));
    assert_eq!(contents(&log), bytes(0, 4 * CHUNK));
}

#[test]
fn a_changed_byte_is_told_with_its_place_and_is_not_the_end() {
    let testbed = Testbed::new(64);
    let log = testbed.open();
    append(&log, 2 * CHUNK + 100);
    log.sync().unwrap();
    drop(log);
    let image = testbed.region.cut().least().clone();
    for at in [0, 511, 512, 1000, 1024, 1123] {
        let mut image = image.clone();
        let place = testbed.plan.byte_at(at);
        let mut byte = [0];
        image.read(place, &mut byte);
        image.write(place, &[byte[0] ^ 16]);
        let damaged = Testbed { region: Arc::new(Region::from_image(image)), ..Testbed::new(64) };
        let LogOpenError::Damaged(damage) = damaged.open_error() else { panic!("byte {at} is taken") };
        assert!(damage.from <= at && at < damage.to && damage.to - damage.from <= 512, "{damage:?} for {at}");
        let log = AppendLog::open(damaged.region.clone(), damaged.disk.clone(), OnDamage::ReadOnly).unwrap();
        let mut found = Vec::new();
        let told = log.replay(0, &mut |_, part| found.extend_from_slice(part));
        assert_eq!(told, Err(LogError::Damaged(damage.clone())));
        assert_eq!(found, bytes(0, usize::try_from(damage.from).unwrap()));
        let mut rest = Vec::new();
        log.replay(damage.to, &mut |_, part| rest.extend_from_slice(part)).unwrap();
        assert_eq!(rest, bytes(damage.to, usize::try_from(1124 - damage.to).unwrap()));
        assert_eq!(log.append(&[1]), Err(LogError::Damaged(damage)));
    }
}

#[test]
fn changed_words_of_heads_are_told() {
    let testbed = Testbed::new(64);
    let log = testbed.open();
    append(&log, CHUNK + 100);
    log.sync().unwrap();
    drop(log);
    let image = testbed.region.cut().least().clone();
    for (chunk, byte) in (0..2).flat_map(|chunk| (0..24).map(move |byte| (chunk, byte))) {
        let mut image = image.clone();
        let place = LOG_HEADS_AT + 64 * chunk + byte;
        let mut old = [0];
        image.read(place, &mut old);
        image.write(place, &[old[0] ^ 1]);
        let damaged = Testbed { region: Arc::new(Region::from_image(image)), ..Testbed::new(64) };
        let told = damaged.open_error();
        assert!(matches!(&told, LogOpenError::Damaged(damage) if damage.from == 512 * chunk), "{told:?}");
    }
}

#[test]
fn unreadable_memory_is_told_and_a_chunk_that_is_below_does_without() {
    let testbed = Testbed::new(64);
    let log = testbed.open();
    append(&log, 2 * CHUNK);
    log.sync().unwrap();
    log.write_back_step().unwrap();
    drop(log);
    let poison = |number: u64| testbed.region.poison(testbed.plan.byte_at(number * 512), 64, PoisonedStore::Kept);
    poison(0);
    assert_eq!(contents(&testbed.open()), bytes(0, 2 * CHUNK));
    poison(1);
    assert!(matches!(testbed.open_error(), LogOpenError::Damaged(damage) if (damage.from, damage.to) == (512, 1024)));
}

#[test]
fn a_lost_store_seals_the_log() {
    let testbed = Testbed::new(64);
    let log = testbed.open();
    append(&log, 10);
    log.sync().unwrap();
    testbed.region.poison(testbed.plan.byte_at(0), 64, PoisonedStore::Lost);
    append(&log, 10);
    assert!(matches!(log.sync(), Err(LogError::Sealed(_))));
    assert!(matches!(log.append(&[1]), Err(LogError::Sealed(_))));
    assert!(matches!(log.sync(), Err(LogError::Sealed(_))));
    assert!(matches!(log.drop_behind(1), Err(LogError::Sealed(_))));
}

#[test]
fn other_regions_and_other_sizes_are_refused() {
    let testbed = Testbed::new(64);
    let open = |region: Region, disk: Disk| {
        AppendLog::open(region, Arc::new(disk), OnDamage::Refuse).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(
        AppendLog::open(Region::new(4096), testbed.disk.clone(), OnDamage::Refuse).err(),
        Some(LogOpenError::NoLog)
    );
    let image = || testbed.region.cut().least().clone();
    assert!(open(Region::from_image(image()), Disk::new(63, 512)).unwrap_err().contains("32768 bytes below"));
    assert!(open(Region::from_image(image()), Disk::new(64, 1024)).unwrap_err().contains("blocks of 1024"));
    let mut one = image();
    one.write(0, &[0; 128]);
    open(Region::from_image(one.clone()), Disk::new(64, 512)).expect("the second copy says enough");
    one.write(4096 + 40, &[1]);
    assert!(open(Region::from_image(one), Disk::new(64, 512)).unwrap_err().contains("superblock"));
    let create = |len, chunk_bytes| create(&Region::new(len), &Disk::new(64, 1024), &Making { chunk_bytes, ..MAKING });
    assert!(matches!(create(1 << 20, 512), Err(CreateError::Blocks { .. })));
    assert!(matches!(create(12_288, 1024), Err(CreateError::Layout(_))));
    assert!(matches!(create(1 << 20, 1000), Err(CreateError::Layout(_))));
}

#[test]
fn threads_append_and_sync_side_by_side() {
    let region = Region::new(12_288 + (1 << 16));
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new(1 << 12, 512));
    create(&region, &disk, &Making { chunk_bytes: 4096, ..MAKING }).unwrap();
    let log = AppendLog::open(region, disk, OnDamage::Refuse).unwrap();
    std::thread::scope(|scope| {
        for byte in 1..=3 {
            let log = &log;
            scope.spawn(move || {
                for turn in 0..200 {
                    while log.append(&[byte; 24]).is_err() {
                        log.write_back_step().unwrap();
                    }
                    let end = log.sync().unwrap();
                    assert!(log.durable_to() >= end && (turn % 9 != 0 || log.prepare_step().is_ok()));
                }
            });
        }
    });
    let found = contents(&log);
    assert_eq!(found.len(), 3 * 200 * 24);
    let (records, rest) = found.as_chunks::<24>();
    assert!(rest.is_empty() && records.iter().all(|record| record.iter().all(|byte| *byte == record[0])));
}
