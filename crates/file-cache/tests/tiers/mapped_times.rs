//! Programs say when they stored to mapped pages; the pool takes it over whatever they say, and
//! gives the page up in which they do when none has it any more.

use crate::InMemory;
use std::sync::Arc;
use tidegate_file_cache::{
    BackingFile, FileError, FilePool, Persistence, PoolFile, PoolSpec, check, dram_bytes, format,
};
use tidegate_layout::file_cache::{LEASE_CLASS, StoreTimes};
use tidegate_media::Region;
use tidegate_sim::{Rng, SharedMemory};

const NOW: u64 = 900;

struct Setting {
    region: Arc<SharedMemory>,
    file: Arc<dyn BackingFile>,
}

/// A pool that a process has open, and its file of two pages.
struct Opened {
    pool: FilePool<SharedMemory>,
    file: PoolFile,
}

fn dram(region: &SharedMemory) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new(dram_bytes(region, 1 << 20).expect("nothing refuses")))
}

impl Setting {
    fn new() -> Setting {
        let region = Arc::new(SharedMemory::new(12 << 20));
        let spec = PoolSpec { lanes: 1, files: 8, ring_slots: 64, ..PoolSpec::usual([7; 16]) };
        format(&*region, &spec).expect("nothing refuses");
        Setting { region, file: Arc::new(InMemory::new(1, &[1; 8192])) }
    }

    /// The next process, after a kill or, with fresh memory, a restart of the machine.
    fn open(&self, dram: &Arc<SharedMemory>) -> Opened {
        let pool = FilePool::open(&self.region, |_| Ok(dram.clone() as Arc<dyn Region>)).expect("it opens");
        let file = pool.open_file(&self.file, b"a file").expect("it opens");
        Opened { pool, file }
    }

    fn mapped(&self, dram: &Arc<SharedMemory>) -> Opened {
        let opened = self.open(dram);
        opened.pool.note_modified(opened.file, 5).expect("nothing refuses");
        opened.pool.map(opened.file, 0..8192, LEASE_CLASS).expect("there is room");
        opened
    }

    fn store(&self, opened: &Opened, word: u64, value: u64) {
        self.region.store_u64(opened.time_page() + word, value);
    }
}

impl Opened {
    fn time_page(&self) -> u64 {
        self.pool.time_page(self.file).expect("it is mapped").pool_at
    }

    fn modified(&self) -> u64 {
        self.pool.modified(self.file).expect("nothing refuses")
    }

    fn unmap(&self) -> usize {
        self.pool.unmap(self.file, NOW, |_| false).expect("nothing refuses")
    }
}

#[test]
fn the_last_word_counts_whoever_said_it() {
    let setting = Setting::new();
    let opened = setting.mapped(&dram(&setting.region));
    assert_eq!(opened.modified(), 5);
    setting.store(&opened, StoreTimes::STORED_AT, 7);
    assert_eq!(opened.modified(), 7);
    setting.store(&opened, StoreTimes::STORED_AT, 8);
    opened.pool.note_modified(opened.file, 3).expect("nothing refuses");
    assert_eq!(opened.modified(), 3, "an earlier time that was set later");
    setting.store(&opened, StoreTimes::STORED_AT, 6);
    assert_eq!((opened.unmap(), opened.modified()), (0, 6));
}

#[test]
fn a_program_that_said_nothing_before_it_ended_changed_the_file_then() {
    let setting = Setting::new();
    let opened = setting.mapped(&dram(&setting.region));
    setting.store(&opened, StoreTimes::STORED_AT, 7);
    setting.store(&opened, StoreTimes::MAPPERS_AT, 1);
    assert_eq!((opened.unmap(), opened.modified()), (0, NOW));
}

