//! A device with holes: each block is data once it was written and a hole once it was zeroed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use tidegate_media::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, Result};
use tidegate_nbd_client::ram::Ram;

/// A device that remembers which of its blocks were written, tells of at most three blocks at a
/// time, and zeroes as fast as it is told to.
pub(crate) struct Porous {
    ram: Ram,
    fast_zeroes: bool,
    written: Mutex<BTreeSet<u64>>,
}

impl Porous {
    /// Blocks of 512 bytes, all holes.
    pub(crate) fn new(blocks: u64, fast_zeroes: bool) -> Porous {
        Porous { ram: Ram::new(512, blocks), fast_zeroes, written: Mutex::default() }
    }
}

impl BlockDevice for Porous {
    fn geometry(&self) -> Geometry {
        Geometry { fast_zeroes: self.fast_zeroes, ..self.ram.geometry() }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.ram.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.written.lock().unwrap().extend(at.0..at.0 + data.len() as u64 / 512);
        self.ram.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.write_zeroes(range, Durability::Volatile)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.written.lock().unwrap().retain(|block| *block < range.first.0 || *block >= range.end());
        self.ram.write_zeroes(range, durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.geometry().within(range)?;
        let written = self.written.lock().unwrap();
        let first = written.contains(&range.first.0);
        let blocks = range.iter().take(3).take_while(|lba| written.contains(&lba.0) == first).count() as u64;
        Ok(Extent { blocks, kind: if first { ExtentKind::Data } else { ExtentKind::Hole } })
    }
}
