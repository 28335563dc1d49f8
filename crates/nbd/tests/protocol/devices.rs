//! Devices that show their requests, and the effects of their failures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_media::{
    BlockDevice, Corrupt, Durability, Error, Extent, ExtentKind, Geometry, Lba, LbaRange, Misuse, Poison, Result,
    Sealed,
};
use tidegate_nbd_client::ram::Ram;

/// A device that writes down each call.
pub(crate) struct Recorder {
    ram: Ram,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// The device, and where it writes.
    pub(crate) fn new(block_size: u32, blocks: u64) -> (Recorder, Arc<Mutex<Vec<String>>>) {
        let calls = Arc::new(Mutex::new(Vec::new()));
        (Recorder { ram: Ram::new(block_size, blocks), calls: Arc::clone(&calls) }, calls)
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

impl BlockDevice for Recorder {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.note(format!("read {}+{}", at.0, out.len()));
        self.ram.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.note(format!("write {}+{} {durability:?}", at.0, data.len()));
        self.ram.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.note("flush".to_owned());
        self.ram.flush()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.note(format!("discard {}..{}", range.first.0, range.end()));
        self.ram.discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.note(format!("zero {}..{} {durability:?}", range.first.0, range.end()));
        self.ram.write_zeroes(range, durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.note(format!("extent {}..{}", range.first.0, range.end()));
        self.ram.extent(range)
    }
}

/// 64 KiB in blocks of 4096 bytes that can be written only after somebody allowed it.
pub(crate) struct Thawing {
    ram: Ram,
    writable: Arc<AtomicBool>,
}

impl Thawing {
    /// The device, and what allows writes.
    pub(crate) fn new() -> (Thawing, Arc<AtomicBool>) {
        let writable = Arc::new(AtomicBool::new(false));
        (Thawing { ram: Ram::new(4096, 16), writable: Arc::clone(&writable) }, writable)
    }

    fn check(&self) -> Result<()> {
        if self.geometry().read_only { Err(Misuse::ReadOnly.into()) } else { Ok(()) }
    }
}

impl BlockDevice for Thawing {
    tidegate_media::forward!(self => self.ram; read, flush, extent);

    fn geometry(&self) -> Geometry {
        Geometry { read_only: !self.writable.load(Ordering::Relaxed), ..self.ram.geometry() }
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.check().and_then(|()| self.ram.write(at, data, durability))
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.check().and_then(|()| self.ram.discard(range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.check().and_then(|()| self.ram.write_zeroes(range, durability))
    }
}

/// A device of 512-byte blocks on which each operation fails in the way that the first block's
/// number says.
pub(crate) struct Failing;

impl Failing {
    fn error(at: Lba) -> Result<()> {
        Err(match at.0 {
            0 => return Ok(()),
            1 => Error::Media(Poison { at: 512, len: 512 }),
            2 => Error::Corrupt(Corrupt { rule: "an entry points into the arena", at: 7, found: "9".repeat(9000) }),
            3 => Error::Sealed(Sealed::StoreLost { at: 3 }),
            4 => Error::Misuse(Misuse::ReadOnly),
            _ => Error::Misuse(Misuse::PartialBlock { len: 1, block_size: 512 }),
        })
    }
}

impl BlockDevice for Failing {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: 512,
            blocks: 4096,
            atomic_blocks: 1,
            volatile_cache: false,
            read_only: false,
            fast_zeroes: false,
        }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        out.fill(0xee);
        Failing::error(at)
    }

    fn write(&self, at: Lba, _: &[u8], _: Durability) -> Result<()> {
        Failing::error(at)
    }

    fn flush(&self) -> Result<()> {
        Err(Sealed::SyncFailed { errno: 5 }.into())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        Failing::error(range.first)
    }

    fn write_zeroes(&self, range: LbaRange, _: Durability) -> Result<()> {
        Failing::error(range.first)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        Failing::error(range.first).map(|()| Extent { blocks: range.blocks, kind: ExtentKind::Data })
    }
}

/// A device of 512-byte blocks without memory, all hole, of any size.
pub(crate) struct Bottomless {
    pub(crate) blocks: u64,
}

impl BlockDevice for Bottomless {
    fn geometry(&self) -> Geometry {
        Geometry { blocks: self.blocks, fast_zeroes: true, ..Failing.geometry() }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.geometry().range(at, out.len())?;
        out.fill(0);
        Ok(())
    }

    fn write(&self, _: Lba, _: &[u8], _: Durability) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.write_zeroes(range, Durability::Volatile)
    }

    fn write_zeroes(&self, range: LbaRange, _: Durability) -> Result<()> {
        self.geometry().within(range)?;
        Ok(())
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.geometry().within(range)?;
        Ok(Extent { blocks: range.blocks, kind: ExtentKind::Hole })
    }
}

/// A device of 16 MiB in blocks of 512 bytes that cannot read one block.
pub(crate) struct Late {
    pub(crate) fails_at: u64,
}

impl BlockDevice for Late {
    fn geometry(&self) -> Geometry {
        Geometry { blocks: 32 << 10, ..Failing.geometry() }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let range = self.geometry().range(at, out.len())?;
        out.fill(1);
        if range.iter().any(|lba| lba.0 == self.fails_at) { Err(Poison { at: 512, len: 512 }.into()) } else { Ok(()) }
    }

    fn write(&self, _: Lba, _: &[u8], _: Durability) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: LbaRange) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }

    fn write_zeroes(&self, _: LbaRange, _: Durability) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.geometry().within(range)?;
        Ok(Extent { blocks: range.blocks, kind: ExtentKind::Data })
    }
}
