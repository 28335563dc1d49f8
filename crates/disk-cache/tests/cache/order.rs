//! Disks that keep the order of commits: groups, what is written meanwhile, and what fails.

use super::*;
use tidegate_disk_cache::{
    NewLayout, erase_journal, find_journal, format_ordered, has_room_for, lay_out_anew, lay_out_journal, recover_disk,
};
use tidegate_layout::disk_cache::{JournalPlan, JournalRecord, TrustedJournal};
use tidegate_media::Region as _;
use tidegate_sim::Ending;
use zerocopy::IntoBytes;

const JOURNAL: JournalPlan = JournalPlan { block_size: 512, disk_blocks: DISK_BLOCKS, capacity: 16 };

/// A cache of so many blocks in front of a disk with a journal.
fn ordered(blocks: u32) -> (Arc<Region>, Arc<Disk>, DiskCache<Arc<Region>>) {
    let plan = CachePlan::cut(blocks, 512, DISK_BLOCKS, 16);
    let region = Arc::new(Region::new(plan.end()));
    let disk = Arc::new(Disk::new(JOURNAL.end(), 512));
    lay_out_journal(&InTurn(disk.clone()), JOURNAL, spec().uuid).unwrap();
    format_ordered(JOURNAL.capacity, Checksums::Absent, &*region, &spec(), Contents::Zeroed).unwrap();
    let cache = open(&region, &disk);
    (region, disk, cache)
}

/// A group to its end: blocks that turned clean.
fn bring(cache: &DiskCache<Arc<Region>>) -> u32 {
    let mut cleaned = 0;
    loop {
        let progress = cache.destage_step(3);
        assert_eq!((&progress.failed[..], &progress.flush_failed), (&[][..], &None));
        cleaned += progress.cleaned;
        if !progress.more {
            return cleaned;
        }
    }
}

/// What the disk shows without its cache.
fn alone(disk: &Disk, lbas: [u64; 2]) -> [u8; 2] {
    let disk = Arc::new(Disk::from_image(disk.visible(), 512));
    recover_disk(&InTurn(disk.clone())).unwrap().unwrap();
    lbas.map(|lba| read(&*disk, lba))
}

#[test]
fn a_group_is_what_was_dirty_and_then_everything_is_clean() {
    let (region, disk, cache) = ordered(8);
    (0..6).for_each(|lba| write(&cache, 2 * lba, 1));
    assert_eq!(bring(&cache), 6);
    assert_eq!((cache.dirty_blocks(), cache.fill().free), (0, 2));
    assert!((0..6).all(|lba| read(&*disk, 2 * lba) == 1));
    assert_eq!(bring(&cache), 0, "nothing is left");
    assert_eq!(find_journal(&InTurn(disk)).unwrap().unwrap().blocks, 0);
    assert_eq!(check(&*region).unwrap().findings, []);
}

#[test]
fn what_is_written_while_a_group_is_under_way_comes_with_the_next() {
    let (_, disk, cache) = ordered(12);
    (0..5).for_each(|lba| write(&cache, lba, 1));
    assert!(cache.destage_step(3).more);
    write(&cache, 0, 2);
    write(&cache, 0, 3);
    write(&cache, 9, 3);
    assert_eq!(cache.fill().free, 12 - 6 - 1, "one older content is kept");
    assert_eq!([read(&cache, 0), read(&cache, 9)], [3, 3]);
    assert_eq!(alone(&disk, [0, 4]), [0, 0]);
    assert_eq!(bring(&cache), 4);
    assert_eq!([read(&*disk, 0), read(&*disk, 4), read(&*disk, 9)], [1, 1, 0]);
    assert_eq!((cache.dirty_blocks(), cache.fill().free), (2, 6));
    assert_eq!(bring(&cache), 2);
    assert_eq!([read(&*disk, 0), read(&*disk, 9)], [3, 3]);
}

