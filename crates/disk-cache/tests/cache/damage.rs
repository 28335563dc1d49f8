//! Memory that loses stores, cannot be read, or changed: what is noticed, what it costs, and what
//! goes on.

use super::*;
use std::thread;
use tidegate_media::Sealed;
use tidegate_sim::{InterceptMemory, InterceptedMemory};

/// A region with checksums, and where its blocks begin.
pub(crate) fn region_with_sums(blocks: u32) -> (Arc<Region>, u64) {
    let plan = CachePlan::cut_with(Checksums::Kept, blocks, 512, DISK_BLOCKS, 16);
    let region = Arc::new(Region::new(plan.end()));
    format_with(Checksums::Kept, &*region, &spec(), Contents::Zeroed).unwrap();
    let identity = identify(&*region).unwrap().unwrap();
    assert_eq!((identity.blocks, identity.sums), (blocks, Checksums::Kept));
    (region, plan.data_at)
}

/// Changes a bit in each block of the region that begins with `tag`.
fn spoil(region: &Arc<Region>, data_at: u64, tag: u8) -> Arc<Region> {
    let mut image: Image = region.visible();
    for at in (data_at..image.len()).step_by(BLOCK) {
        let mut bytes = [0; 8];
        image.read(at, &mut bytes);
        if bytes == [tag; 8] {
            image.write(at + 4, &[tag ^ 1]);
        }
    }
    Arc::new(Region::from_image(image))
}

pub(crate) fn scrub(cache: &DiskCache<Arc<Region>>) -> (u64, Vec<Lba>) {
    let (mut sound, mut damaged, mut next) = (0, Vec::new(), Some(0));
    while let Some(from) = next {
        let step = cache.scrub_step(from, 3);
        sound += step.sound;
        damaged.extend(step.damaged.into_iter().map(|(lba, _)| lba));
        next = step.next;
    }
    (sound, damaged)
}

#[test]
fn a_changed_bit_is_noticed_named_and_kept_from_the_disk() {
    let ((region, data_at), disk) = (region_with_sums(8), disk());
    write(&*disk, 5, 50);
    let cache = open(&region, &disk);
    cache.write(Lba(1), &[block(1), block(2), block(3)].concat(), Durability::Volatile).unwrap();
    write(&cache, 9, 4);
    assert_eq!(read(&cache, 5), 50);
    assert_eq!(scrub(&cache), (5, vec![]));
    drop(cache);
    let region = [2, 50].into_iter().fold(region, |region, tag| spoil(&region, data_at, tag));
    let cache = open(&region, &disk);
    assert_eq!(scrub(&cache), (3, vec![Lba(2), Lba(5)]));
    assert_eq!([1, 3, 9, 5].map(|lba| read(&cache, lba)), [1, 3, 4, 50], "the disk stands in for a clean one");
    let told = cache.read(Lba(2), &mut block(0)).unwrap_err();
    assert!(matches!(&told, Error::Corrupt(corrupt) if corrupt.found.contains("block 2 of the disk")), "{told}");
    let progress = cache.destage_step(8);
    assert_eq!((progress.cleaned, progress.failed.len(), progress.failed[0].0), (3, 1, Lba(2)));
    assert_eq!((read(&*disk, 2), cache.dirty_blocks()), (0, 1));
    write(&cache, 2, 7);
    assert_eq!((read(&cache, 2), scrub(&cache).0), (7, 4));
    assert!(cache.counters().damaged >= 5);
}

#[test]
fn a_scrub_without_checksums_finds_what_cannot_be_read() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    (0..3).for_each(|lba| write(&cache, lba, 1));
    assert!(!cache.keeps_sums());
    assert_eq!(scrub(&cache), (3, vec![]));
    region.poison(region.visible().len() - 8 * 512 + 512, 1, PoisonedStore::Kept);
    assert_eq!(scrub(&cache), (2, vec![Lba(1)]));
}

/// Poisons the line of `entry`.
fn poison_entry(region: &Region, entry: u64) {
    let entries_at = 12288 + 16 * 16;
    region.poison(entries_at + entry * 16, 16, PoisonedStore::Lost);
}

