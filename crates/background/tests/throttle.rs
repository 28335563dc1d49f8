//! Writers of a disk cache whose disk refuses every write are delayed while more is dirty than
//! allowed, and only then.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_background::{Destager, Throttled};
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Options, format};
use tidegate_media::{BlockDevice, Durability, InTurn, Lba, MappedRegion};
use tidegate_policy::writeback::destage::Caps;
use tidegate_sim::{Disk, DiskFault};

thread_local! {
    static PAUSES: RefCell<Vec<Duration>> = const { RefCell::new(Vec::new()) };
}

fn note(pause: Duration) {
    PAUSES.with_borrow_mut(|pauses| pauses.push(pause));
}

fn pauses() -> Duration {
    PAUSES.with_borrow_mut(std::mem::take).iter().sum()
}

#[test]
fn writers_are_delayed_only_while_more_is_dirty_than_allowed() {
    let region = MappedRegion::anonymous(4 << 20).unwrap();
    let spec = FormatSpec { block_size: 4096, disk_blocks: 4096, ring_slots: 1024, uuid: [1; 16], disk: [2; 32] };
    format(&region, &spec, Contents::Zeroed).unwrap();
    let disk = Arc::new(Disk::new(4096, 4096));
    let cache = Arc::new(DiskCache::open(region, Arc::new(InTurn(disk.clone())), Options::default()).unwrap());
    let blocks = u64::from(cache.fill().blocks);
    let destager = Arc::new(Destager::start(cache.clone(), Caps::default()).unwrap());
    let device = Throttled::new(cache.clone(), destager.clone(), note);
    let flush = || destager.wait_until(destager.flush(), Instant::now() + Duration::from_secs(60)).unwrap();
    let write = |first: u64, end: u64| {
        (first..end).for_each(|lba| device.write(Lba(lba), &[7; 4096], Durability::Volatile).unwrap());
    };
    // Now it is known how long the disk takes for a block.
    write(0, blocks / 2);
    assert!(flush().is_nothing());
    assert_eq!(pauses(), Duration::ZERO, "little was dirty");
    disk.fail(DiskFault::WriteFails(0..4096));
    write(0, blocks / 2);
    assert_eq!(pauses(), Duration::ZERO, "it is below the limit");
    write(blocks / 2, blocks - 10);
    // Times too short for a sleep are saved up.
    (0..20).for_each(|_| write(0, blocks - 10));
    assert!(pauses() > Duration::ZERO, "nearly all is dirty");
    disk.mend();
    assert!(flush().is_nothing());
    write(0, 10);
    assert_eq!(pauses(), Duration::ZERO, "the disk has everything");
}