#[test]
fn a_block_that_the_disk_refuses_stops_what_comes_behind_it() {
    let (region, disk, cache) = ordered(8);
    (0..4).for_each(|lba| write(&cache, lba, 1));
    disk.fail(DiskFault::WriteFails(1..2));
    let progress = loop {
        let progress = cache.destage_step(1);
        if !progress.more {
            break progress;
        }
    };
    assert_eq!(progress.failed.first().map(|(lba, _)| *lba), Some(Lba(1)));
    write(&cache, 0, 2);
    assert!(!cache.destage_step(8).more && cache.dirty_blocks() == 4);
    disk.mend();
    assert_eq!(alone(&disk, [0, 1]), [1, 1], "the journal has all of the group");
    drop(cache);
    let cache = open(&region, &disk);
    assert_eq!(read(&cache, 0), 2);
    bring(&cache);
    assert_eq!([read(&*disk, 0), read(&*disk, 1), cache.dirty_blocks().try_into().unwrap()], [2, 1, 0]);
}

/// A disk one of whose flushes fails.
struct FailsOnce {
    disk: Arc<Disk>,
    /// Flushes until then.
    flushes: AtomicU32,
}

impl BlockDevice for FailsOnce {
    tidegate_media::forward!(self => self.disk; geometry, read, write, discard, write_zeroes, extent);

    fn flush(&self) -> Result<()> {
        if self.flushes.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.disk.fail(DiskFault::NextFlushFails);
        }
        self.disk.flush()
    }
}

/// Each of the four flushes of a group fails once. What it covered is lost to later ones.
#[test]
fn what_a_failed_flush_covered_is_written_again() {
    for flush in 0..4 {
        let (region, disk, cache) = ordered(8);
        drop(cache);
        // An opening flushes, looks at the journal, and flushes what it says there.
        let failing = InTurn(FailsOnce { disk: disk.clone(), flushes: AtomicU32::new(3 + flush) });
        let cache = DiskCache::open(region, Arc::new(failing), Options::default()).unwrap();
        (0..4).for_each(|lba| write(&cache, lba, 1));
        let failed = loop {
            let progress = cache.destage_step(2);
            if !progress.more {
                break progress;
            }
        };
        assert!(failed.flush_failed.is_some() || !failed.failed.is_empty(), "flush {flush}");
        assert_eq!(cache.dirty_blocks(), 4, "flush {flush}");
        write(&cache, 0, 2);
        assert_eq!(bring(&cache), 3, "flush {flush}");
        let durable = Arc::new(Disk::from_image(disk.cut().least().clone(), 512));
        assert_eq!(alone(&durable, [0, 3]), [1, 1], "flush {flush}");
        assert_eq!(bring(&cache), 1);
    }
}

/// Each write of a group is refused for a while.
#[test]
fn what_the_disk_refused_of_the_journal_is_written_again() {
    for at in [JOURNAL.records_at(), JOURNAL.data_at() + 1, JOURNAL.header_at(0), JOURNAL.header_at(1)] {
        let (_, disk, cache) = ordered(8);
        (0..4).for_each(|lba| write(&cache, lba, 1));
        disk.fail(DiskFault::WriteFails(at..at + 1));
        while cache.destage_step(8).more {}
        assert_eq!(cache.dirty_blocks(), 4, "block {at} of the disk");
        disk.mend();
        assert_eq!(bring(&cache), 4);
        assert_eq!(alone(&disk, [0, 3]), [1, 1]);
    }
}

#[test]
fn modes_that_write_through_have_it_on_the_disk_when_they_answer() {
    let (_, disk, cache) = ordered(8);
    write(&cache, 7, 1);
    for (mode, tag) in [(Mode::WriteThrough, 2), (Mode::WriteAround, 3), (Mode::PassThrough, 4)] {
        cache.set_mode(mode);
        write(&cache, 5, tag);
        assert_eq!(alone(&disk, [7, 5]), [1, tag], "{mode}");
    }
    disk.fail(DiskFault::WriteFails(5..6));
    assert!(cache.write(Lba(5), &block(9), Durability::Volatile).is_err());
    assert_eq!(read(&cache, 5), 9, "it is dirty, and safe");
}