#[test]
fn the_page_stays_as_long_as_a_program_has_it_and_the_file_with_it() {
    let setting = Setting::new();
    let memory = dram(&setting.region);
    let opened = setting.mapped(&memory);
    let page = opened.pool.time_page(opened.file).expect("it is mapped");
    let stays = opened.pool.unmap(opened.file, NOW, |run| run.pool_at == page.pool_at).expect("nothing refuses");
    assert_eq!((stays, opened.pool.mapped(opened.file)), (1, Vec::new()));
    let lent = opened.pool.lend(opened.file, 0..8192, LEASE_CLASS);
    assert_eq!(lent.err(), Some(FileError::Mapped));
    opened.pool.write_back_step(0, u64::MAX).expect("nothing refuses");
    assert_eq!(opened.pool.close_if_done(opened.file, || Ok(())), Ok(false));
    drop(opened);
    let opened = setting.open(&memory);
    opened.pool.map_again(LEASE_CLASS, NOW, &mut |range| range.contains(&page.pool_at)).expect("nothing refuses");
    assert_eq!(opened.pool.time_page(opened.file), Some(page));
    setting.store(&opened, StoreTimes::STORED_AT, 9);
    drop(opened);
    let opened = setting.open(&memory);
    opened.pool.map_again(LEASE_CLASS, NOW, &mut |_| false).expect("nothing refuses");
    assert_eq!((opened.pool.time_page(opened.file), opened.modified()), (None, 9));
    assert_eq!(check(&setting.region).expect("a pool").findings, []);
}

/// As of a program that has unmapped the file, and the page not yet.
#[test]
fn a_mapping_that_finds_no_room_leaves_the_page_of_an_earlier_one() {
    let setting = Setting { file: Arc::new(InMemory::new(1, &vec![1; 11 << 20])), ..Setting::new() };
    let opened = setting.mapped(&dram(&setting.region));
    let page = opened.pool.time_page(opened.file);
    opened.pool.unmap(opened.file, NOW, |run| Some(*run) == page).expect("nothing refuses");
    let refused = opened.pool.map(opened.file, 0..11 << 20, LEASE_CLASS);
    assert_eq!((refused, opened.pool.time_page(opened.file)), (Err(FileError::NoRoomForMapping), page));
    let all_gone = opened.unmap();
    assert_eq!((all_gone, opened.pool.time_page(opened.file)), (0, None));
}

#[test]
fn after_a_restart_of_the_machine_the_page_is_free_and_what_it_said_counts() {
    let setting = Setting::new();
    let opened = setting.mapped(&dram(&setting.region));
    let page = opened.time_page();
    setting.store(&opened, StoreTimes::STORED_AT, 7);
    setting.store(&opened, StoreTimes::MAPPERS_AT, 1);
    drop(opened);
    let opened = setting.open(&dram(&setting.region));
    assert_eq!((opened.pool.time_page(opened.file), opened.modified()), (None, 7));
    opened.pool.map(opened.file, 0..8192, LEASE_CLASS).expect("there is room");
    assert_eq!((opened.time_page(), opened.modified()), (page, 7), "the block is given anew, without a word in it");
}

/// A program that stores whatever it likes to its page spoils the file's time only, and only by one
/// that is a time.
#[test]
fn whatever_a_page_says_the_file_has_a_time_and_its_bytes() {
    let mut rng = Rng::new(3);
    for _ in 0..50 {
        let setting = Setting::new();
        let memory = dram(&setting.region);
        let opened = setting.mapped(&memory);
        let spoilt: Vec<u8> = (0..128).map(|_| u8::try_from(rng.below(256)).expect("a byte")).collect();
        setting.region.write(opened.time_page(), &spoilt);
        let time = opened.modified();
        assert!(tidegate_layout::file_cache::modified_time(time).is_some(), "{time:#x}");
        drop(opened);
        let opened = setting.open(&memory);
        opened.pool.map_again(LEASE_CLASS, NOW, &mut |_| false).expect("nothing refuses");
        let mut bytes = [0; 8192];
        assert_eq!((opened.pool.read(opened.file, 0, &mut bytes), bytes), (Ok(8192), [1; 8192]));
        opened.pool.write(opened.file, 0, &[2; 10], Persistence::Synchronous).expect("nothing refuses");
        assert_eq!(check(&setting.region).expect("a pool").findings, []);
    }
}