#[test]
fn entries_that_cannot_be_read_cost_their_blocks_and_no_more() {
    let (region, disk) = (region(16), disk());
    (0..10).for_each(|lba| write(&*disk, lba, 50));
    let cache = open(&region, &disk);
    (0..4).for_each(|lba| write(&cache, lba, 1));
    cache.write(Lba(4), &[2; 4 * BLOCK], Durability::Volatile).unwrap();
    (8..10).for_each(|lba| write(&cache, lba, 3));
    drop(cache);
    // Entries 4 to 7 are those of the transaction, which the ring still names.
    poison_entry(&region, 5);
    let report = check(&*region).unwrap();
    let [Finding::Lost(lost)] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((&lost.entries[..], &lost.named[..]), (&[4, 5, 6, 7][..], &[Lba(4), Lba(5), Lba(6), Lba(7)][..]));
    assert!(report.opens() && report.dirty == 6);
    let cache = open(&region, &disk);
    assert_eq!(cache.lost(), lost);
    assert_eq!([0, 3, 8, 9].map(|lba| read(&cache, lba)), [1, 1, 3, 3]);
    assert_eq!([4, 7].map(|lba| read(&cache, lba)), [50, 50], "as the disk has them");
    // The region takes more than it has room for, and is never sealed.
    (0..DISK_BLOCKS).for_each(|lba| write(&cache, lba, 9));
    assert!((0..DISK_BLOCKS).all(|lba| read(&cache, lba) == 9));
    assert!(cache.fill().clean + cache.fill().dirty <= 12);
}

#[test]
fn what_a_transaction_left_in_the_ring_is_applied_around_a_line_that_cannot_be_read() {
    let (region, disk) = (region(16), disk());
    let cache = open(&region, &disk);
    let mut transaction = cache.begin();
    (0..8).for_each(|lba| transaction.write(Lba(lba), &block(7)).unwrap());
    transaction.commit().unwrap();
    // Of what a commit stores after its last fence nothing has arrived: the entries are free, and
    // the ring knows better.
    let image = region.cut().least().clone();
    let region = Arc::new(Region::from_image(image));
    poison_entry(&region, 0);
    let cache = open(&region, &disk);
    assert_eq!(cache.lost().named.len(), 4);
    let kept = (0..8).filter(|lba| read(&cache, *lba) == 7).count();
    assert_eq!(kept, 4);
    assert_eq!(cache.dirty_blocks(), 4);
}

#[test]
fn a_line_that_cannot_be_read_and_named_nothing_costs_room_only() {
    let (region, disk) = (region(8), disk());
    write(&open(&region, &disk), 1, 1);
    poison_entry(&region, 4);
    let cache = open(&region, &disk);
    let named_before: &[Lba] = &[];
    assert_eq!((&cache.lost().entries[..], &cache.lost().named[..]), (&[4, 5, 6, 7][..], named_before));
    assert!(cache.lost().to_string().contains("the ring knows none"));
    assert_eq!((read(&cache, 1), cache.fill().free), (1, 3));
}

#[test]
fn a_live_scrub_names_blocks_whose_entries_cannot_be_read() {
    let (region, disk) = (region(8), disk());
    let cache = open(&region, &disk);
    (0..6).for_each(|lba| write(&cache, lba, 1));
    poison_entry(&region, 4);
    assert_eq!(scrub(&cache), (4, vec![Lba(4), Lba(5)]));
    assert_eq!(cache.scrub_step(0, 8).lost, 0);
    drop(cache);
    let cache = open(&region, &disk);
    assert_eq!(scrub(&cache), (4, vec![]));
    assert_eq!(cache.scrub_step(0, 8).lost, 4, "the next opening does not know what they named");
}

#[test]
fn a_cache_whose_entries_are_all_lost_fails_writes_and_ends_them() {
    let (region, disk) = (region(8), disk());
    drop(open(&region, &disk));
    [0, 4].into_iter().for_each(|entry| poison_entry(&region, entry));
    let cache = open(&region, &disk);
    let answer = cache.write(Lba(1), &block(1), Durability::Volatile);
    assert!(matches!(answer, Err(Error::Media(_))), "{answer:?}");
    assert_eq!(read(&cache, 1), 0);
}

#[test]
fn a_region_that_has_lost_a_store_still_lets_the_disk_be_read() {
    let (region, disk) = (region(8), disk());
    (0..40).for_each(|lba| write(&*disk, lba, u8::try_from(lba).unwrap()));
    let cache = open(&region, &disk);
    write(&cache, 1, 7);
    region.poison(region.visible().len() - 512, 1, PoisonedStore::Lost);
    let lost = (2..40).find(|lba| cache.write(Lba(*lba), &block(9), Durability::Volatile).is_err());
    assert!(lost.is_some());
    for lba in lost.unwrap() + 1..40 {
        assert_eq!(u64::from(read(&cache, lba)), lba, "whether there is room or not");
    }
    assert_eq!(read(&cache, 1), 7);
}