#[test]
fn a_writer_without_room_brings_a_group_to_the_disk() {
    let (region, disk, cache) = ordered(6);
    for tag in 1..5 {
        (0..30).for_each(|lba| write(&cache, lba, tag));
    }
    assert!((0..30).all(|lba| read(&cache, lba) == 4));
    while cache.dirty_blocks() > 0 {
        bring(&cache);
    }
    assert!((0..30).all(|lba| read(&*disk, lba) == 4));
    assert_eq!(check(&*region).unwrap().findings, []);
}

#[test]
fn a_journal_that_is_gone_or_another_is_not_written_to() {
    let (region, disk, cache) = ordered(8);
    drop(cache);
    (0..2).for_each(|sequence| write(&*disk, JOURNAL.header_at(sequence), 0));
    let cache = open(&region, &disk);
    write(&cache, 0, 1);
    let progress = cache.destage_step(8);
    assert!(matches!(progress.failed[..], [(_, Error::Corrupt(_))]) && !progress.more, "{progress:?}");
    lay_out_journal(&InTurn(disk.clone()), JOURNAL, [8; 16]).unwrap();
    assert!(!cache.destage_step(8).failed.is_empty(), "it is another cache's");
    assert_eq!((cache.dirty_blocks(), read(&cache, 0), read(&*disk, 0)), (1, 1, 0));
}

#[test]
fn a_damaged_group_is_not_put_in_place() {
    for at in [JOURNAL.records_at(), JOURNAL.data_at(), JOURNAL.data_at() + 3] {
        let (_, disk, cache) = ordered(8);
        (0..4).for_each(|lba| write(&cache, lba, 1));
        cache.destage_step(8);
        drop(cache);
        assert_eq!(find_journal(&InTurn(disk.clone())).unwrap().unwrap().blocks, 4);
        write(&*disk, at, 0x55);
        assert!(matches!(recover_disk(&InTurn(disk.clone())), Err(Error::Corrupt(_))), "block {at}");
        assert!((0..4).all(|lba| read(&*disk, lba) == 0), "nothing was written");
    }
    assert_eq!(recover_disk(&InTurn(disk())).unwrap(), None, "there is no journal");
}

/// What is wrong with a group in its journal.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Changed(u64),
    Unreadable(u64),
}

/// A cache that was killed amid a group of blocks 0 to 3, two of which it has anew; and the disk,
/// whose journal does not give the group back.
fn killed_amid_a_damaged_group(wrong: Wrong) -> (Arc<Region>, Arc<Disk>) {
    let (region, disk, cache) = ordered(10);
    (0..4).for_each(|lba| write(&cache, lba, 1));
    assert!(cache.destage_step(8).more, "the group counts");
    (2..6).for_each(|lba| write(&cache, lba, 2));
    drop(cache);
    let disk = Arc::new(Disk::from_image(disk.cut().least().clone(), 512));
    match wrong {
        Wrong::Changed(at) => {
            write(&*disk, at, 0x55);
            disk.flush().unwrap();
        }
        Wrong::Unreadable(at) => disk.fail(DiskFault::ReadFails(at..at + 1)),
    }
    (region, disk)
}

fn wrongs() -> [Wrong; 5] {
    [
        Wrong::Changed(JOURNAL.records_at()),
        Wrong::Changed(JOURNAL.data_at()),
        Wrong::Changed(JOURNAL.data_at() + 3),
        Wrong::Unreadable(JOURNAL.records_at()),
        Wrong::Unreadable(JOURNAL.data_at() + 2),
    ]
}

#[test]
fn what_the_journal_does_not_give_back_is_made_a_group_anew_from_the_memory() {
    for wrong in wrongs() {
        let (region, disk) = killed_amid_a_damaged_group(wrong);
        let cache = open(&region, &disk);
        assert_eq!(bring(&cache), 6, "{wrong:?}");
        disk.mend();
        assert_eq!((alone(&disk, [0, 3]), alone(&disk, [1, 5])), ([1, 2], [1, 2]), "{wrong:?}");
        write(&cache, 0, 3);
        assert_eq!((bring(&cache), read(&*disk, 0)), (1, 3), "{wrong:?}");
    }
}

