//! The cache as a device of blocks.

use crate::cache::DiskCache;
use crate::commit::Write;
use crate::destage::step::DestageStep;
use crate::mode::Mode;
use tidegate_media::sync::{Ordering, yield_now};
use tidegate_media::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, Misuse, Region, Result};

impl<R: Region> BlockDevice for DiskCache<R> {
    /// What is promised in the cache's mode: to be asked again when that has changed. Writes that
    /// go past the cache are put in place as the disk does it.
    fn geometry(&self) -> Geometry {
        let mode = self.mode();
        let of_disk = u64::from(self.disk.geometry().atomic_blocks) / self.disk_blocks_each;
        let atomic_blocks = match self.writes_around() {
            true => self.geometry.atomic_blocks.min(u32::try_from(of_disk).unwrap_or(u32::MAX)),
            false => self.geometry.atomic_blocks,
        };
        Geometry { atomic_blocks, read_only: mode == Mode::ReadOnly, ..self.geometry }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let range = self.geometry.range(at, out.len())?;
        let size = self.geometry.block_size as usize;
        let run = self.reader.run(range);
        let mut missing = 0;
        for (index, lba) in range.iter().enumerate() {
            if !self.read_cached(lba.0, &mut out[index * size..(index + 1) * size])? {
                missing += 1;
            } else if missing > 0 {
                self.read_missing(lba.0 - missing as u64, run, &mut out[(index - missing) * size..index * size])?;
                missing = 0;
            }
        }
        let rest = out.len() - missing * size;
        self.read_missing(range.end() - missing as u64, run, &mut out[rest..])
    }

    /// Up to [`Geometry::atomic_blocks`] blocks are put in place together; more are cut into pieces
    /// of that size.
    fn write(&self, at: Lba, data: &[u8], _: Durability) -> Result<()> {
        let range = self.geometry.range(at, data.len())?;
        let size = self.geometry.block_size as usize;
        if range.blocks == 1 {
            return self.put(&[(at.0, data)]);
        }
        let writes: Vec<Write<'_>> = range.iter().map(|lba| lba.0).zip(data.chunks_exact(size)).collect();
        for piece in writes.chunks(self.geometry.atomic_blocks as usize) {
            self.put(piece)?;
        }
        Ok(())
    }

    /// Writes are durable when they return. Fails if the memory has lost a store.
    fn flush(&self) -> Result<()> {
        Ok(self.medium.fence()?)
    }

    /// Keeps the old bytes.
    fn discard(&self, range: LbaRange) -> Result<()> {
        self.geometry.within(range)?;
        Ok(())
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.geometry.within(range)?;
        let most = u64::from(self.geometry.atomic_blocks).min(range.blocks);
        let zeroes = vec![0; usize::try_from(most).expect("at most 2^32") * self.geometry.block_size as usize];
        let mut first = range.first.0;
        while first < range.end() {
            let blocks = most.min(range.end() - first);
            let bytes = usize::try_from(blocks).expect("at most 2^32") * self.geometry.block_size as usize;
            self.write(Lba(first), &zeroes[..bytes], durability)?;
            first += blocks;
        }
        Ok(())
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.geometry.within(range)?;
        let is_cached = |lba: Lba| self.table.index.lock_for(lba.0).get(lba.0).is_some();
        let cached = is_cached(range.first);
        let looked_at = range.iter().take(EXTENT_BLOCKS_MAX);
        let alike = looked_at.take_while(|lba| is_cached(*lba) == cached).count() as u64;
        let alike = alike.max(1);
        if cached {
            return Ok(Extent { blocks: alike, kind: ExtentKind::Data });
        }
        let below = LbaRange { first: self.on_disk(range.first.0), blocks: alike * self.disk_blocks_each };
        let extent = self.disk.extent(below)?;
        match extent.blocks / self.disk_blocks_each {
            0 => Ok(Extent { blocks: 1, kind: ExtentKind::Data }),
            blocks => Ok(Extent { blocks, kind: extent.kind }),
        }
    }
}

/// Blocks that one call of `extent` looks at.
const EXTENT_BLOCKS_MAX: usize = 1024;

impl<R: Region> DiskCache<R> {
    /// What is done with reads and writes.
    pub fn mode(&self) -> Mode {
        Mode::numbered(self.mode.load(Ordering::Relaxed))
    }

    /// Changes it at once, for requests that begin from now on. Not kept on the medium.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode.number(), Ordering::Relaxed);
    }

    /// Whether writes of blocks that are not cached go past the cache. Where the disk is to keep
    /// the order of commits none do.
    fn writes_around(&self) -> bool {
        self.mode().writes_around() && self.destager.order().is_none()
    }

    /// Puts all of `writes` in place, or none; unless the mode sends some of them past the cache.
    pub(crate) fn put(&self, writes: &[Write<'_>]) -> Result<()> {
        if self.writes_around() {
            let cached = self.write_around(writes)?;
            return self.put_through(&cached);
        }
        self.put_together(writes)
    }

    /// Puts all of `writes` in place, or none, whatever the mode.
    pub(crate) fn put_together(&self, writes: &[Write<'_>]) -> Result<()> {
        match self.mode() {
            Mode::WriteBack | Mode::WriteOnly => self.commit(writes),
            Mode::WriteThrough | Mode::WriteAround | Mode::PassThrough => self.put_through(writes),
            Mode::ReadOnly => Err(Misuse::ReadOnly.into()),
        }
    }

    /// Commits `writes` and brings them to the disk. If the disk fails they stay dirty, and safe.
    fn put_through(&self, writes: &[Write<'_>]) -> Result<()> {
        self.commit(writes)?;
        self.bring_to_disk(writes)
    }

    /// Destages what was just committed, unless the mode leaves that for later.
    pub(crate) fn follow_up(&self, writes: &[Write<'_>]) -> Result<()> {
        match self.mode() {
            Mode::WriteBack | Mode::WriteOnly | Mode::ReadOnly => Ok(()),
            Mode::WriteThrough | Mode::WriteAround | Mode::PassThrough => self.bring_to_disk(writes),
        }
    }

    fn bring_to_disk(&self, writes: &[Write<'_>]) -> Result<()> {
        if let Some(order) = self.destager.order() {
            return self.bring_in_order(order);
        }
        let mut lbas: Vec<u64> = writes.iter().map(|(lba, _)| *lba).collect();
        while !lbas.is_empty() {
            let mut progress = DestageStep::default();
            lbas = self.destage(&lbas, &mut progress);
            let failed = progress.failed.into_iter().map(|(_, error)| error).next();
            failed.or(progress.flush_failed).map_or(Ok(()), Err)?;
            if !lbas.is_empty() {
                // Somebody else writes an older content of them to the disk, and has to be waited
                // for.
                yield_now();
            }
        }
        Ok(())
    }
}
