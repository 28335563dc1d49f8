//! The disk of a cache whose disk is not there.

use tidegate_media::{Backing, BlockDevice, Durability, Error, Extent, Geometry, Lba, LbaRange, Poison, Result, Run};

/// A disk that refuses everything: with it a cache opens, and gives what it holds.
#[derive(Clone, Copy, Debug)]
pub struct NoDisk {
    geometry: Geometry,
}

impl NoDisk {
    /// In place of a disk of `blocks` blocks of `block_size` bytes.
    pub fn new(blocks: u64, block_size: u32) -> NoDisk {
        let geometry = Geometry {
            block_size,
            blocks,
            atomic_blocks: 0,
            volatile_cache: false,
            read_only: false,
            fast_zeroes: false,
        };
        NoDisk { geometry }
    }

    fn refuse<T>(&self, at: Lba, bytes: usize) -> Result<T> {
        let range = self.geometry.range(at, bytes)?;
        let at = range.first.0 * u64::from(self.geometry.block_size);
        Err(Error::Media(Poison { at, len: bytes as u64 }))
    }

    fn refuse_range<T>(&self, range: LbaRange) -> Result<T> {
        let size = u64::from(self.geometry.block_size);
        let range = self.geometry.within(range)?;
        Err(Error::Media(Poison { at: range.first.0 * size, len: range.blocks * size }))
    }
}

impl BlockDevice for NoDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.refuse(at, out.len())
    }

    fn write(&self, at: Lba, data: &[u8], _: Durability) -> Result<()> {
        self.refuse(at, data.len())
    }

    fn flush(&self) -> Result<()> {
        Err(Error::Media(Poison { at: 0, len: self.geometry.bytes() }))
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.refuse_range(range)
    }

    fn write_zeroes(&self, range: LbaRange, _: Durability) -> Result<()> {
        self.refuse_range(range)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.refuse_range(range)
    }
}

impl Backing for NoDisk {
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        runs.iter().map(|run| self.refuse(run.at, run.data.len())).collect()
    }
}
