//! When a file-backed device syncs, and the effect of a failed sync.

use super::*;
use crate::block::{Extent, ExtentKind};

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