/// The power fails at each access on that way: the disk alone says that it cannot be put in order,
/// or is; the next process goes on from its memory.
#[test]
fn a_cut_while_a_damaged_group_is_replaced_leaves_it_damaged_or_the_new_one_whole() {
    for wrong in wrongs() {
        for accesses in 0..40 {
            let (region, disk) = killed_amid_a_damaged_group(wrong);
            let ending = Intercepted { device: disk.clone(), by: Ending::after(accesses) };
            let opened = DiskCache::open(region.clone(), Arc::new(InTurn(ending)), Options::default());
            let cache = opened.expect("the disk is not needed for it");
            while cache.destage_step(3).more {}
            drop(cache);
            disk.mend();
            for image in disk.cut().images(1 << 16).unwrap() {
                let left = Arc::new(Disk::from_image(image, 512));
                let when = format!("{wrong:?}, {accesses} accesses");
                let apart = Arc::new(Disk::from_image(left.visible(), 512));
                match recover_disk(&InTurn(apart.clone())) {
                    // The old one is whole if the fault was only for a while, or where a block was
                    // written anew that is the same in both.
                    Ok(_) => {
                        let shown = [0, 1, 2, 3, 4, 5].map(|lba| read(&*apart, lba));
                        assert!([[1, 1, 1, 1, 0, 0], [1, 1, 2, 2, 2, 2]].contains(&shown), "{when}: {shown:?}");
                    }
                    Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{when}"),
                }
                let cache = open(&Arc::new(Region::from_image(region.visible())), &left);
                bring(&cache);
                assert_eq!((alone(&left, [0, 3]), alone(&left, [1, 5])), ([1, 2], [1, 2]), "{when}");
            }
        }
    }
}

/// One of the two headers cannot be read: the other tells of a group, or may be behind it.
#[test]
fn a_header_that_cannot_be_read_stops_nothing_where_the_other_tells_of_a_group() {
    let (region, disk, cache) = ordered(8);
    (0..4).for_each(|lba| write(&cache, lba, 1));
    assert!(cache.destage_step(8).more, "the group counts");
    drop(cache);
    let [even, odd] = [0, 1].map(|sequence| JOURNAL.header_at(sequence));
    let told = if read_word(&disk, even) > read_word(&disk, odd) { even } else { odd };
    let other = even + odd - told;
    for (at, goes_on) in [(other, true), (told, false)] {
        let disk = Arc::new(Disk::from_image(disk.visible(), 512));
        disk.fail(DiskFault::ReadFails(at..at + 1));
        let cache = open(&region, &disk);
        assert_eq!((read(&*disk, 0) == 1, read(&*disk, 3) == 1), (goes_on, goes_on), "the opening puts it in place");
        write(&cache, 0, 2);
        assert_eq!(cache.destage_step(8).failed.is_empty(), goes_on);
        disk.mend();
        while cache.dirty_blocks() > 0 {
            bring(&cache);
        }
        assert_eq!(alone(&disk, [0, 3]), [2, 1]);
    }
}

/// The sequence of the header in block `at`.
fn read_word(disk: &Disk, at: u64) -> u64 {
    let mut block = block(0);
    disk.read(Lba(at), &mut block).unwrap();
    u64::from_le_bytes(block[32..40].try_into().unwrap())
}

