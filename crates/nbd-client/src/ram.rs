//! A device in plain memory, for tests, trials and measurements: each block atomic, none durable.

use std::sync::{PoisonError, RwLock};
use tidegate_media::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, Misuse, Result};

/// Bytes under one lock: enough for a block of any size that can be exported.
const CHUNK_BYTES: usize = 64 << 10;

/// A device in plain memory.
pub struct Ram {
    geometry: Geometry,
    chunks: Vec<RwLock<Box<[u8]>>>,
}

impl Ram {
    /// A device of `blocks` zeroed blocks of `block_size` bytes, a power of two from 512 to 65536.
    pub fn new(block_size: u32, blocks: u64) -> Ram {
        Ram::with_geometry(Geometry {
            block_size,
            blocks,
            atomic_blocks: 1,
            volatile_cache: true,
            read_only: false,
            fast_zeroes: true,
        })
    }

    /// A device of `blocks` zeroed blocks that refuses writes.
    pub fn read_only(block_size: u32, blocks: u64) -> Ram {
        let geometry = Ram::new(block_size, 0).geometry;
        Ram::with_geometry(Geometry { blocks, read_only: true, ..geometry })
    }

    fn with_geometry(geometry: Geometry) -> Ram {
        let chunks = geometry.bytes().div_ceil(CHUNK_BYTES as u64);
        Ram { geometry, chunks: (0..chunks).map(|_| RwLock::new(vec![0; CHUNK_BYTES].into())).collect() }
    }

    /// Each chunk that `range` touches: its index, the bytes within it, and where they are in the
    /// range.
    fn pieces(&self, range: LbaRange) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let block = u64::from(self.geometry.block_size);
        let (mut at, end) = (range.first.0 * block, range.end() * block);
        std::iter::from_fn(move || {
            let within = usize::try_from(at % CHUNK_BYTES as u64).ok()?;
            let len = (CHUNK_BYTES - within).min(usize::try_from(end - at).ok()?);
            let chunk = usize::try_from(at / CHUNK_BYTES as u64).ok()?;
            at += len as u64;
            (len > 0).then_some((chunk, within, len))
        })
    }

    fn edit(&self, range: LbaRange, mut edit: impl FnMut(usize, &mut [u8])) -> Result<()> {
        if self.geometry.read_only {
            return Err(Misuse::ReadOnly.into());
        }
        let mut done = 0;
        for (chunk, within, len) in self.pieces(range) {
            let mut bytes = self.chunks[chunk].write().unwrap_or_else(PoisonError::into_inner);
            edit(done, &mut bytes[within..within + len]);
            done += len;
        }
        Ok(())
    }
}

impl BlockDevice for Ram {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let mut rest = &mut *out;
        let range = self.geometry.range(at, rest.len())?;
        for (chunk, within, len) in self.pieces(range) {
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(
                &self.chunks[chunk].read().unwrap_or_else(PoisonError::into_inner)[within..within + len],
            );
            rest = later;
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], _: Durability) -> Result<()> {
        let range = self.geometry.range(at, data.len())?;
        self.edit(range, |done, bytes| bytes.copy_from_slice(&data[done..done + bytes.len()]))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.write_zeroes(range, Durability::Volatile)
    }

    fn write_zeroes(&self, range: LbaRange, _: Durability) -> Result<()> {
        let range = self.geometry.within(range)?;
        self.edit(range, |_, bytes| bytes.fill(0))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.geometry.within(range)?;
        Ok(Extent { blocks: range.blocks, kind: ExtentKind::Data })
    }
}
