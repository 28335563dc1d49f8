//! When a file-backed device syncs, and what a failed sync does.

use super::*;
use crate::block::ExtentKind;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

/// A device that accepts everything and keeps nothing.
struct Sink;

impl BlockDevice for Sink {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: 512,
            blocks: 8,
            atomic_blocks: 1,
            volatile_cache: false,
            read_only: false,
            fast_zeroes: false,
        }
    }
    fn read(&self, _: Lba, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn write(&self, _: Lba, _: &[u8], _: Durability) -> Result<()> {
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, _: LbaRange) -> Result<()> {
        Ok(())
    }
    fn write_zeroes(&self, _: LbaRange, _: Durability) -> Result<()> {
        Ok(())
    }
    fn extent(&self, range: LbaRange) -> Result<Extent> {
        Ok(Extent { blocks: range.blocks, kind: ExtentKind::Data })
    }
}

const RANGE: LbaRange = LbaRange { first: Lba(0), blocks: 1 };

/// A device over a file that cannot be synced: the null device answers EINVAL.
fn unsyncable() -> FileBacked {
    FileBacked::new(Arc::new(Sink), &File::open("/dev/null").expect("opens")).expect("clones")
}

type Act = fn(&FileBacked) -> Result<()>;

const VOLATILE: [Act; 3] = [
    |device| device.write(Lba(0), &[0; 512], Durability::Volatile),
    |device| device.write_zeroes(RANGE, Durability::Volatile),
    |device| device.discard(RANGE),
];

const DURABLE: [Act; 3] = [
    |device| device.write(Lba(0), &[0; 512], Durability::Fua),
    |device| device.write_zeroes(RANGE, Durability::Fua),
    |device| device.flush(),
];

#[test]
fn a_failed_sync_refuses_every_later_write_and_flush_but_no_read() {
    let failed = Err(Sealed::SyncFailed { errno: libc::EINVAL }.into());
    for durable in DURABLE {
        let device = unsyncable();
        for volatile in VOLATILE {
            assert_eq!(volatile(&device), Ok(()), "no sync is asked for");
        }
        assert_eq!(durable(&device), failed);
        for act in VOLATILE.into_iter().chain(DURABLE) {
            assert_eq!(act(&device), failed);
        }
        assert_eq!(device.read(Lba(0), &mut [0; 512]), Ok(()));
    }
}

#[test]
fn a_real_file_syncs() {
    let file = tempfile::tempfile().expect("a file");
    let device = FileBacked::new(Arc::new(Sink), &file).expect("clones");
    for act in VOLATILE.into_iter().chain(DURABLE) {
        assert_eq!(act(&device), Ok(()));
    }
}

#[test]
fn the_geometry_promises_no_more_than_a_disk() {
    let geometry = unsyncable().geometry();
    assert_eq!((geometry.atomic_blocks, geometry.volatile_cache), (0, true));
    assert_eq!((geometry.block_size, geometry.blocks), (512, 8));
}

#[test]
fn one_sync_that_began_after_them_covers_all_who_wait() {
    let (syncs, count) = (Syncs::default(), AtomicUsize::new(0));
    let (entered, release) = (Barrier::new(2), Barrier::new(2));
    let (arrive, arrived) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = syncs.cover(|| {
                entered.wait();
                release.wait();
                Ok(())
            });
            assert_eq!(first, Ok(()));
        });
        entered.wait();
        for _ in 0..4 {
            let (arrive, syncs, count) = (arrive.clone(), &syncs, &count);
            scope.spawn(move || {
                // All four have to have read the count before the first sync ends, or they may need a sync more.
                arrive.send(()).expect("the test listens");
                let covered = syncs.cover(|| {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
                assert_eq!(covered, Ok(()));
            });
        }
        (0..4).for_each(|_| arrived.recv().expect("arrives"));
        release.wait();
    });
    let count = count.into_inner();
    assert!((1..=4).contains(&count), "the running sync covers none of them, {count} syncs followed");
}

#[test]
fn a_waiter_learns_of_the_failure_before_it() {
    let syncs = Syncs::default();
    let failure = syncs.cover(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    let after = syncs.cover(|| panic!("no sync follows a failed one"));
    assert_eq!((failure, after), (Err(Sealed::SyncFailed { errno: 5 }), Err(Sealed::SyncFailed { errno: 5 })));
}