#[test]
fn a_damaged_group_of_which_the_memory_lacks_a_block_is_left_and_the_block_named() {
    let (_, disk) = killed_amid_a_damaged_group(Wrong::Changed(JOURNAL.data_at()));
    let region = Arc::new(Region::new(CachePlan::cut(10, 512, DISK_BLOCKS, 16).end()));
    format_ordered(JOURNAL.capacity, Checksums::Absent, &*region, &spec(), Contents::Zeroed).unwrap();
    let before = disk.visible().hash();
    let cache = open(&region, &disk);
    [0, 1, 3].into_iter().for_each(|lba| write(&cache, lba, 7));
    for _twice in 0..2 {
        let progress = cache.destage_step(8);
        let (lba, error) = &progress.failed[0];
        assert!(*lba == Lba(2) && error.to_string().contains("not block 2; of the journal: "), "{error}");
        assert!(!progress.more);
    }
    assert_eq!((cache.dirty_blocks(), disk.visible().hash()), (3, before));
    write(&cache, 2, 7);
    assert_eq!(bring(&cache), 4, "the memory has it now");
    assert_eq!(alone(&disk, [0, 3]), [7, 7]);
}

/// A block of a group cannot be read, or has changed, once the group is in the journal.
#[test]
fn what_the_memory_does_not_give_back_of_a_group_that_counts_comes_from_the_journal() {
    for steps in [1, 2, 3] {
        let (region, disk, cache) = ordered(8);
        (0..4).for_each(|lba| write(&cache, lba, 1));
        assert!(cache.destage_step(4).more, "the group counts");
        write(&cache, 1, 2);
        let at = CachePlan::cut(8, 512, DISK_BLOCKS, 16).data_at;
        region.poison(at, 4 * 512, PoisonedStore::Heals);
        let cleaned: u32 = (0..9).map(|_| cache.destage_step(steps)).map(|progress| progress.cleaned).sum();
        assert!((3..=4).contains(&cleaned), "{cleaned}, steps of {steps}");
        assert_eq!([0, 2, 3].map(|lba| read(&*disk, lba)), [1; 3]);
        assert_eq!([0, 2, 3].map(|lba| read(&cache, lba)), [1; 3], "the disk stands in for what is clean");
    }
}

#[test]
fn a_cache_grows_no_larger_than_its_journal() {
    let (_, disk, cache) = ordered(8);
    write(&cache, 0, 1);
    bring(&cache);
    let (region, _) = cache.into_parts();
    let larger = Arc::new(Region::new(CachePlan::cut(17, 512, DISK_BLOCKS, 16).end()));
    let mut bytes = vec![0; usize::try_from(region.len()).unwrap()];
    region.read(0, &mut bytes).unwrap();
    larger.write(0, &bytes);
    let wish = NewLayout { disk: spec().disk, disk_blocks: DISK_BLOCKS, region_bytes: larger.len() };
    let identity = lay_out_anew(larger.clone(), &wish).unwrap();
    assert_eq!((identity.blocks, identity.journal_blocks), (16, 16));
    let cache = open(&larger, &disk);
    write(&cache, 0, 2);
    assert_eq!(bring(&cache), 1);
}

/// A killed process has left a header in the disk's cache only, or a flush fails that covers one: a
/// recovery makes its own durable before anything rests on it.
#[test]
fn a_recovery_believes_no_header_that_a_cut_may_take_back() {
    for flush in 0..4 {
        let (region, disk, cache) = ordered(8);
        (0..4).for_each(|lba| write(&cache, lba, 1));
        assert!(cache.destage_step(8).more, "the group counts");
        drop(cache);
        let failing = InTurn(FailsOnce { disk: disk.clone(), flushes: AtomicU32::new(flush) });
        let cache = DiskCache::open(region, Arc::new(failing), Options::default()).unwrap();
        (4..8).for_each(|lba| write(&cache, lba, 2));
        assert!(cache.destage_step(8).more, "the next group is in the journal");
        let durable = Arc::new(Disk::from_image(disk.cut().least().clone(), 512));
        assert_eq!(alone(&durable, [0, 3]), [1, 1], "flush {flush}");
    }
}

/// Every image that a power cut may leave of `disk` now shows blocks 0 and 3 alike.
fn assert_together(disk: &Disk, when: &str) {
    for image in disk.cut().images(1 << 16).unwrap() {
        let [first, last] = alone(&Disk::from_image(image, 512), [0, 3]);
        assert_eq!(first, last, "{when}");
    }
}

