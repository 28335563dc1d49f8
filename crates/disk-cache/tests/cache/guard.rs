//! Disks that somebody wrote to without their cache.

use super::*;
use tidegate_disk_cache::{Guard, NewLayout, lay_out_anew};
use tidegate_media::Region as _;

fn open_guarded(region: &Arc<Region>, disk: &Arc<Disk>, guard: Guard) -> Result<DiskCache<Arc<Region>>, OpenError> {
    DiskCache::open(region.clone(), Arc::new(InTurn(disk.clone())), Options { guard, ..Options::default() })
}

/// A cache that has block 3, clean, and block 40, dirty; and its disk.
fn left() -> (Arc<Region>, Arc<Disk>) {
    let (region, disk) = (region(16), disk());
    let cache = open_guarded(&region, &disk, Guard::Always).unwrap();
    write(&cache, 3, 1);
    assert_eq!(cache.destage_step(8).cleaned, 1);
    write(&cache, 40, 1);
    (region, disk)
}

#[test]
fn a_disk_that_is_as_it_was_left_opens_and_one_that_is_not_does_only_by_force() {
    for changed in 0..4 {
        let (region, disk) = left();
        assert_eq!(open_guarded(&region, &disk, Guard::AsLaidOut).unwrap().changed(), None);
        write(&*disk, changed, 77);
        for guard in [Guard::AsLaidOut, Guard::Always] {
            let refused = open_guarded(&region, &disk, guard).err();
            assert_eq!(refused, Some(OpenError::DiskChanged { lba: changed, dirty: 1, block_size: 512 }));
        }
        assert_eq!((read(&*disk, changed), read(&*disk, 40)), (77, 0), "nothing was written");
        assert_eq!(read(&open_guarded(&region, &disk, Guard::Off).unwrap(), 40), 1);
        let cache = open_guarded(&region, &disk, Guard::Forced).unwrap();
        assert_eq!((cache.changed(), cache.fill().clean), (Some(Lba(changed)), 0));
        assert_eq!((read(&cache, changed), read(&cache, 40)), (77, 1));
        assert_eq!(cache.destage_step(8).cleaned, 1);
        drop(cache);
        assert_eq!(open_guarded(&region, &disk, Guard::Always).unwrap().changed(), None, "that is how it was left");
    }
}

#[test]
fn a_changed_disk_without_dirty_blocks_is_read_as_it_is() {
    let (region, disk) = left();
    let cache = open_guarded(&region, &disk, Guard::Always).unwrap();
    assert_eq!(cache.destage_step(8).cleaned, 1);
    drop(cache);
    write(&*disk, 3, 77);
    let cache = open_guarded(&region, &disk, Guard::AsLaidOut).unwrap();
    assert_eq!((cache.changed(), read(&cache, 3), read(&cache, 40)), (Some(Lba(3)), 77, 1));
    assert_eq!(check(&*region).unwrap().findings, []);
}

#[test]
fn a_clean_block_is_compared_wherever_it_lies() {
    let (region, disk) = (region(16), Arc::new(Disk::new(1 << 12, 512)));
    format(&*region, &FormatSpec { disk_blocks: 1 << 12, ..spec() }, Contents::Unknown).unwrap();
    let cache = open_guarded(&region, &disk, Guard::Always).unwrap();
    write(&cache, 4000, 1);
    assert_eq!(cache.destage_step(8).cleaned, 1);
    write(&cache, 9, 1);
    drop(cache);
    write(&*disk, 3999, 77);
    open_guarded(&region, &disk, Guard::Always).unwrap();
    write(&*disk, 4000, 77);
    let refused = open_guarded(&region, &disk, Guard::Always).err();
    assert_eq!(refused, Some(OpenError::DiskChanged { lba: 4000, dirty: 1, block_size: 512 }));
}

#[test]
fn a_cache_that_nobody_asked_to_compare_its_disk_does_not() {
    let (region, disk) = (region(16), disk());
    write(&open(&region, &disk), 3, 1);
    write(&*disk, 5, 77);
    assert_eq!(open(&region, &disk).changed(), None);
    open_guarded(&region, &disk, Guard::Always).unwrap();
    write(&*disk, 5, 78);
    assert!(open_guarded(&region, &disk, Guard::AsLaidOut).is_err(), "from then on it does");
}

#[test]
fn a_write_that_fails_or_is_not_flushed_leaves_the_disk_in_doubt_and_nothing_else_does() {
    let (region, disk) = left();
    let cache = open_guarded(&region, &disk, Guard::Always).unwrap();
    write(&cache, 5, 2);
    disk.fail(DiskFault::NextFlushFails);
    assert!(cache.destage_step(8).flush_failed.is_some());
    write(&cache, 6, 2);
    disk.fail(DiskFault::WriteFails(6..7));
    assert_eq!(cache.destage_step(8).failed.len(), 1);
    disk.mend();
    drop(cache);
    // Any of both contents may be there.
    write(&*disk, 6, 2);
    let cache = open_guarded(&region, &disk, Guard::Always).unwrap();
    while cache.destage_step(8).more {}
    drop(cache);
    write(&*disk, 6, 77);
    assert_eq!(open_guarded(&region, &disk, Guard::Always).unwrap().changed(), Some(Lba(6)));
}

#[test]
fn a_cache_that_is_laid_out_anew_knows_nothing_of_its_disk() {
    let (region, disk) = left();
    let cache = open_guarded(&region, &disk, Guard::Always).unwrap();
    while cache.destage_step(8).more {}
    drop(cache);
    lay_out_anew(region.clone(), &NewLayout { disk: [8; 32], disk_blocks: DISK_BLOCKS, region_bytes: region.len() })
        .unwrap();
    write(&*disk, 0, 77);
    assert_eq!(open_guarded(&region, &disk, Guard::AsLaidOut).unwrap().changed(), None);
    write(&open_guarded(&region, &disk, Guard::AsLaidOut).unwrap(), 40, 3);
    write(&*disk, 0, 78);
    assert!(open_guarded(&region, &disk, Guard::AsLaidOut).is_err(), "the feature is kept");
}