/// Its entries may come back as they were: what the disk got since would be hidden by them.
#[test]
fn nothing_goes_past_a_region_that_has_lost_a_store() {
    let (region, disk) = (region(8), disk());
    let cache = open_with(&region, &disk, Options { mode: Mode::PassThrough, ..Options::default() });
    write(&cache, 30, 1);
    assert_eq!(read(&*disk, 30), 1);
    region.poison(region.visible().len() - 8 * 512, 8 * 512, PoisonedStore::Lost);
    cache.set_mode(Mode::WriteBack);
    assert!(cache.write(Lba(1), &block(7), Durability::Volatile).is_err());
    cache.set_mode(Mode::PassThrough);
    let answer = cache.write(Lba(30), &block(9), Durability::Volatile);
    assert!(matches!(answer, Err(Error::Sealed(_))), "{answer:?}");
    assert_eq!(read(&*disk, 30), 1);
}

/// A memory that loses a store while the second fence is under way, and not before another writer
/// has passed its first.
struct LosesBetween {
    fences: AtomicU32,
    second: Barrier,
}

/// A line that nothing else is about.
const UNUSED: u64 = 512;

impl InterceptMemory for LosesBetween {
    fn fence<R: tidegate_media::Region + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        if self.fences.fetch_add(1, Ordering::SeqCst) == 1 {
            self.second.wait();
            while self.fences.load(Ordering::SeqCst) < 3 {
                thread::yield_now();
            }
            memory.write(UNUSED, &[1; 64]);
        }
        memory.fence()
    }
}

/// Both find the block not cached: the second, because the first has failed. Neither may leave an
/// entry behind that the other does not know.
#[test]
fn writers_of_one_block_whose_memory_fails_leave_one_entry_at_most() {
    let (region, disk) = (region(8), disk());
    region.poison(UNUSED, 64, PoisonedStore::Lost);
    // Not while it is opened.
    let by = LosesBetween { fences: AtomicU32::new(100), second: Barrier::new(2) };
    let memory = Arc::new(InterceptedMemory { memory: region.clone(), by });
    let cache = DiskCache::open(memory.clone(), Arc::new(InTurn(disk.clone())), Options::default()).unwrap();
    memory.by.fences.store(0, Ordering::SeqCst);
    thread::scope(|scope| {
        let first = scope.spawn(|| cache.write(Lba(3), &block(1), Durability::Volatile));
        memory.by.second.wait();
        assert!(cache.write(Lba(3), &block(2), Durability::Volatile).is_err());
        assert!(first.join().unwrap().is_err());
    });
    drop(cache);
    let next = Arc::new(Region::after_kill(&region.cut()));
    assert_eq!(check(&*next).unwrap().findings, []);
    let cache = open(&next, &disk);
    assert!(read(&cache, 3) < 2, "the second never got an entry");
}

/// A memory that loses a store before it answers the fence of this number.
struct LosesAt(AtomicU32);

impl InterceptMemory for LosesAt {
    fn fence<R: tidegate_media::Region + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            memory.write(UNUSED, &[1; 64]);
        }
        memory.fence()
    }
}

/// A transaction may count although it was answered with an error. Then all of it does, whatever
/// others try since.
#[test]
fn a_transaction_whose_memory_failed_is_whole_after_a_kill() {
    let mut in_place = 0;
    for fence in 1..=4 {
        let (region, disk) = (region(8), disk());
        let memory = Arc::new(InterceptedMemory { memory: region.clone(), by: LosesAt(AtomicU32::new(1000)) });
        let cache = DiskCache::open(memory.clone(), Arc::new(InTurn(disk.clone())), Options::default()).unwrap();
        (0..8).for_each(|lba| assert_eq!(read(&cache, lba), 0));
        region.poison(UNUSED, 64, PoisonedStore::Lost);
        memory.by.0.store(fence, Ordering::SeqCst);
        let mut transaction = cache.begin();
        [6, 7].into_iter().for_each(|lba| transaction.write(Lba(lba), &block(1)).unwrap());
        let committed = transaction.commit().is_ok();
        assert_eq!(committed, fence > 3, "two fences, and one for room");
        // Whatever needs room would have these two blocks go.
        (10..20).for_each(|lba| drop(cache.write(Lba(lba), &block(2), Durability::Volatile)));
        drop(cache);
        let next = Arc::new(Region::after_kill(&region.cut()));
        assert_eq!(check(&*next).unwrap().findings, []);
        let cache = open(&next, &disk);
        let shown = [6, 7].map(|lba| read(&cache, lba));
        assert!(shown == [0, 0] && !committed || shown == [1, 1], "fence {fence}: {shown:?}");
        in_place += u32::from(shown == [1, 1] && !committed);
    }
    assert!(in_place > 0, "one counts although it failed");
}