/// A flush failed that covered the header of a group: it can be read, and never becomes durable.
/// The process is killed, and the power fails in the next one, or in a replay without the memory.
#[test]
fn a_recovery_puts_nothing_in_place_by_a_header_that_never_becomes_durable() {
    for accesses in 0..24 {
        for with_memory in [true, false] {
            let (region, disk, cache) = ordered(8);
            drop(cache);
            let failing = InTurn(FailsOnce { disk: disk.clone(), flushes: AtomicU32::new(3 + 1) });
            let cache = DiskCache::open(region.clone(), Arc::new(failing), Options::default()).unwrap();
            (0..4).for_each(|lba| write(&cache, lba, 1));
            assert!(!cache.destage_step(8).failed.is_empty(), "the header's flush fails");
            drop(cache);
            assert_eq!(find_journal(&InTurn(disk.clone())).unwrap().unwrap().blocks, 4);
            let ending = InTurn(Intercepted { device: disk.clone(), by: Ending::after(accesses) });
            // They fail as a rule.
            match with_memory {
                true => drop(DiskCache::open(region, Arc::new(ending), Options::default())),
                false => drop(recover_disk(&ending)),
            }
            assert_together(&disk, &format!("{accesses} accesses, with the memory: {with_memory}"));
        }
    }
}

#[test]
fn the_memory_gives_a_block_back_no_more_and_the_next_group_is_made_without_it() {
    let (region, disk, cache) = ordered(8);
    (0..4).for_each(|lba| write(&cache, lba, 1));
    let at = CachePlan::cut(8, 512, DISK_BLOCKS, 16).data_at;
    region.poison(at, 8 * 512, PoisonedStore::Heals);
    let progress = cache.destage_step(8);
    assert!(!progress.failed.is_empty() && !progress.more, "{progress:?}");
    assert_eq!(cache.dirty_blocks(), 4);
    (0..4).for_each(|lba| write(&cache, lba, 2));
    while cache.dirty_blocks() > 0 {
        bring(&cache);
    }
    assert_eq!(alone(&disk, [0, 3]), [2, 2]);
}

#[test]
fn headers_of_another_block_size_do_not_count_any_more() {
    let disk = Arc::new(Disk::new(4096, 512));
    let large = JournalPlan::at_the_end(65536, 32, 4).unwrap();
    let at_large = Arc::new(Disk::from_image(disk.visible(), 65536));
    (0..5).for_each(|turn| lay_out_journal(&InTurn(at_large.clone()), large, [turn; 16]).unwrap());
    let disk = Arc::new(Disk::from_image(at_large.visible(), 512));
    let small = JournalPlan::at_the_end(512, 4096, 400).unwrap();
    lay_out_journal(&InTurn(disk.clone()), small, [9; 16]).unwrap();
    let found = find_journal(&InTurn(disk.clone())).unwrap().unwrap();
    assert_eq!((found.uuid, found.block_size), ([9; 16], 512));
    erase_journal(&InTurn(disk.clone()), small, [9; 16]).unwrap();
    assert!(find_journal(&InTurn(disk)).unwrap().is_none_or(|found| found.block_size == 65536));
}

#[test]
fn a_journal_is_room_for_its_own_cache_only() {
    let disk = Arc::new(Disk::new(JOURNAL.end(), 512));
    let disk = InTurn(disk);
    assert!(has_room_for(&disk, &JOURNAL, [9; 16]).unwrap());
    lay_out_journal(&disk, JOURNAL, [9; 16]).unwrap();
    assert!(has_room_for(&disk, &JOURNAL, [9; 16]).unwrap());
    assert!(!has_room_for(&disk, &JOURNAL, [8; 16]).unwrap(), "it is that of a cache which may need it");
    erase_journal(&disk, JOURNAL, [8; 16]).unwrap();
    assert_eq!(find_journal(&disk).unwrap().unwrap().uuid, [9; 16], "nobody erases another's");
    erase_journal(&disk, JOURNAL, [9; 16]).unwrap();
    assert_eq!(find_journal(&disk).unwrap(), None);
    assert!(has_room_for(&disk, &JOURNAL, [8; 16]).unwrap());
}

#[test]
fn a_cut_while_a_journal_is_erased_leaves_it_without_a_group_or_none() {
    let plan = JournalPlan { capacity: 4, ..JOURNAL };
    let (mut left, mut gone) = (0, 0);
    for accesses in 0..16 {
        let disk = Arc::new(Disk::new(plan.end(), 512));
        lay_out_journal(&InTurn(disk.clone()), plan, [9; 16]).unwrap();
        (plan.records_at()..plan.header_at(0)).for_each(|block| write(&*disk, block, 7));
        disk.flush().unwrap();
        let ending = InTurn(Intercepted { device: disk.clone(), by: Ending::after(accesses) });
        // It fails as a rule.
        let _ = erase_journal(&ending, plan, [9; 16]);
        for image in disk.cut().images(1 << 16).unwrap() {
            let found = find_journal(&InTurn(Arc::new(Disk::from_image(image.clone(), 512)))).unwrap();
            match found {
                Some(found) => assert_eq!((found.uuid, found.blocks), ([9; 16], 0), "{accesses} accesses"),
                None => gone += 1,
            }
            left += u32::from(found.is_some());
            let again = InTurn(Arc::new(Disk::from_image(image, 512)));
            erase_journal(&again, plan, [9; 16]).unwrap();
            assert!(has_room_for(&again, &plan, [8; 16]).unwrap());
        }
    }
    assert!(left > 0 && gone > 0, "{left} images with it, {gone} without");
}

/// A disk of sectors with a journal of 4096-byte blocks, amid a group or not; some of its last 256
/// sectors cannot be read.
#[test]
fn a_sector_that_cannot_be_read_matters_only_if_the_header_that_counts_may_lie_there() {
    let sectors = 4096;
    let plan = JournalPlan::at_the_end(4096, sectors / 8, 4).unwrap();
    for group in [false, true] {
        let large = Arc::new(Disk::new(plan.end(), 4096));
        lay_out_journal(&InTurn(large.clone()), plan, [7; 16]).unwrap();
        if group {
            let block = [1; 4096];
            let records = [JournalRecord::of(3, &block)];
            large.write(Lba(plan.data_at()), &block, Durability::Volatile).unwrap();
            let mut bytes = vec![0; 4096];
            bytes[..16].copy_from_slice(records[0].as_bytes());
            large.write(Lba(plan.records_at()), &bytes, Durability::Volatile).unwrap();
            let sum = JournalRecord::sum_of_all(&records);
            let told = TrustedJournal { plan, uuid: [7; 16], sequence: 8, blocks: 1, records_sum: sum };
            bytes.fill(0);
            bytes[..128].copy_from_slice(told.header().as_bytes());
            large.write(Lba(plan.header_at(8)), &bytes, Durability::Volatile).unwrap();
        }
        let headers = [8, 16].map(|back| sectors - back);
        for bad in sectors - 256..sectors {
            let disk = Arc::new(Disk::from_image(large.visible(), 512));
            disk.fail(DiskFault::ReadFails(bad..bad + 1));
            let recovered = recover_disk(&InTurn(disk.clone()));
            let needed = match group {
                false => headers.contains(&bad),
                true => {
                    bad == plan.header_at(8) * 8 || (plan.records_at() * 8..(plan.data_at() + 1) * 8).contains(&bad)
                }
            };
            assert_eq!(recovered.is_err(), needed, "sector {bad}, amid a group: {group}: {recovered:?}");
            if let Ok(found) = recovered {
                disk.mend();
                assert_eq!((found.unwrap().blocks > 0, read(&*disk, 31) == 1), (group, group), "sector {bad}");
            }
        }
    }
}
